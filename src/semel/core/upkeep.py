"""
Upkeep: which projects need something now, and the sweeps that give it to them.

One function here per function in sql/functions/upkeep.sql: same name, same arguments. The SQL
decides what is past its time; nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.core.call import Call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a project needs of upkeep."""

    project: str
    held: bool  # leased runs to judge, or runs that wait for their key
    due: bool  # delayed runs or deadlines
    purge: bool  # things past their time


#: How often a project is purged.
PURGE_EVERY = timedelta(minutes=10)


def due_projects(
    *, purge_every: timedelta = PURGE_EVERY, now: datetime | None = None
) -> Call[list[Need]]:
    """
    The projects that need something; a purge, *purge_every* after the last.

    Source: sql/functions/upkeep.sql, due_projects.
    """
    return Call(
        "select project_id, held, due, purge from semel.due_projects(%s, p_now => %s)",
        (purge_every, now),
        lambda rows: [
            Need(project=project, held=held, due=due, purge=purge)
            for project, held, due, purge in rows
        ],
    )


def purge_take(project: str, *, now: datetime | None = None) -> Call[bool]:
    """
    Take this interval's purge of *project*; false when another upkeep has it.

    Source: sql/functions/upkeep.sql, purge_take.
    """
    return Call(
        "select semel.purge_take(%s, p_now => %s)",
        (project, now),
        lambda rows: bool(rows[0][0]),
    )


def content_expire(project: str, *, now: datetime | None = None) -> Call[int]:
    """
    Forget contents past their window, a batch; answers how many.

    Source: sql/functions/contents.sql, content_expire.
    """
    return Call("select semel.content_expire(%s, p_now => %s)", (project, now), _count)


def dedupe_expire(project: str, memory: timedelta, *, now: datetime | None = None) -> Call[int]:
    """
    Forget ids past their memory, a thousand at most; answers how many.

    Source: sql/functions/upkeep.sql, dedupe_expire.
    """
    return Call(
        "select semel.dedupe_expire(%s, %s, p_now => %s)", (project, memory, now), _count
    )


def fold_stale(
    project: str,
    after: timedelta,
    *,
    only: Sequence[str] | None = None,
    but: Sequence[str] = (),
    now: datetime | None = None,
) -> Call[int]:
    """
    Close alert episodes that nobody spoke of for *after*; answers how many.

    Args:
        project: Whose.
        after: From the last sighting.
        only: Of these sources; None: of all.
        but: Not of these.
        now: For tests; the database's clock if None.

    Source: sql/functions/upkeep.sql, fold_stale.
    """
    return Call(
        "select semel.fold_stale(%s, %s, p_now => %s, p_only => %s::text[], p_but => %s::text[])",
        (project, after, now, None if only is None else list(only), list(but)),
        _count,
    )


def leftovers_drop(
    project: str, bodies: timedelta, runs: timedelta, *, now: datetime | None = None
) -> Call[int]:
    """
    Drop raw bodies and what was kept beside runs that are gone; answers how many rows.

    Source: sql/functions/upkeep.sql, leftovers_drop.
    """
    return Call(
        "select semel.leftovers_drop(%s, %s, %s, p_now => %s)",
        (project, bodies, runs, now),
        _count,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a page of the round over a project's operations came to."""

    looked: int  # less than a page's: the round is over, or is another's
    tombstones: int
    deleted: int


def operation_expire(
    project: str,
    results: timedelta,
    operations: timedelta | None,
    *,
    every: timedelta,
    limit: int = 1000,
    now: datetime | None = None,
) -> Call[Swept]:
    """
    Look at the next *limit* operations: old replies become tombstones, old identities go.

    Args:
        results: Since the last change, of a reply.
        operations: Since the last change, of an identity, at least 24 h; None: it stays.
        every: A round begins so long after the last one began.

    Source: sql/functions/operations_expire.sql, operation_expire.
    """
    return Call(
        "select looked, tombstones, deleted"
        " from semel.operation_expire(%s, %s, %s, %s, %s, %s)",
        (project, results, operations, every, limit, now),
        lambda rows: Swept(looked=rows[0][0], tombstones=rows[0][1], deleted=rows[0][2]),
    )


def holder_expire(project: str, *, now: datetime | None = None) -> Call[int]:
    """
    Forget holders of recorded operations that were silent for a week; answers how many.

    Source: sql/functions/operations_expire.sql, holder_expire.
    """
    return Call("select semel.holder_expire(%s, p_now => %s)", (project, now), _count)


def worker_expire(project: str, *, now: datetime | None = None) -> Call[int]:
    """
    Forget workers that were silent for a day and hold nothing; answers how many.

    Source: sql/functions/upkeep.sql, worker_expire.
    """
    return Call("select semel.worker_expire(%s, %s)", (project, now), _count)


def partitions_make(*, now: datetime | None = None) -> Call[int]:
    """
    Make the coming days' partitions; answers how many were new.

    Source: sql/functions/upkeep.sql, partitions_make.
    """
    return Call("select semel.partitions_make(p_now => %s)", (now,), _count)


def partitions_drop(
    runs: timedelta, deliveries: timedelta, *, now: datetime | None = None
) -> Call[int]:
    """
    Drop the partitions past their time; answers how many.

    Source: sql/functions/upkeep.sql, partitions_drop.
    """
    return Call(
        "select semel.partitions_drop(%s, %s, p_now => %s)", (runs, deliveries, now), _count
    )


def _count(rows: Sequence[Any]) -> int:
    return int(rows[0][0])
