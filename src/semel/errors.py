"""
Errors: one tree, one code for each way to be refused.

A code is the same word in SQL, in a log line, in an HTTP body, on the command line and in the
docs; a test holds the four to one another.

    SemelError
    ├── BadRequest          E-REQUEST-001   malformed input of a caller
    │   ├── TooLarge        E-REQUEST-002   a limit with a name was passed
    │   ├── TooOften        E-REQUEST-003   one address asked for too many things that are not there
    │   ├── BadInput        E-REQUEST-004   an operation's input that has no digest
    │   └── BadKey          E-IDEMPOTENT-006
    ├── Duplicate           E-IDEMPOTENT-001  (a normal outcome; never raised)
    ├── KeyConflict         E-IDEMPOTENT-002
    ├── InFlight            E-IDEMPOTENT-003  another request executes it, or may have
    ├── NeedsReconcile      E-IDEMPOTENT-004  PROCESSING for ever: a person must judge it
    ├── ResultNotKept       E-IDEMPOTENT-005
    ├── LegacyUnverifiable  E-IDEMPOTENT-007  a row without an identity to compare
    ├── TransactionEnded    E-IDEMPOTENT-008  a handler that commits or rolls back for us
    ├── TransactionUnfit    E-IDEMPOTENT-009  it has written, is aborted or not READ COMMITTED
    ├── ErrorSwallowed      E-IDEMPOTENT-010  the work caught a database error and went on
    ├── BadReply            E-IDEMPOTENT-011  what an operation replied is no JSON
    ├── UnknownOutcome      E-IDEMPOTENT-012  COMMIT was not answered, and nobody can be asked
    ├── LostRace            E-IDEMPOTENT-013  a deadlock or a serialization failure
    ├── LeaseLost           E-LEASE-001
    ├── NoSuchRun           E-RUN-001
    ├── RunRefused          E-RUN-002
    ├── AttemptsExhausted   E-RUN-003
    ├── DeadlinePassed      E-RUN-004
    ├── RunCancelled        E-RUN-005
    ├── HandlerFailed       E-RUN-006   what a handler raised
    ├── BadResult           E-RUN-007   what a handler returned is no JSON, or too large
    ├── DoNotRetry          E-RUN-008   a handler raises it: another attempt cannot help
    ├── NoSuchEvent         E-EVENT-001
    ├── NotReplayable       E-EVENT-002  its raw body is gone, or reads as no event
    ├── NotImportable       E-EVENT-003  a table that is no dedupe table, or a source that has none
    ├── UnreadableInput     E-RUN-009   Python cannot read what PostgreSQL keeps
    ├── ChildFailed         E-RUN-010   a child that was waited for did not complete
    ├── WaitTimedOut        E-RUN-011   a signal, or a child's end, did not come in time
    ├── JournalMismatch     E-STEP-001  the code asks for other steps than the journal has
    ├── BadStepResult       E-STEP-002  no JSON, or too large; its effect stands
    ├── UnknownUndo         E-STEP-003  an undo that is not registered, or takes other arguments
    ├── StepInParallel      E-STEP-004  two steps of one name at the same time
    ├── StepFailed          E-STEP-005  a step that the handler once went on without
    ├── NestedStep          E-STEP-007  a step or a wait inside another
    ├── UndoFailed          E-STEP-006  what could not be undone
    ├── NoSuchApproval      E-APPROVAL-001
    ├── ApprovalExpired     E-APPROVAL-002
    ├── ApprovalDecided     E-APPROVAL-003
    ├── ApprovalRejected    E-APPROVAL-004  raised in the handler, which may go on otherwise
    ├── JournalPassed       E-JOURNAL-001   a cursor stands where the journal has nothing any more
    ├── NoSuchConsumer      E-JOURNAL-002
    ├── CursorLost          E-JOURNAL-003   another instance of the consumer has gone on
    ├── NotifyFailed        E-NOTIFY-001    a notifier that is not configured, refused or is down
    ├── NoSuchOperation     E-OPERATION-001
    ├── NotDrained          E-OPERATION-002  something still executes, or may
    ├── NotALedger          E-OPERATION-003  a table that operations cannot be imported from
    ├── NotReconcilable     E-OPERATION-004  nothing that a person may judge, or not now
    ├── UnknownSource       E-SOURCE-001
    ├── NotAuthentic        E-SOURCE-002
    ├── Quarantined         E-SOURCE-003
    ├── Unauthenticated     E-AUTH-001
    ├── Forbidden           E-AUTH-002
    ├── DatabaseUnreachable E-DB-001
    ├── SchemaMismatch      E-DB-002
    ├── EmbeddedError       E-DB-003
    ├── BadConfig           E-CONFIG-001
    └── OurFault            E-INTERNAL-001
"""

from __future__ import annotations

from typing import ClassVar


class SemelError(Exception):
    """Anything Semel refuses. str() is the sentence; the class says the rest."""

    code: ClassVar[str] = "E-REQUEST-001"
    sqlstate: ClassVar[str] = "SMQ01"
    http_status: ClassVar[int] = 400
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    title: ClassVar[str] = "refused"
    remedy: ClassVar[str] = "Mend what the message names and send it again."


class BadRequest(SemelError):
    """What the caller sent cannot be read as what it must be."""

    title = "malformed request"


class TooLarge(BadRequest):
    """A limit was passed. Nothing was kept."""

    code = "E-REQUEST-002"
    sqlstate = "SMQ02"
    http_status = 413
    title = "too large"
    remedy = "Send less, or raise the limit in semel.toml."


class TooOften(BadRequest):
    """One address asked too often for what is not there."""

    code = "E-REQUEST-003"
    sqlstate = "SMQ03"
    http_status = 429
    retryable = True
    title = "too often"
    remedy = "Wait as long as Retry-After says; check that the link was copied whole."


class BadInput(BadRequest):
    """An operation's input has no digest: it is no JSON, says a thing twice, or passes a limit."""

    code = "E-REQUEST-004"
    sqlstate = "SMQ04"
    title = "unreadable input"
    remedy = "Send UTF-8 JSON that every reader reads alike; a large integer goes as a string."


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


class LeaseLost(SemelError):
    """This claim no longer holds its run. Drop the work; another worker owns it or it ended."""

    code = "E-LEASE-001"
    sqlstate = "SML01"
    http_status = 409
    title = "lease lost"
    remedy = "Stop this attempt and write nothing more for it."


class NoSuchRun(SemelError):
    """No run has this id in this project."""

    code = "E-RUN-001"
    sqlstate = "SMR01"
    http_status = 404
    title = "no such run"
    remedy = "Check the id and the project: `semel run list` shows what is there."


class RunRefused(SemelError):
    """The run's state does not allow this."""

    code = "E-RUN-002"
    sqlstate = "SMR02"
    http_status = 409
    title = "not allowed in this state"
    remedy = "`semel run show` names the state; the docs draw what it allows."


class AttemptsExhausted(SemelError):
    """The last allowed attempt ended without success."""

    code = "E-RUN-003"
    sqlstate = "SMR03"
    http_status = 409
    title = "Max retry attempts exceeded"
    remedy = "Read the attempts in `semel run show`, mend the cause, then start or retry it."


class DeadlinePassed(SemelError):
    """The run's deadline passed before it finished."""

    code = "E-RUN-004"
    sqlstate = "SMR04"
    http_status = 409
    title = "deadline passed"
    remedy = "Start it again with a later deadline."


class RunCancelled(SemelError):
    """The run was cancelled."""

    code = "E-RUN-005"
    sqlstate = "SMR05"
    http_status = 409
    title = "cancelled"
    remedy = "Start a new run if the work is still wanted."


class HandlerFailed(SemelError):
    """The handler raised. The run is tried again while attempts are left."""

    code = "E-RUN-006"
    sqlstate = "SMR06"
    http_status = 409
    retryable = True
    title = "the handler raised"
    remedy = "Read the reason in `semel run show` and mend the handler."


class BadResult(SemelError):
    """What the handler returned cannot be stored. Trying again would do the work twice."""

    code = "E-RUN-007"
    sqlstate = "SMR07"
    http_status = 409
    title = "the result cannot be stored"
    remedy = "Return JSON of at most 1 MiB; keep larger results elsewhere and return where."


class DoNotRetry(SemelError):
    """
    Raise it in a handler to end the run at once, whatever attempts are left.

    Subclass it for errors of your own that no other attempt can mend.
    """

    code = "E-RUN-008"
    sqlstate = "SMR08"
    http_status = 409
    title = "the handler gave up"
    remedy = "Read the reason in `semel run show`; mend the cause and retry or start it again."


class NoSuchEvent(SemelError):
    """No event and no delivery has this id in this project, or its memory has ended."""

    code = "E-EVENT-001"
    sqlstate = "SMV01"
    http_status = 404
    title = "no such event"
    remedy = "Check the id and the project: `semel event list` shows what is there."


class NotReplayable(SemelError):
    """What came cannot be offered again: its bytes are not kept, or read as no event."""

    code = "E-EVENT-002"
    sqlstate = "SMV02"
    http_status = 409
    title = "not replayable"
    remedy = "`semel event show` says what is kept of it; `semel run retry` needs no body."


class NotImportable(SemelError):
    """A table is not the one to import from, or its ids are not those of the source."""

    code = "E-EVENT-003"
    sqlstate = "SMV03"
    http_status = 400
    title = "not importable"
    remedy = "Name a table of this database with the columns that the message lists."


class UnreadableInput(SemelError):
    """The run's input is JSON to PostgreSQL, but too deep or too long a number for Python."""

    code = "E-RUN-009"
    sqlstate = "SMR09"
    http_status = 409
    title = "the input cannot be read"
    remedy = "Start it again with an input of fewer levels or digits."


class ChildFailed(SemelError):
    """A child that the handler waited for ended FAILED or CANCELLED."""

    code = "E-RUN-010"
    sqlstate = "SMR10"
    http_status = 409
    title = "a child run failed"
    remedy = "Read the child in `semel run show`; catch ChildFailed to go on without it."


class WaitTimedOut(SemelError):
    """What the handler waited for did not come within its timeout."""

    code = "E-RUN-011"
    sqlstate = "SMR11"
    http_status = 409
    title = "waited in vain"
    remedy = "Catch WaitTimedOut to go on without it, or allow more time."


class JournalMismatch(SemelError):
    """The handler asks for other steps than its journal has: its code changed under a live run."""

    code = "E-STEP-001"
    sqlstate = "SMS01"
    http_status = 409
    title = "the journal does not match the code"
    remedy = (
        "Bring the old code back and `semel run retry`, or `semel run compensate`;"
        " next time guard the change with run.patched(name) or a new version."
    )


class BadStepResult(SemelError):
    """What a step returned cannot be journaled. Its effect stands; it is not tried again."""

    code = "E-STEP-002"
    sqlstate = "SMS02"
    http_status = 409
    title = "the step's result cannot be stored"
    remedy = "Return JSON of at most 1 MiB; keep larger results elsewhere and return where."


class UnknownUndo(SemelError):
    """The undo of a step is not registered in this program, or cannot take the step's arguments."""

    code = "E-STEP-003"
    sqlstate = "SMS03"
    http_status = 409
    title = "no such compensation"
    remedy = (
        "Register it with @app.compensation(name); it is called as undo(*args, result=...)."
    )


class StepInParallel(SemelError):
    """Two steps of one name run at the same time: no key could tell their results apart."""

    code = "E-STEP-004"
    sqlstate = "SMS04"
    http_status = 409
    title = "the same step twice at once"
    remedy = "Give each parallel step a name of its own."


class StepFailed(SemelError):
    """A step failed in an earlier attempt, and the handler went on without it; that stands."""

    code = "E-STEP-005"
    sqlstate = "SMS05"
    http_status = 409
    title = "a step failed"
    remedy = "Read its errors in `semel run show`; start a new run once the cause is gone."


class NestedStep(SemelError):
    """A step or a wait was asked for inside a step or a transaction."""

    code = "E-STEP-007"
    sqlstate = "SMS07"
    http_status = 409
    title = "a step inside a step"
    remedy = (
        "Ask for it in the handler, before or after the other; a step's function is one step."
    )


class UndoFailed(SemelError):
    """A compensation did not succeed; the message names what is not undone."""

    code = "E-STEP-006"
    sqlstate = "SMS06"
    http_status = 409
    title = "not everything could be undone"
    remedy = (
        "Mend the cause and `semel run retry` it, or `semel run skip` the step with a reason."
    )


class NoSuchApproval(SemelError):
    """No such link or approval, or what it asked is void. Says nothing more, whatever is known."""

    code = "E-APPROVAL-001"
    sqlstate = "SMA01"
    http_status = 404
    title = "no such approval"
    remedy = "Ask whoever sent the link; `semel approval list` shows what is open."


class ApprovalExpired(SemelError):
    """It was not decided in time; the run has failed."""

    code = "E-APPROVAL-002"
    sqlstate = "SMA02"
    http_status = 410
    title = "approval expired"
    remedy = "Start or retry the run to be asked again; ttl= allows more time."


class ApprovalDecided(SemelError):
    """It was decided before; the first decision stands and is named."""

    code = "E-APPROVAL-003"
    sqlstate = "SMA03"
    http_status = 409
    title = "already decided"
    remedy = "Nothing to do: the answer names the decision."


class ApprovalRejected(SemelError):
    """A person rejected it. Catch it in the handler to go on otherwise; else the run fails."""

    code = "E-APPROVAL-004"
    sqlstate = "SMA04"
    http_status = 409
    title = "rejected"
    remedy = "Read who rejected it and why in `semel run show`."


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


class NotifyFailed(SemelError):
    """A person could not be told of an approval. It can still be decided otherwise."""

    code = "E-NOTIFY-001"
    sqlstate = "SMN01"
    http_status = 409
    retryable = True
    title = "the notification was not sent"
    remedy = (
        "Read the notification run in `semel run show` and mend its notifier in semel.toml."
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


class UnknownSource(SemelError):
    """No such source is configured in this project."""

    code = "E-SOURCE-001"
    sqlstate = "SMC01"
    http_status = 404
    title = "unknown source"
    remedy = "Add [sources.NAME] with this project to semel.toml and restart the ingress."


class NotAuthentic(SemelError):
    """The delivery does not carry the source's secret. Nothing was kept."""

    code = "E-SOURCE-002"
    sqlstate = "SMC02"
    http_status = 401
    title = "not authentic"
    remedy = "Give the sender one of the source's secrets."


class Quarantined(SemelError):
    """Authentic, but unusable: kept raw, shown to the operator, and made no run."""

    code = "E-SOURCE-003"
    sqlstate = "SMC03"
    http_status = 200
    title = "quarantined"
    remedy = "`semel event list --verdict quarantined` shows what came and why it is unusable."


class Unauthenticated(SemelError):
    """No token, or none that is known in this project."""

    code = "E-AUTH-001"
    sqlstate = "SMU01"
    http_status = 401
    title = "unauthenticated"
    remedy = "Send Authorization: Bearer with a token of `semel token create`."


class Forbidden(SemelError):
    """The token's role does not allow this."""

    code = "E-AUTH-002"
    sqlstate = "SMU02"
    http_status = 403
    title = "forbidden"
    remedy = "Use a token whose role allows it."


class DatabaseUnreachable(SemelError):
    """The database does not answer. Nothing was kept; send it again."""

    code = "E-DB-001"
    sqlstate = "SMD01"
    http_status = 503
    exit_code = 3
    retryable = True
    title = "database out of reach"
    remedy = "Check SEMEL_DSN and that PostgreSQL is up: `semel doctor`."


class SchemaMismatch(SemelError):
    """The schema in the database is not the one this program needs."""

    code = "E-DB-002"
    sqlstate = "SMD02"
    http_status = 503
    title = "schema mismatch"
    remedy = "Run `semel migrate`, or a program of the schema's version."


class EmbeddedError(SemelError):
    """The embedded PostgreSQL cannot be found, made or started."""

    code = "E-DB-003"
    sqlstate = "SMD03"
    http_status = 503
    exit_code = 3
    title = "embedded PostgreSQL unavailable"
    remedy = "Read the log that the message names, or point SEMEL_DSN at a server of your own."


class BadConfig(SemelError):
    """A setting is unknown, misspelt or impossible."""

    code = "E-CONFIG-001"
    sqlstate = "SMG01"
    exit_code = 2
    title = "impossible setting"
    remedy = "The message names the setting and what it may be."


class OurFault(SemelError):
    """A fault of Semel's own. Nothing was kept; the log has the traceback."""

    code = "E-INTERNAL-001"
    sqlstate = "SMX01"
    http_status = 500
    retryable = True
    title = "internal fault"
    remedy = "Send it again; if it comes back, report it with the log's traceback."


def tree(root: type[SemelError] = SemelError) -> list[type[SemelError]]:
    """Every error class below *root* in this file, in the order of their codes."""
    own = [child for child in root.__subclasses__() if child.__module__ == __name__]
    found = [leaf for child in own for leaf in (child, *tree(child))]
    return sorted(found, key=lambda error: error.code)


def by_sqlstate(sqlstate: str | None) -> type[SemelError] | None:
    """The class that stands for *sqlstate*, or None for a state that is not ours."""
    return next((error for error in tree() if error.sqlstate == sqlstate), None)
