"""
Transitions: what an operator, or a deadline, does to a run.

One function here per function in sql/functions/transitions.sql: same name, same arguments. The
SQL decides what a state allows. Nothing here opens a connection or reads a clock.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from semel.core.call import Call

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

#: How long a worker may be silent, where nobody says otherwise.
DEAD_AFTER = timedelta(seconds=30)


def run_cancel(
    project: str,
    run_id: UUID,
    *,
    reason: str = "cancelled by an operator",
    dead_after: timedelta = DEAD_AFTER,
    now: datetime | None = None,
) -> Call[tuple[str, str | None]]:
    """
    Cancel a run; its handler is told by the next beat.

    Args:
        dead_after: What it did is undone this much later at the latest: longer than a beat.

    Returns:
        won, already, refused (it ended otherwise) or unknown; and the state it was found in.

    Source: sql/functions/transitions.sql, run_cancel.
    """
    return Call(
        "select outcome, status from semel.run_cancel(%s, %s, %s, %s, %s)",
        (project, run_id, reason, dead_after, now),
        lambda rows: (rows[0][0], rows[0][1]),
    )


def run_retry(
    project: str, run_id: UUID, *, now: datetime | None = None
) -> Call[tuple[str, str | None, UUID]]:
    """
    Let a FAILED or CANCELLED run start again, max_attempts times more.

    Returns:
        won, new (it is compensated: another run was started instead), refused or unknown; the
        state it was found in; and the run that starts.

    Source: sql/functions/transitions.sql, run_retry.
    """
    return Call(
        "select outcome, status, run_id from semel.run_retry(%s, %s, %s)",
        (project, run_id, now),
        lambda rows: (rows[0][0], rows[0][1], rows[0][2]),
    )


def run_prioritise(
    project: str, run_id: UUID, *, priority: int, now: datetime | None = None
) -> Call[tuple[str, str | None]]:
    """
    Give a run that waits another priority, 0 (last) to 9 (first).

    Returns:
        won, already, refused (it runs, or has ended) or unknown; and the state it was found in.

    Source: sql/functions/transitions.sql, run_prioritise.
    """
    return Call(
        "select outcome, status from semel.run_prioritise(%s, %s, %s, %s)",
        (project, run_id, priority, now),
        lambda rows: (rows[0][0], rows[0][1]),
    )


def run_overdue(
    project: str, *, dead_after: timedelta = DEAD_AFTER, now: datetime | None = None
) -> Call[list[UUID]]:
    """
    Fail the runs whose deadline has passed; answers which. dead_after is as for `run_cancel`.

    Source: sql/functions/transitions.sql, run_overdue.
    """
    return Call(
        "select run_id from semel.run_overdue(%s, p_dead_after => %s, p_now => %s)",
        (project, dead_after, now),
        lambda rows: [row[0] for row in rows],
    )
