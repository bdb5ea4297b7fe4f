"""
Recovery: the runs of lost workers.

One function here per function in sql/functions/recovery.sql: same name, same arguments. The SQL
judges who is lost, by the database's clock. Nothing here opens a connection or reads a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.core.call import Call
from semel.model import Reaped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta


def run_reap(
    project: str,
    *,
    dead_after: timedelta,
    trust: bool = False,
    now: datetime | None = None,
) -> Call[list[Reaped]]:
    """
    Take runs from workers that are silent for *dead_after* or whose lease has passed.

    Args:
        trust: Let a test jump *now* past the guard against outages.

    Source: sql/functions/recovery.sql, run_reap.
    """
    return Call(
        "select run_id, worker_id, outcome from semel.run_reap(%s, %s, 1000, %s, %s)",
        (project, dead_after, trust, now),
        _reaped,
    )


def worker_lost(
    project: str, worker: str, *, now: datetime | None = None
) -> Call[list[Reaped]]:
    """
    Judge the runs of a worker that is known to be gone.

    Source: sql/functions/recovery.sql, worker_lost.
    """
    return Call(
        "select run_id, worker_id, outcome from semel.worker_lost(%s, %s, %s)",
        (project, worker, now),
        _reaped,
    )


def _reaped(rows: Sequence[Any]) -> list[Reaped]:
    return [
        Reaped(run_id=run_id, worker=worker, outcome=outcome)
        for run_id, worker, outcome in rows
        if run_id is not None
    ]
