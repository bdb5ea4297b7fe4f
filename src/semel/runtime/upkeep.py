"""
Upkeep: the sweeps that keep promises which no worker keeps for itself.

Every second: due retries and delayed starts become claimable. Every five, or sooner where
dead_after is short: runs of lost workers are recovered. Every ten minutes: partitions for the coming days. Any number of upkeep processes
may run; a sweep of one project at a time is enforced by the project's row lock.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from semel import log
from semel.core import runs
from semel.db.execute import run
from semel.db.pool import connect
from semel.runtime.held import boottime

if TYPE_CHECKING:
    import psycopg

    from semel.config import Settings

DUE_SECONDS = 1.0
REAP_SECONDS_MAX = 5.0
PARTITION_SECONDS = 600.0


class Upkeep:
    """Sweeps every project until stopped."""

    def __init__(self, settings: Settings, *, dsn: str) -> None:
        self._settings = settings
        self._dsn = dsn
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End after the sweep that is under way."""
        self._stopping.set()

    def run(self) -> None:
        """Sweep until stopped; a database that is away is waited for."""
        log.event("upkeep.started")
        conn: psycopg.Connection[Any] | None = None
        reap_at = partition_at = 0.0
        reap_every = min(REAP_SECONDS_MAX, self._settings.worker.dead_after.total_seconds() / 3)
        while not self._stopping.is_set():
            try:
                if conn is None or conn.closed:
                    conn = connect(self._dsn, name="semel-upkeep", prepare=not self._settings.pooler)
                now = boottime()
                projects = run(conn, runs.due_projects())
                self._each(conn, projects, self._due)
                if now >= reap_at:
                    self._each(conn, projects, self._reap)
                    reap_at = now + reap_every
                if now >= partition_at:
                    run(conn, runs.partitions_make())
                    partition_at = now + PARTITION_SECONDS
            except Exception as error:  # noqa: BLE001 - upkeep outlives whatever the database says
                log.event("upkeep.failed", reason=f"{type(error).__name__}: {error}"[:300])
                if conn is not None:
                    conn.close()
            self._stopping.wait(min(DUE_SECONDS, reap_every))
        if conn is not None:
            conn.close()
        log.event("upkeep.stopped")

    def once(self) -> dict[str, int]:
        """Sweep everything once; answers what was done."""
        with connect(self._dsn, name="semel-upkeep", prepare=not self._settings.pooler) as conn:
            projects = run(conn, runs.due_projects())
            due = sum(self._due(conn, project) for project in projects)
            reaped = sum(self._reap(conn, project) for project in projects)
            made = run(conn, runs.partitions_make())
        return {"projects": len(projects), "due": due, "reaped": reaped, "partitions": made}

    def _each(self, conn: psycopg.Connection[Any], projects: list[str], sweep: Any) -> None:
        """Sweep each project; one that fails does not keep the others from theirs."""
        for project in projects:
            try:
                sweep(conn, project)
            except Exception as error:
                if conn.closed:
                    raise
                log.event("upkeep.failed", project=project, reason=f"{type(error).__name__}: {error}"[:300])

    def _due(self, conn: psycopg.Connection[Any], project: str) -> int:
        return run(conn, runs.run_due(project))

    def _reap(self, conn: psycopg.Connection[Any], project: str) -> int:
        reaped = run(conn, runs.run_reap(project, dead_after=self._settings.worker.dead_after))
        for one in reaped:
            log.event("run.reaped", project=project, run=str(one.run_id), worker=one.worker, outcome=one.outcome)
        return len(reaped)
