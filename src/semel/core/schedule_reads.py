"""
Schedule reads: how schedules of all projects are, for the doctor and the metrics.

Only questions; what is worth a line is judged by who asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semel.core.call import Call

if TYPE_CHECKING:
    from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What schedules of one kind of trouble there are."""

    kind: str  # failing, overdue, unserved or withdrawn
    count: int
    named: list[str]  # project/schedule, the first five


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Sums over all schedules that there are."""

    active: int
    paused: int
    withdrawn: int
    failing: int
    fired: int
    missed: int
    skipped: int
    late_seconds: float  # of the one that waits longest to be fired; 0: none does


def schedule_health(overdue: timedelta, *, within: timedelta) -> Call[list[Health]]:
    """
    Active schedules in trouble, and withdrawn ones; of all projects.

    Args:
        overdue: Who was to be looked at longer ago.
        within: A worker that was silent for longer is dead.
    """
    return Call(
        "with live as materialized ("
        "  select distinct w.project_id, a.agent from semel.workers as w"
        "  cross join unnest(w.agents) as a(agent)"
        "  where w.stopped_at is null and w.silent < %s and w.slots > 0"
        "), judged as ("
        "  select s.project_id, s.schedule,"
        "   case when s.state = 'withdrawn' then 'withdrawn'"
        "    when s.error is not null then 'failing'"
        "    when s.look_at < clock_timestamp() - %s then 'overdue'"
        "    when not exists (select from live as l where l.agent = s.agent) then 'unserved'"
        "   end as kind"
        "  from semel.schedules as s where s.state <> 'paused'"
        ") select j.kind, count(*)::int,"
        " (array_agg(j.project_id || '/' || j.schedule order by j.project_id, j.schedule))[:5]"
        " from judged as j where j.kind is not null group by j.kind",
        (within, overdue),
        lambda rows: [
            Health(kind=kind, count=count, named=named) for kind, count, named in rows
        ],
    )


def schedule_figures() -> Call[Figures]:
    """How many there are in each state, and what became of their ticks."""
    return Call(
        "select count(*) filter (where s.state = 'active'),"
        " count(*) filter (where s.state = 'paused'),"
        " count(*) filter (where s.state = 'withdrawn'),"
        " count(*) filter (where s.error is not null),"
        " coalesce(sum(s.fired_count), 0)::bigint, coalesce(sum(s.missed_count), 0)::bigint,"
        " coalesce(sum(s.skipped_count), 0)::bigint,"
        " coalesce(extract(epoch from greatest(interval '0',"
        "  clock_timestamp() - min(s.look_at) filter (where s.error is null))), 0)::float8"
        " from semel.schedules as s",
        (),
        lambda rows: Figures(
            active=rows[0][0],
            paused=rows[0][1],
            withdrawn=rows[0][2],
            failing=rows[0][3],
            fired=rows[0][4],
            missed=rows[0][5],
            skipped=rows[0][6],
            late_seconds=rows[0][7],
        ),
    )
