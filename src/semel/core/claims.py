"""
Claims: where runs wait, and who gets them.

One function here per function in sql/functions/claims.sql: same name, same arguments. The SQL
decides who gets a run; this module gives the answer a type. Nothing here opens a connection or
reads a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.core.call import Call
from semel.model import Claim, Hint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

#: RESUMED, then priority 9 to 0.
ORDINARY_LANES = tuple(range(11))


def run_claim(
    project: str,
    agent: str,
    worker: str,
    *,
    limit: int,
    lease: timedelta,
    max_attempts: int = 3,
    lanes: Sequence[int] = ORDINARY_LANES,
    marks: Sequence[datetime | None] = (),
    oldest: bool = False,
    version: str = "",
    own: Sequence[bool] = (),
    now: datetime | None = None,
) -> Call[list[Claim]]:
    """
    Lease up to *limit* ready runs of *agent* to *worker*.

    Args:
        limit: 1 to the worker's free slots.
        max_attempts: For runs that name none themselves.
        lanes: Where to look, in this order; by default RESUMED, then priority 9 to 0.
        marks: For each lane, the ready_at of the last run claimed there; the scan begins 100 ms
            before it. None, or missing: from the start.
        oldest: The lane whose first run waits longest goes first.
        version: Of the worker's code; what no version began is pinned to it. '': of none.
        own: For each lane, whether among the runs that *version* began; else among those that
            no version began.

    Source: sql/functions/claims.sql, run_claim.
    """

    def read(rows: Sequence[Any]) -> list[Claim]:
        return [
            Claim(
                project=project,
                worker=worker,
                agent=agent,
                run_id=row[0],
                fence=row[1],
                attempt=row[2],
                max_attempts=row[3],
                text=row[4],
                source=row[5],
                event_id=row[6],
                priority=row[7],
                version=row[8],
                lane=row[9],
                ready_at=row[10],
                kind=row[11],
                parent=row[12],
                journal=row[13],
            )
            for row in rows
        ]

    return Call(
        "select run_id, fence, attempt, max_attempts, input, source, event_id, priority,"
        " version, lane, ready_at, kind, parent_run_id, journal from semel.run_claim("
        "%s, %s, %s, %s, %s, %s, %s::int[], %s::timestamptz[], %s, %s, %s::boolean[], %s)",
        (
            project,
            agent,
            worker,
            limit,
            lease,
            max_attempts,
            list(lanes),
            list(marks),
            oldest,
            version,
            list(own),
            now,
        ),
        read,
    )


def run_hint(
    agents: Sequence[str],
    *,
    versions: Sequence[str] = (),
    marks: Mapping[tuple[str, str, str, int], datetime] | None = None,
    now: datetime | None = None,
) -> Call[list[Hint]]:
    """
    Where runs of *agents* wait; a hint, never a truth.

    Args:
        versions: Of the caller's code, for each of *agents*: told are the runs of that version
            and those that no version began. '', or missing: those alone.
        marks: Look only at these (project, agent, version, lane), from each one's mark on. None:
            look everywhere from the start, which also finds what is due.

    Source: sql/functions/claims.sql, run_hint.
    """

    def read(rows: Sequence[Any]) -> list[Hint]:
        return [
            Hint(
                project=project,
                agent=agent,
                version=version,
                lane=lane,
                ready_at=ready_at,
                rate_wait=rate_wait,
            )
            for project, agent, version, lane, ready_at, rate_wait in rows
        ]

    if marks is None:
        return Call(
            "select project_id, agent, version, lane, ready_at, rate_wait"
            " from semel.run_hint(%s::text[], %s::text[], p_now => %s)",
            (list(agents), list(versions), now),
            read,
        )
    keys = list(marks)
    return Call(
        "select project_id, agent, version, lane, ready_at, rate_wait from semel.run_hint("
        "%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::int[],"
        " %s::timestamptz[], p_now => %s)",
        (
            list(agents),
            list(versions),
            [project for project, _, _, _ in keys],
            [agent for _, agent, _, _ in keys],
            [version for _, _, version, _ in keys],
            [lane for _, _, _, lane in keys],
            [marks[key] for key in keys],
            now,
        ),
        read,
    )


def key_look(project: str, *, now: datetime | None = None) -> Call[int]:
    """
    Let go the runs that wait for a concurrency key that has room; answers how many.

    Who frees a slot lets the next go; this finds those whose limit was raised.

    Source: sql/functions/keys.sql, key_look.
    """
    return Call(
        "select semel.key_look(%s, p_now => %s)", (project, now), lambda rows: int(rows[0][0])
    )


def run_due(
    project: str, agent: str | None = None, *, now: datetime | None = None
) -> Call[int]:
    """
    Make the project's due retries and delayed starts claimable; answers how many.

    Source: sql/functions/claims.sql, run_due.
    """
    return Call(
        "select semel.run_due(%s, %s, p_now => %s)",
        (project, agent, now),
        lambda rows: int(rows[0][0]),
    )
