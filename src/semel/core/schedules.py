"""
Schedules: say them, edit them, look at them, fire them.

One function here per function in sql/functions/schedules.sql and schedules_fire.sql: same name,
same arguments; and how they are read. The SQL decides what a tick makes; which moments are ticks,
`semel.core.ticks` works out. Nothing here opens a connection or reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from semel.core import ticks
from semel.core.call import Call
from semel.core.inbox import MEMORY
from semel.core.json_text import text
from semel.core.reads import records
from semel.core.schedule_spec import of_stored
from semel.errors import BadSchedule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from semel.core.reads import Record
    from semel.core.schedule_spec import Spec
    from semel.core.ticks import Plan

#: Ticks to come that a schedule is shown with.
SHOWN_TICKS = 3
PAGE = 50
#: A schedule whose ticks could not be worked out is looked at again so much later.
AGAIN_AFTER = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A schedule that is to be looked at."""

    project: str
    schedule: str
    spec: Mapping[str, Any]
    revision: int
    tick_at: datetime | None
    after: datetime
    now: datetime  # the moment it is judged by


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """What became of a tick; of a plan that was another's by then, without one."""

    schedule: str
    tick_at: datetime | None
    outcome: str  # fired, skipped, duplicate or lost
    agent: str | None
    run_id: UUID | None


def schedule_seed(
    project: str, program: str, specs: Mapping[str, Spec], *, now: datetime | None = None
) -> Call[list[tuple[str, str]]]:
    """
    Say all that the code of *program* says; answers what changed, as (schedule, outcome).

    Source: sql/functions/schedules.sql, schedule_seed.
    """
    return Call(
        "select schedule, outcome from semel.schedule_seed("
        "%s, %s, %s::text[], %s::text[], p_now => %s)",
        (project, program, list(specs), [spec.text() for spec in specs.values()], now),
        lambda rows: [(schedule, outcome) for schedule, outcome in rows],
    )


def schedule_set(
    project: str,
    schedule: str,
    spec: Spec,
    *,
    revision: int | None,
    now: datetime | None = None,
) -> Call[str]:
    """
    Put an operator's edit in force; answers new, won or lost.

    Args:
        revision: Of the schedule that was edited; None: there was none.

    Source: sql/functions/schedules.sql, schedule_set.
    """
    return Call(
        "select outcome from semel.schedule_set(%s, %s, %s, %s, p_now => %s)",
        (project, schedule, spec.text(), revision, now),
        _outcome,
    )


def schedule_clear(project: str, schedule: str, *, now: datetime | None = None) -> Call[str]:
    """
    Give it back to the code; answers won, already, refused or unknown.

    Source: sql/functions/schedules.sql, schedule_clear.
    """
    return Call(
        "select outcome from semel.schedule_clear(%s, %s, p_now => %s)",
        (project, schedule, now),
        _outcome,
    )


def schedule_delete(project: str, schedule: str) -> Call[str]:
    """
    Forget one that no code says; answers won, refused or unknown.

    Source: sql/functions/schedules.sql, schedule_delete.
    """
    return Call(
        "select outcome from semel.schedule_delete(%s, %s)", (project, schedule), _outcome
    )


def schedule_pause(project: str, schedule: str, *, now: datetime | None = None) -> Call[str]:
    """
    Fire nothing until it is resumed; answers won, already or unknown.

    Source: sql/functions/schedules.sql, schedule_pause.
    """
    return Call(
        "select outcome from semel.schedule_pause(%s, %s, p_now => %s)",
        (project, schedule, now),
        _outcome,
    )


def schedule_resume(project: str, schedule: str, *, now: datetime | None = None) -> Call[str]:
    """
    Fire again, from the first tick later than now; answers won, already or unknown.

    Source: sql/functions/schedules.sql, schedule_resume.
    """
    return Call(
        "select outcome from semel.schedule_resume(%s, %s, p_now => %s)",
        (project, schedule, now),
        _outcome,
    )


def schedule_next(*, now: datetime | None = None) -> Call[timedelta | None]:
    """
    How long until one is to be looked at: not above zero when one is due; None: there is none.

    Source: sql/functions/schedules.sql, schedule_next.
    """
    return Call("select semel.schedule_next(p_now => %s)", (now,), lambda rows: rows[0][0])


def schedule_due(*, limit: int = 1000, now: datetime | None = None) -> Call[list[Due]]:
    """
    The schedules that are due, those of one project together; *limit* of each.

    Source: sql/functions/schedules.sql, schedule_due.
    """
    return Call(
        "select project_id, schedule, spec, revision, tick_at, after_at, now_at"
        " from semel.schedule_due(%s, p_now => %s)",
        (limit, now),
        lambda rows: [
            Due(
                project=project,
                schedule=schedule,
                spec=spec,
                revision=revision,
                tick_at=tick_at,
                after=after,
                now=now_at,
            )
            for project, schedule, spec, revision, tick_at, after, now_at in rows
        ],
    )


def look(due: Due) -> dict[str, Any]:
    """What a look at a schedule comes to, as `schedule_fire` takes it."""
    told: dict[str, Any] = {
        "schedule": due.schedule,
        "revision": due.revision,
        "tick_at": due.tick_at.isoformat() if due.tick_at else None,
    }
    try:
        plan = ticks.plan(
            of_stored(due.spec),
            seed=f"{due.project}/{due.schedule}",
            now=due.now,
            tick_at=due.tick_at,
            after=due.after,
        )
    except (BadSchedule, TypeError, KeyError, ValueError, OverflowError) as bad:
        again = due.now + AGAIN_AFTER
        return {**told, "error": str(bad) or type(bad).__name__, "look_at": again.isoformat()}
    return {**told, **_planned(plan)}


def schedule_fire(
    project: str,
    plans: Sequence[Mapping[str, Any]],
    *,
    memory: timedelta = MEMORY,
    now: datetime | None = None,
) -> Call[list[Fired]]:
    """
    Carry out what `look` answered for schedules of *project*; one row for each tick.

    Source: sql/functions/schedules_fire.sql, schedule_fire.
    """
    return Call(
        "select schedule, tick_at, outcome, agent, run_id"
        " from semel.schedule_fire(%s, %s, %s, p_now => %s)",
        (project, text(list(plans)), memory, now),
        lambda rows: [
            Fired(
                schedule=schedule,
                tick_at=tick_at,
                outcome=outcome,
                agent=agent,
                run_id=run_id,
            )
            for schedule, tick_at, outcome, agent, run_id in rows
        ],
    )


def list_schedules(
    project: str, *, after: str | None = None, limit: int = PAGE
) -> Call[list[Record]]:
    """
    Schedules by name, each with its `next` ticks, in UTC and in its zone.

    *after* is the last schedule of the page before.
    """
    return Call(
        "select to_jsonb(s) || jsonb_build_object('asked_at', clock_timestamp())"
        " from semel.schedules as s"
        " where s.project_id = %s and s.schedule > %s order by s.schedule limit %s",
        (project, after or "", limit),
        _shown,
    )


def show_schedule(project: str, schedule: str) -> Call[Record | None]:
    """One schedule, as `list_schedules` shows it; None where there is none."""
    return Call(
        "select to_jsonb(s) || jsonb_build_object('asked_at', clock_timestamp())"
        " from semel.schedules as s where s.project_id = %s and s.schedule = %s",
        (project, schedule),
        lambda rows: _shown(rows)[0] if rows else None,
    )


def spec_of(record: Mapping[str, Any]) -> Spec:
    """The spec of a record of the view: what is in force."""
    told = {
        name: record[name]
        for name in (
            *("cron", "timezone", "agent", "input", "priority"),
            *("catch_up", "catch_up_max", "overlap"),
        )
    }
    spans = {"every": record["every_seconds"], "jitter": record["jitter_seconds"]}
    return of_stored({**told, **spans})


def _planned(plan: Plan) -> dict[str, Any]:
    return {
        "fire": [tick.isoformat() for tick in plan.fire],
        "missed": plan.missed,
        "next_at": plan.tick_at.isoformat(),
        "look_at": plan.look_at.isoformat(),
    }


def _shown(rows: Sequence[Any]) -> list[Record]:
    found = records(rows)
    for record in found:
        asked = datetime.fromisoformat(str(record.pop("asked_at")))
        record["next"] = _next(record, asked) if record["state"] == "active" else []
    return found


def _next(record: Record, now: datetime) -> Any:
    try:
        spec = spec_of(record)
        zone = ticks.zone_of(spec.timezone)
        known = record["next_at"]
        first = datetime.fromisoformat(str(known)) if known else None
        coming = chain([first], ticks.ticks(spec, first)) if first else ticks.ticks(spec, now)
        return [
            {
                "at": tick.astimezone(UTC).isoformat().replace("+00:00", "Z"),
                "local": tick.astimezone(zone).isoformat(),
            }
            for tick in islice(coming, SHOWN_TICKS)
        ]
    except (BadSchedule, TypeError, KeyError, ValueError) as bad:
        record["error"] = record["error"] or str(bad)
        return []


def _outcome(rows: Sequence[Any]) -> str:
    return str(rows[0][0])
