"""
Operations: a mutation under a key is claimed, and finished, failed or looked for again.

One function here per function in sql/functions/operations.sql. The SQL decides whether a request
executes, replays or conflicts; nothing here, nor above, decides it a second time.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from semel.core.call import Call, nothing
from semel.core.json_text import text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from semel.model import Json

Mode = Literal["atomic", "recorded"]
#: What a request meets; sql/functions/operations.sql says what each means.
Outcome = Literal[
    "claimed",
    "replay",
    "mismatch",
    "procedure",
    "actor",
    "foreign",
    "version",
    "in_flight",
    "unknown",
    "gone",
    "legacy",
    "written",
    "isolation",
]
#: What became of an attempt whose COMMIT was not answered.
Recovery = Literal["recorded", "succeeded", "in_progress", "in_flight", "other"]

#: For another request's uncommitted claim of the same key.
WAIT = timedelta(seconds=5)
#: How often a holder of recorded operations beats; silent for 30 s it is taken for dead.
BEAT = timedelta(seconds=10)
REQUEST_BYTES_MAX = 512
NAME_BYTES_MAX = 512

#: What every mutation says first and last: worth preparing.
BEGIN: Final = (
    "select outcome, attempts, xid, reply_status, reply_headers::text, reply_body,"
    " payload::text, error, completed_at"
    " from semel.operation_begin(%s, %s, %s, %s, %s::text::jsonb[], %s, %s, %s, %s, %s)"
)
CLOSE: Final = (
    "select semel.operation_close(%s, %s, %s, %s, %s, %s::text::jsonb, %s,"
    " %s, %s::text::jsonb, %s, %s)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who asks for what: all four must agree for a request to be the same one."""

    project: str
    request_id: str
    event_type: str  # the procedure
    actor: str | None  # None: anonymous
    #: The input's digest, one for each version a row may have; the first is kept in a new row.
    envelopes: Sequence[Mapping[str, Json]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What was answered, to the byte."""

    status: int
    headers: list[tuple[str, str]]  # in their order, repeats kept
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What a request met."""

    outcome: Outcome
    attempts: int | None = None  # of the row
    xid: str | None = None  # of the transaction that claimed it
    reply: Reply | None = None  # of a replay
    payload: Any = None  # the row's identity, unless it was claimed
    error: str | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What became of an attempt."""

    outcome: Recovery
    attempts: int | None = None
    reply: Reply | None = None  # where it succeeded and its reply is kept
    payload: Any = None
    error: str | None = None
    completed_at: datetime | None = None


def base_id(project: str, actor: str | None, key: str) -> str:
    """
    The request id of *key*: `http:` and 64 hex digits; no byte of the key is in it.

    REST and `once` take it as it is; tRPC appends the procedure's path.
    """
    parts = (project, "anonymous" if actor is None else actor, key.strip())
    return f"http:{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()}"


def operation_begin(
    identity: Identity,
    *,
    wait: timedelta | None = WAIT,
    join: bool = False,
    mode: Mode = "atomic",
    holder: UUID | None = None,
    now: datetime | None = None,
) -> Call[Begun]:
    """
    Claim the operation, or learn what became of it.

    Args:
        wait: For another's uncommitted claim; None or 0 answers in_flight within milliseconds.
        join: Take part in a transaction that may have written already.
        holder: Of recorded mode: who beats while it executes.

    Source: sql/functions/operations.sql, operation_begin.
    """
    return Call(
        BEGIN,
        (*_who(identity), wait, join, mode, holder, now),
        _begun,
    )


def operation_finish(
    project: str,
    request_id: str,
    attempt: int,
    xid: str | None,
    reply: Reply,
    *,
    gone: bool = False,
    journal: Sequence[Mapping[str, Json]] | None = None,
    holder: UUID | None = None,
    now: datetime | None = None,
) -> Call[None]:
    """
    SUCCEEDED with *reply*; for a joined transaction, or a holder of recorded mode.

    Args:
        gone: Keep a tombstone in place of the reply.
        journal: `{"topic": …, "payload": …}` each, committed with it.
        holder: Of recorded mode; *xid* is None then.

    Raises:
        TransactionEnded: it is not this transaction's, or this holder's, attempt to finish.

    Source: sql/functions/operations.sql, operation_finish.
    """
    return Call(
        "select semel.operation_finish(%s, %s, %s, %s, %s, %s::text::jsonb, %s,"
        " %s, %s::text::jsonb, %s, %s)",
        (project, request_id, attempt, xid, *_told(reply, gone, journal), holder, now),
        nothing,
    )


def operation_close(
    project: str,
    request_id: str,
    attempt: int,
    xid: str,
    reply: Reply,
    *,
    gone: bool = False,
    journal: Sequence[Mapping[str, Json]] | None = None,
    now: datetime | None = None,
) -> Call[None]:
    """
    Make deferred constraints immediate, then `operation_finish`; COMMIT may follow at once.

    What a constraint refuses is raised here, with the driver's own error, and not by COMMIT. The
    constraints stay immediate, so whoever joins another's transaction takes `operation_finish`.

    Source: sql/functions/operations.sql, operation_close.
    """
    return Call(
        CLOSE,
        (project, request_id, attempt, xid, *_told(reply, gone, journal), None, now),
        nothing,
    )


def operation_fail(
    project: str,
    request_id: str,
    attempt: int,
    xid: str | None,
    *,
    code: str,
    error: str,
    holder: UUID | None = None,
    now: datetime | None = None,
) -> Call[Literal["won", "lost"]]:
    """
    FAILED with *error*, once the work is rolled back to its savepoint.

    Source: sql/functions/operations.sql, operation_fail.
    """
    return Call(
        "select semel.operation_fail(%s, %s, %s, %s, %s, %s, %s, %s)",
        (project, request_id, attempt, xid, _kept(code), _kept(error), holder, now),
        lambda rows: rows[0][0],
    )


def operation_recover(
    identity: Identity,
    attempt: int,
    xid: str | None,
    *,
    code: str,
    error: str,
    wait: timedelta | None = WAIT,
    now: datetime | None = None,
) -> Call[Recovered]:
    """
    What became of *attempt*, whose COMMIT in *xid* was not answered; in a transaction of its own.

    Args:
        xid: None where its fate cannot be asked for (a sharded server).
        code, error: What FAILED says, if it came to nothing.
        wait: For that transaction to end, if it is still open.

    Source: sql/functions/operations.sql, operation_recover.
    """
    return Call(
        "select outcome, attempts, reply_status, reply_headers::text, reply_body,"
        " payload::text, error, completed_at"
        " from semel.operation_recover(%s, %s, %s, %s, %s::text::jsonb[],"
        " %s, %s, %s, %s, %s, %s)",
        (*_who(identity), attempt, xid, _kept(code), _kept(error), wait, now),
        _recovered,
    )


def operation_beat(
    project: str, holder: UUID, name: str, *, now: datetime | None = None
) -> Call[None]:
    """
    A holder of recorded operations lives; every BEAT while it executes one.

    Source: sql/functions/operations.sql, operation_beat.
    """
    return Call(
        "select semel.operation_beat(%s, %s, %s, %s)", (project, holder, name, now), nothing
    )


def operation_release(
    project: str,
    request_id: str,
    attempt: int,
    holder: UUID,
    outcome: Literal["untouched", "unknown"],
    *,
    now: datetime | None = None,
) -> Call[Literal["won", "lost"]]:
    """
    A holder of recorded mode hands an operation back without an outcome.

    Args:
        outcome: Nothing was done yet, so the claim never happened; or nobody knows what was.

    Source: sql/functions/operations_release.sql, operation_release.
    """
    return Call(
        "select semel.operation_release(%s, %s, %s, %s, %s, %s)",
        (project, request_id, attempt, holder, outcome, now),
        lambda rows: rows[0][0],
    )


def _who(identity: Identity) -> tuple[Any, ...]:
    # As PostgreSQL writes an array: drivers take a list apart, at the cost of all other arguments.
    texts = [_quoted(text(envelope)) for envelope in identity.envelopes]
    return (
        identity.project,
        identity.request_id,
        identity.event_type,
        identity.actor,
        f"{{{','.join(texts)}}}",
    )


def _quoted(told: str) -> str:
    slashed = told.replace("\\", r"\\")
    return '"' + slashed.replace('"', r"\"") + '"'


def _told(
    reply: Reply, gone: bool, journal: Sequence[Mapping[str, Json]] | None
) -> tuple[Any, ...]:
    headers = None if gone else text(reply.headers)
    entries = None if not journal else text(list(journal))
    return (reply.status, headers, None if gone else reply.body, gone, entries)


def _kept(text: str) -> str:
    """A text as PostgreSQL can keep it."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _reply(status: int | None, headers: str | None, body: Any) -> Reply | None:
    if status is None:
        return None
    pairs = [(str(name), str(value)) for name, value in json.loads(headers or "[]")]
    return Reply(status=status, headers=pairs, body=bytes(body or b""))


def _begun(rows: Sequence[Any]) -> Begun:
    outcome, attempts, xid, status, headers, body, payload, error, completed_at = rows[0]
    return Begun(
        outcome=outcome,
        attempts=attempts,
        xid=xid,
        reply=_reply(status, headers, body),
        payload=None if payload is None else json.loads(payload),
        error=error,
        completed_at=completed_at,
    )


def _recovered(rows: Sequence[Any]) -> Recovered:
    outcome, attempts, status, headers, body, payload, error, completed_at = rows[0]
    return Recovered(
        outcome=outcome,
        attempts=attempts,
        reply=_reply(status, headers, body),
        payload=None if payload is None else json.loads(payload),
        error=error,
        completed_at=completed_at,
    )
