"""
Import: operations as another system left them, taken over with their states.

One function here per function in sql/functions/operations_import.sql: same name, same arguments.
Whose table they come from is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.core.call import Call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

#: Operations of one call.
BATCH_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Legacy:
    """One operation as the other system has it."""

    request_id: str
    target: str
    event_type: str
    actor: str | None
    payload: str  # JSON text
    status: str
    attempts: int
    result: bytes | None  # as it answers it
    error: str | None
    created_at: datetime | None
    processing_at: datetime | None
    completed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of a batch."""

    imported: int  # new here
    changed: int  # known, and moved on over there
    known: int
    conflicts: list[str]  # ids that stand here for something else, or were executed here too


def operation_import(
    project: str, origin: str, rows: Sequence[Legacy], *, now: datetime | None = None
) -> Call[Taken]:
    """
    Take over *rows*, at most BATCH_MAX, as *origin* has them.

    Source: sql/functions/operations_import.sql, operation_import.
    """
    columns: list[list[Any]] = [
        [row.request_id for row in rows],
        [row.target for row in rows],
        [row.event_type for row in rows],
        [row.actor for row in rows],
        [row.payload for row in rows],
        [row.status for row in rows],
        [row.attempts for row in rows],
        [row.result for row in rows],
        [row.error for row in rows],
        [row.created_at for row in rows],
        [row.processing_at for row in rows],
        [row.completed_at for row in rows],
    ]
    return Call(
        "select imported, changed, known, conflicts from semel.operation_import(%s, %s,"
        " %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::int[],"
        " %s::bytea[], %s::text[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s)",
        (project, origin, *columns, now),
        _taken,
    )


def _taken(rows: Sequence[Any]) -> Taken:
    imported, changed, known, conflicts = rows[0]
    return Taken(imported=imported, changed=changed, known=known, conflicts=list(conflicts))
