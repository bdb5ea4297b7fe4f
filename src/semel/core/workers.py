"""
Workers: a process announces itself, beats for the runs it holds, and takes its leave.

One function here per function in sql/functions/workers.sql: same name, same arguments. A beat
says what is lost and never takes a run back. Nothing here opens a connection or reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.core.call import Call, nothing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from semel.core.flow import Flow


@dataclass(frozen=True, slots=True)
class Asked:
    """What an operator asks of a worker: to claim nothing; so many slots, None: its own."""

    drain: bool
    slots: int | None


class Lost(list["tuple[UUID, int]"]):
    """The (run, fence) pairs that a worker holds no longer, and what it is *asked*."""

    def __init__(self, rows: Sequence[Any]) -> None:
        super().__init__((run_id, fence) for run_id, fence, _ in rows if run_id is not None)
        orders = {outcome: many for run_id, many, outcome in rows if run_id is None}
        self.asked = Asked("drain" in orders, orders.get("slots"))


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
    flows: Sequence[Flow] = (),
    now: datetime | None = None,
) -> Call[None]:
    """
    Announce a worker process and its agents, as (name, max_attempts, max_running, executor).

    Args:
        versions: Of the code of each agent, '' for none.
        joins: For each agent, whether events of one correlation key join its live run.
        flows: For each agent, its rate and what its keys are.

    Source: sql/functions/workers.sql, worker_register.
    """
    return Call(
        "select semel.worker_register("
        "%s, %s, %s, %s, %s, %s::text[], %s::int[], %s::int[], %s::text[],"
        " %s::text[], %s::boolean[], %s::int[], %s::interval[], %s::text[], %s::int[], %s)",
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
            [flow.rate.claims if flow.rate else None for flow in flows],
            [flow.rate.span if flow.rate else None for flow in flows],
            [flow.per for flow in flows],
            [flow.per_limit for flow in flows],
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
) -> Call[Lost]:
    """
    Beat for *worker*, renew what is past half of its lease.

    Returns:
        The (run, fence) pairs of *held* that it holds no longer: stop their handlers. And what an
        operator asks of it.

    Source: sql/functions/workers.sql, run_beat.
    """
    return Call(
        "select run_id, fence, outcome"
        " from semel.run_beat(%s, %s, %s::uuid[], %s::bigint[], %s, %s)",
        (project, worker, [run for run, _ in held], [fence for _, fence in held], lease, now),
        Lost,
    )


def worker_stop(project: str, worker: str) -> Call[None]:
    """
    Take leave: this worker holds nothing and will not beat again.

    Source: sql/functions/workers.sql, worker_stop.
    """
    return Call("select semel.worker_stop(%s, %s)", (project, worker), nothing)


def worker_drain(project: str, worker: str, *, on: bool = True) -> Call[str]:
    """
    Ask *worker* to claim nothing more, or to go on; answers won, already, refused or unknown.

    Source: sql/functions/workers.sql, worker_drain.
    """
    return Call(
        "select outcome from semel.worker_drain(%s, %s, %s)",
        (project, worker, on),
        lambda rows: str(rows[0][0]),
    )


def worker_drained(project: str, worker: str) -> Call[bool]:
    """
    Say that *worker* claims nothing more and holds nothing; whether it was asked.

    Source: sql/functions/workers.sql, worker_drained.
    """
    return Call(
        "select semel.worker_drained(%s, %s)", (project, worker), lambda rows: bool(rows[0][0])
    )


def worker_slots(project: str, worker: str, slots: int | None) -> Call[str]:
    """
    Have *worker* hold *slots* runs at a time; answers won, refused or unknown.

    Source: sql/functions/workers.sql, worker_slots.
    """
    return Call(
        "select outcome from semel.worker_slots(%s, %s, %s)",
        (project, worker, slots),
        lambda rows: str(rows[0][0]),
    )
