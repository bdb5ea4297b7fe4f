"""Why an operation under a key is not executed, and why the journal cannot be read on."""

from __future__ import annotations

from semel.errors.base import BadRequest, SemelError


class Duplicate(SemelError):
    """The event was seen before; the first run stands. Answered, never raised."""

    code = "E-IDEMPOTENT-001"
    sqlstate = "SMI01"
    http_status = 200
    exit_code = 0
    title = "duplicate event"
    remedy = "Nothing to do: the answer names the run of the first arrival."


class KeyConflict(SemelError):
    """The key was used before with another payload or procedure. Nothing was executed."""

    code = "E-IDEMPOTENT-002"
    sqlstate = "SMI02"
    http_status = 422
    title = "same key, other payload"
    remedy = "Use a new key for a new request; a retry must send the same payload."


class InFlight(SemelError):
    """The same request is being executed now. Nothing was executed for this one."""

    code = "E-IDEMPOTENT-003"
    sqlstate = "SMI03"
    http_status = 409
    retryable = True
    title = "in flight"
    remedy = "Send the same request again with the same key, as Retry-After says."


class NeedsReconcile(SemelError):
    """The operation began and nobody knows how it ended. It is not executed again."""

    code = "E-IDEMPOTENT-004"
    sqlstate = "SMI04"
    http_status = 409
    title = "outcome unknown"
    remedy = "`semel reconcile list` shows it; a person who knows what happened resolves it."


class ResultNotKept(SemelError):
    """The operation was executed, but its reply was too large or is too old to be kept."""

    code = "E-IDEMPOTENT-005"
    sqlstate = "SMI05"
    http_status = 409
    title = "executed, result not kept"
    remedy = "Nothing to do again: read the outcome where the operation wrote it."


class BadKey(BadRequest):
    """An idempotency key is missing where it is required, or is not a key."""

    code = "E-IDEMPOTENT-006"
    sqlstate = "SMI06"
    title = "malformed key"
    remedy = "Send one Idempotency-Key of 1 to 255 printable ASCII characters."


class LegacyUnverifiable(SemelError):
    """An old system left a row without the digest of its input, so no retry can be told from it."""

    code = "E-IDEMPOTENT-007"
    sqlstate = "SMI07"
    http_status = 409
    title = "legacy row cannot be verified"
    remedy = "`semel reconcile list` shows it; resolve it, or send the request under a new key."


class TransactionEnded(SemelError):
    """The transaction was ended inside the operation: its writes and its outcome are apart."""

    code = "E-IDEMPOTENT-008"
    sqlstate = "SMI08"
    http_status = 500
    title = "the transaction was ended inside the operation"
    remedy = (
        "Let the handler neither commit nor roll back; `semel reconcile list` has the rest."
    )


class TransactionUnfit(SemelError):
    """The operation cannot own this transaction. Nothing was executed."""

    code = "E-IDEMPOTENT-009"
    sqlstate = "SMI09"
    http_status = 500
    title = "unfit transaction"
    remedy = (
        "Begin the operation before the first write, in a READ COMMITTED transaction;"
        " join=True takes part in one that has written."
    )


class ErrorSwallowed(SemelError):
    """The transaction was aborted by an error that the work caught. Its writes are undone."""

    code = "E-IDEMPOTENT-010"
    sqlstate = "SMI10"
    http_status = 500
    title = "a database error was swallowed"
    remedy = "Put what may fail into a savepoint of its own, and catch the error around that."


class BadReply(SemelError):
    """What the operation replied cannot be kept as JSON. Its writes are undone."""

    code = "E-IDEMPOTENT-011"
    sqlstate = "SMI11"
    http_status = 500
    title = "the reply is no JSON"
    remedy = (
        "Reply with JSON, decimals and dates as text, or with bytes and their Content-Type."
    )


class UnknownOutcome(SemelError):
    """The connection was lost at COMMIT. The operation was executed once, or not at all."""

    code = "E-IDEMPOTENT-012"
    sqlstate = "SMI12"
    http_status = 503
    retryable = True
    title = "outcome not known yet"
    remedy = (
        "Send the same request again with the same key: it is answered by what became of it."
    )


class LostRace(SemelError):
    """The database ended the transaction in favour of another one. Nothing was kept."""

    code = "E-IDEMPOTENT-013"
    sqlstate = "SMI13"
    http_status = 409
    retryable = True
    title = "lost a race"
    remedy = "Do it again from its beginning, as semel.run_once does by itself."


class JournalPassed(SemelError):
    """
    A consumer's place is not in the journal: retention took entries that it had not read.

    Or it is beyond the end, as after a failover that lost some. Nothing was skipped silently.
    """

    code = "E-JOURNAL-001"
    sqlstate = "SMJ01"
    http_status = 410
    title = "the journal has gone past the cursor"
    remedy = (
        "Make good what the consumer missed from the tables themselves, then"
        " `semel journal seek CONSUMER oldest`; [retention] journal allows more time."
    )


class NoSuchConsumer(SemelError):
    """No consumer of this name reads the project's journal."""

    code = "E-JOURNAL-002"
    sqlstate = "SMJ02"
    http_status = 404
    title = "no such consumer"
    remedy = "`semel journal consumers` shows them; a Consumer makes itself known as it starts."


class CursorLost(SemelError):
    """The consumer's lease ended and another instance went on, or an operator moved its cursor."""

    code = "E-JOURNAL-003"
    sqlstate = "SMJ03"
    http_status = 409
    title = "the cursor was lost"
    remedy = (
        "Read again. What was done with these entries may be done again by another instance;"
        " give the Consumer a lease that is longer than a batch takes."
    )


class NoSuchOperation(SemelError):
    """No operation has this request id, or key and actor, in this project."""

    code = "E-OPERATION-001"
    sqlstate = "SMO01"
    http_status = 404
    title = "no such operation"
    remedy = (
        "Check the key, --actor and --project: `semel operation list` shows what is there; one"
        " whose transaction has not committed is not there yet."
    )


class NotDrained(SemelError):
    """Operations are PROCESSING, or transactions that write to the ledger are open."""

    code = "E-OPERATION-002"
    sqlstate = "SMO02"
    http_status = 409
    retryable = True
    title = "not drained"
    remedy = (
        "Stop the traffic and wait for the transactions named; what stays PROCESSING is for"
        " `semel reconcile list`. Age proves nothing."
    )


class NotALedger(SemelError):
    """A table is not one whose operations can be imported."""

    code = "E-OPERATION-003"
    sqlstate = "SMO03"
    title = "not an input_event table"
    remedy = "Name a table of this database with the columns that the message lists."


class NotReconcilable(SemelError):
    """There is nothing in the operation's state for a person to judge, or not at this moment."""

    code = "E-OPERATION-004"
    sqlstate = "SMO04"
    http_status = 409
    title = "not to be judged"
    remedy = "Look again: `semel operation explain` says what the next request will get."
