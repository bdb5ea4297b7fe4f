"""
Workers: a process announces itself, beats for the runs it holds, and takes its leave.

One function here per function in sql/functions/workers.sql: same name, same arguments. A beat
says what is lost and never takes a run back. Nothing here opens a connection or reads a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.call import Call, nothing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID


def worker_register(
    project: str,
    worker: str,
    *,
    host: str,
    pid: int,
    slots: int,
    agents: Sequence[tuple[str, int, int | None, str]],
    versions: Sequence[str] = (),
    joins: Sequence[bool] = (),
    now: datetime | None = None,
) -> Call[None]:
    """
    Announce a worker process and its agents, as (name, max_attempts, max_running, executor).

    Args:
        versions: Of the code of each agent, '' for none.
        joins: For each agent, whether events of one correlation key join its live run.

    Source: sql/functions/workers.sql, worker_register.
    """
    return Call(
        "select semel.worker_register("
        "%s, %s, %s, %s, %s, %s::text[], %s::int[], %s::int[], %s::text[],"
        " %s::text[], %s::boolean[], %s)",
        (
            project,
            worker,
            host,
            pid,
            slots,
            [name for name, _, _, _ in agents],
            [attempts for _, attempts, _, _ in agents],
            [running for _, _, running, _ in agents],
            [executor for _, _, _, executor in agents],
            list(versions),
            list(joins),
            now,
        ),
        nothing,
    )


def run_beat(
    project: str,
    worker: str,
    held: Sequence[tuple[UUID, int]],
    *,
    lease: timedelta,
    now: datetime | None = None,
) -> Call[list[tuple[UUID, int]]]:
    """
    Beat for *worker*, renew what is past half of its lease.

    Returns:
        The (run, fence) pairs of *held* that it holds no longer: stop their handlers.

    Source: sql/functions/workers.sql, run_beat.
    """
    return Call(
        "select run_id, fence from semel.run_beat(%s, %s, %s::uuid[], %s::bigint[], %s, %s)",
        (project, worker, [run for run, _ in held], [fence for _, fence in held], lease, now),
        lambda rows: [(run_id, fence) for run_id, fence in rows],
    )


def worker_stop(project: str, worker: str) -> Call[None]:
    """
    Take leave: this worker holds nothing and will not beat again.

    Source: sql/functions/workers.sql, worker_stop.
    """
    return Call("select semel.worker_stop(%s, %s)", (project, worker), nothing)
