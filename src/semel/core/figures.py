"""
Figures: what the metrics count about people's decisions and undoing, over all projects.

What ended is asked for by how long ago, so that a counter grows by what is new, and what retention
takes away takes nothing from it. Nothing here changes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.call import Call

if TYPE_CHECKING:
    from datetime import timedelta
    from uuid import UUID


def approvals_by_state() -> Call[list[tuple[str, int]]]:
    """How many approvals are kept in each state."""
    return Call(
        "select case when a.state = 'PENDING' and a.expires_at <= c.now then 'EXPIRED'"
        " else a.state end, count(*)"
        " from (select clock_timestamp() as now) as c cross join semel.approvals as a group by 1",
        (),
        lambda rows: [(state, count) for state, count in rows],
    )


def decided_approvals(within: timedelta) -> Call[list[tuple[UUID, float]]]:
    """Approvals decided *within* this time, with the seconds from question to decision."""
    return Call(
        "select a.approval_id, extract(epoch from a.decided_at - a.created_at)::float8"
        " from semel.approvals as a where a.state in ('APPROVED', 'REJECTED')"
        " and a.decided_at > statement_timestamp() - %s",
        (within,),
        lambda rows: [(approval_id, seconds) for approval_id, seconds in rows],
    )


def ended_undos(within: timedelta) -> Call[list[tuple[tuple[UUID, int], str]]]:
    """Compensations that ended *within* this time: run and fence, and the status it ended with."""
    return Call(
        "select r.run_id, r.fence, r.status from semel.runs as r where r.kind = 'undo'"
        " and r.finished_at > statement_timestamp() - %s",
        (within,),
        lambda rows: [((run_id, fence), status) for run_id, fence, status in rows],
    )
