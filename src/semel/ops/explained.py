"""
Explained: what the next request of a key will get, and what a person can do about it.

It is not worked out here: the same begin as a request's is asked, at once, and rolled back. So it
cannot say otherwise than the ledger does. A request of this very moment may be told "in flight"
because of it, and comes again; nothing else is seen of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.core.operations import Identity, operation_begin
from semel.db.execute import run

if TYPE_CHECKING:
    import psycopg

    from semel.core.digest import Input
    from semel.core.operations import Begun
    from semel.core.reads import Record
    from semel.model import Json

#: Stands for an input that nobody told, where no row has one either.
_UNTOLD: dict[str, Json] = {"version": 2, "digest": f"sha256:{'0' * 64}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as far as it was told; None: as the operation that is there."""

    project: str
    request_id: str
    operation: str | None
    actor: str | None
    actor_told: bool  # so that None is anonymous
    input: Input | None


#: What a request gets, whether it is worth sending again, and what to do. In the words of a person.
_SAID: dict[str, tuple[str, str, str | None]] = {
    "replay": (
        "replays: it was executed, and the stored reply is answered; attempts stay {attempts}",
        "nothing to do",
        None,
    ),
    "mismatch": (
        "conflicts: the key was used with another input",
        "send the input of the first request, or a new key for a new request",
        "E-IDEMPOTENT-002",
    ),
    "procedure": (
        "conflicts: the key was used for the operation {event_type}",
        "use a new key for another operation",
        "E-IDEMPOTENT-002",
    ),
    "actor": (
        "conflicts: the id is another actor's",
        "see who asks: ids hold the actor; two share one only where a program makes it so",
        "E-IDEMPOTENT-002",
    ),
    "foreign": (
        "conflicts: the id is an operation of another system, target {target}",
        "nothing to do here: such operations are never touched; use a new key",
        "E-IDEMPOTENT-002",
    ),
    "version": (
        (
            "is compared under another version or key of digest than could be made here: the row"
            " has {payload}"
        ),
        "give this command the settings, with their digest keys, of the program that executes it",
        None,
    ),
    "in_flight": (
        "waits, or is told to come again: it is being executed, and has not committed",
        "wait; semel drain check names the transactions, and holders of recorded operations beat",
        "E-IDEMPOTENT-003",
    ),
    "unknown": (
        (
            "conflicts, for ever: PROCESSING is committed, and nobody executes it. Whether its"
            " effect happened is not known"
        ),
        "look whether its effect is there; then semel reconcile resolve, with the reason",
        "E-IDEMPOTENT-004",
    ),
    "gone": (
        "is told that it was executed and that its reply is not kept",
        "nothing to do: it is never executed again; read what it made where it made it",
        "E-IDEMPOTENT-005",
    ),
    "legacy": (
        "conflicts: the row has nothing to compare an input with",
        "look whether its effect is there; then semel reconcile resolve, with the reason",
        "E-IDEMPOTENT-007",
    ),
}


def explain(conn: psycopg.Connection[Any], asked: Asked, row: Record | None) -> dict[str, Any]:
    """
    What a request gets: outcome, code, says and do; *row* is the operation, if there is one.

    Args:
        conn: In autocommit.
    """
    begun = _begin(conn, asked, row)
    says, remedy, code = _said(begun, row, compared=asked.input is not None)
    return {
        "project_id": asked.project,
        "request_id": asked.request_id,
        "outcome": "execute" if begun.outcome == "claimed" else begun.outcome,
        "code": code,
        "says": says,
        "do": remedy,
        "compared": {
            "operation": asked.operation is not None,
            "actor": asked.actor_told,
            "input": asked.input is not None,
        },
        "operation": row,
    }


def _begin(conn: psycopg.Connection[Any], asked: Asked, row: Record | None) -> Begun:
    known: dict[str, Any] = dict(row or {})
    identity = Identity(
        project=asked.project,
        request_id=asked.request_id,
        event_type=asked.operation or known.get("event_type") or "untold",
        actor=asked.actor if asked.actor_told or row is None else known.get("actor_user_id"),
        envelopes=_envelopes(asked.input, known.get("payload")),
    )
    with conn.transaction(force_rollback=True):
        conn.execute("set transaction isolation level read committed")
        return run(conn, operation_begin(identity, wait=None))


def _envelopes(told: Input | None, payload: Any) -> list[dict[str, Json]]:
    if told is not None:
        under = told.under(payload)
        every = [*told.envelopes(), *([under] if under else [])]
        return [{"version": each["version"], "digest": each["digest"]} for each in every]
    if isinstance(payload, dict) and "version" in payload and "digest" in payload:
        return [{"version": payload["version"], "digest": payload["digest"]}]
    return [_UNTOLD]


def _said(begun: Begun, row: Record | None, *, compared: bool) -> tuple[str, str, str | None]:
    if begun.outcome == "claimed":
        return (*_claimed(begun, row), None)
    says, remedy, code = _SAID[begun.outcome]
    known: dict[str, Any] = dict(row or {})
    says = says.format(
        attempts=begun.attempts,
        event_type=known.get("event_type"),
        target=known.get("target"),
        payload=begun.payload,
    )
    if begun.outcome == "replay" and not compared:
        says += ". With another input it conflicts; --input compares one"
    return says, remedy, code


def _claimed(begun: Begun, row: Record | None) -> tuple[str, str]:
    if row is None:
        return (
            (
                "executes: no operation of it is committed. Either none was, or its transaction"
                " was rolled back, or its identity is past retention"
            ),
            "check key, actor, operation and project, if it should be there",
        )
    before = (
        f"attempt {row['attempts']} failed: {row['error']}"
        if row["status"] == "FAILED"
        else f"{row['status']} after {row['attempts']} attempts"
    )
    adopts = (
        "; the row has no digest, and adopts the one of that request"
        if row["payload"] == {}
        else ""
    )
    return (
        f"executes, as attempt {begun.attempts}: {before}{adopts}",
        "mend what failed and send it again, the same request with the same key",
    )
