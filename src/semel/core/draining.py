"""
Draining: what an operator who waits for an agent or a worker to hold nothing looks at.

Reads of the views alone; who claims what is decided elsewhere. Nothing here opens a connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semel.core.call import Call

if TYPE_CHECKING:
    from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A worker in one project: what it holds there, and whether it has said that it is drained."""

    held: int
    slots: int
    draining: bool
    drained: bool
    gone: bool  # it has stopped, or beats no more


def agent_held(project: str, agent: str) -> Call[int]:
    """How many runs of *agent* are leased."""
    return Call(
        "select count(*) from semel.runs as r where r.project_id = %s and r.agent = %s"
        " and r.status = 'RUNNING'",
        (project, agent),
        lambda rows: int(rows[0][0]),
    )


def worker_holding(project: str, worker: str, *, dead_after: timedelta) -> Call[Holding | None]:
    """A worker with the identities under which it executes suspects; None: not in the project."""
    return Call(
        "select w.slots, w.draining_at is not null, w.drained_at is not null,"
        " w.stopped_at is not null or w.silent > %s,"
        " (select coalesce(sum(o.held), 0) from semel.workers as o where o.project_id = %s"
        "   and (o.worker_id = %s or starts_with(o.worker_id, %s)))::int"
        " from semel.workers as w where w.project_id = %s and w.worker_id = %s",
        (dead_after, project, worker, f"{worker}~", project, worker),
        lambda rows: (
            Holding(
                slots=rows[0][0],
                draining=rows[0][1],
                drained=rows[0][2],
                gone=rows[0][3],
                held=rows[0][4],
            )
            if rows
            else None
        ),
    )


def idle_workers(least: timedelta, *, within: timedelta) -> Call[list[str]]:
    """The live workers of all projects that were asked to drain so long ago, and claim nothing."""
    return Call(
        "select distinct w.worker_id from semel.workers as w where w.stopped_at is null"
        " and w.silent <= %s and w.draining_at <= clock_timestamp() - %s::interval"
        " order by w.worker_id",
        (within, least),
        lambda rows: [row[0] for row in rows],
    )
