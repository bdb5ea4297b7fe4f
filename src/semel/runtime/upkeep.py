"""
Upkeep: the sweeps that keep promises which no worker keeps for itself.

Every few seconds the database is asked which projects need something, and they get it: due
retries and delayed starts become claimable, deadlines are enforced, and every five seconds (sooner
where dead_after is short) the runs of lost workers are recovered. Every ten minutes what is past
its retention is purged, project by project and in small batches, and partitions are made and
dropped. Any number of upkeep processes may run: a project's row lets one sweep it at a time.
Schedules are fired beside all that, by the ticker.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from psycopg.errors import LockNotAvailable

from semel import log
from semel.core import batches, claims, debounce, journals, recovery, transitions, upkeep
from semel.core.agents import agent_wake
from semel.db.execute import run
from semel.db.pool import connect
from semel.runtime.held import boottime
from semel.runtime.ticker import ROUNDS_MAX, Ticker

if TYPE_CHECKING:
    from datetime import datetime

    import psycopg

    from semel.config import Settings
    from semel.core.call import Call
    from semel.core.upkeep import Need

LOOK_SECONDS = 2.5
REAP_SECONDS_MAX = 5.0
PARTITION_SECONDS = 600.0
#: Batches of one kind in one purge; the rest waits for the next one.
BATCHES_MAX = 20
BATCH_ROWS = 1000
#: Operations that a sweep looks at in one transaction, and such transactions of one purge: some
#: 14 million operations a day.
SWEEP_PAGE_ROWS = 2000
SWEEP_PAGES_MAX = 50
#: A round over a project's ledger begins so often.
ROUND_EVERY = timedelta(days=1)
#: An alert episode that nobody spoke of for this long is closed.
STALE_AFTER = timedelta(days=30)


class Upkeep:
    """Sweeps every project until stopped."""

    def __init__(self, settings: Settings, *, dsn: str) -> None:
        self._settings = settings
        self._dsn = dsn
        self._stopping = threading.Event()
        self._ticker = Ticker(
            self._connect, memory=settings.retention.dedupe, wake=not settings.pooler
        )

    def stop(self) -> None:
        """End after the sweep that is under way."""
        self._stopping.set()

    def run(self) -> None:
        """Sweep until stopped; a database that is away is waited for."""
        log.event("upkeep.started")
        self._ticker.start()
        conn: psycopg.Connection[Any] | None = None
        reap_at = partition_at = 0.0
        reap_every = min(REAP_SECONDS_MAX, self._settings.worker.dead_after.total_seconds() / 3)
        while not self._stopping.is_set():
            try:
                if conn is None or conn.closed:
                    conn = self._connect()
                now = boottime()
                self._look(conn, reap=now >= reap_at)
                if now >= reap_at:
                    reap_at = now + reap_every
                if now >= partition_at and not self._settings.testing:
                    self._partitions(conn)
                    partition_at = now + PARTITION_SECONDS
            except Exception as error:  # noqa: BLE001 - upkeep outlives whatever the database says
                log.event("upkeep.failed", reason=_said(error))
                if conn is not None:
                    conn.close()
            self._stopping.wait(min(LOOK_SECONDS, reap_every))
        self._ticker.stop()
        if conn is not None:
            conn.close()
        log.event("upkeep.stopped")

    def once(self, *, now: datetime | None = None) -> dict[str, int]:
        """
        Sweep everything once; answers what was done.

        Args:
            now: For tests: the moment to purge and to fire schedules by. Leases are judged by
                the real clock.
        """
        done: Counter[str] = Counter()
        with self._connect() as conn:
            done["partitions"] = self._partitions(conn, now=now)
            done["fired"] = self._ticker.fire(conn, now=now, rounds=ROUNDS_MAX)["fired"]
            for need in run(conn, upkeep.due_projects(purge_every=timedelta(0), now=now)):
                done["projects"] += 1
                done["due"] += self._due(conn, need.project)
                done["reaped"] += self._reap(conn, need.project)
                run(conn, claims.key_look(need.project))
                done["purged"] += self._purge(conn, need.project, now=now, whole=True)
        return dict(done)

    def _connect(self) -> psycopg.Connection[Any]:
        return connect(self._dsn, name="semel-upkeep", prepare=not self._settings.pooler)

    def _look(self, conn: psycopg.Connection[Any], *, reap: bool) -> None:
        """Give each project what it needs; one that fails does not keep the others from theirs."""
        needs = run(conn, upkeep.due_projects())
        for need in needs:
            try:
                self._serve(conn, need, reap=reap)
            except Exception as error:
                if conn.closed:
                    raise
                log.event("upkeep.failed", project=need.project, reason=_said(error))
        if reap and self._settings.project not in {need.project for need in needs if need.held}:
            self._reap(conn, self._settings.project)  # so that its row says that upkeep lives

    def _serve(self, conn: psycopg.Connection[Any], need: Need, *, reap: bool) -> None:
        if need.due:
            self._due(conn, need.project)
        if need.held and reap:
            self._reap(conn, need.project)
            run(conn, claims.key_look(need.project))
        # Under test clocks the real time says nothing of what is past: `--once --now` purges.
        testing = self._settings.testing
        if need.purge and not testing and run(conn, upkeep.purge_take(need.project)):
            self._purge(conn, need.project)

    def _due(self, conn: psycopg.Connection[Any], project: str) -> int:
        overdue = run(
            conn, transitions.run_overdue(project, dead_after=self._settings.worker.dead_after)
        )
        for run_id in overdue:
            log.event("run.overdue", project=project, run=str(run_id))
        told = run(conn, batches.batch_settle(project))
        for batch in told:
            log.event(
                "batch.completed",
                project=project,
                batch=batch.batch,
                done=batch.done,
                failed=batch.failed,
                cancelled=batch.cancelled,
            )
        if agents := [b.on_complete for b in told if b.callback and b.on_complete]:
            run(conn, agent_wake(agents))
        return run(conn, claims.run_due(project)) + len(overdue) + len(told)

    def _reap(self, conn: psycopg.Connection[Any], project: str) -> int:
        reaped = run(
            conn, recovery.run_reap(project, dead_after=self._settings.worker.dead_after)
        )
        for one in reaped:
            log.event(
                "run.reaped",
                project=project,
                run=str(one.run_id),
                worker=one.worker,
                outcome=one.outcome,
            )
        return len(reaped)

    def _purge(
        self,
        conn: psycopg.Connection[Any],
        project: str,
        *,
        now: datetime | None = None,
        whole: bool = False,
    ) -> int:
        keep = self._settings.retention
        purged = self._drain(conn, upkeep.dedupe_expire(project, keep.dedupe, now=now))
        purged += self._drain(conn, upkeep.content_expire(project, now=now))
        purged += self._drain(
            conn, upkeep.leftovers_drop(project, keep.deliveries, keep.runs, now=now)
        )
        # First numbered, since only what could be read for its time is dropped.
        self._drain(conn, journals.journal_number(project), rows=journals.NUMBERED_MAX)
        purged += self._drain(conn, journals.journal_expire(project, keep.journal, now=now))
        purged += run(conn, upkeep.worker_expire(project, now=now))
        purged += self._drain(conn, batches.batch_expire(project, keep.runs, now=now))
        purged += self._drain(conn, debounce.debounce_expire(project, now=now))
        purged += self._sweep(conn, project, now=now, whole=whole)
        self._stale(conn, project, now=now)
        return purged

    def _stale(
        self, conn: psycopg.Connection[Any], project: str, *, now: datetime | None
    ) -> None:
        """Close what nobody spoke of; a source that is configured no more has STALE_AFTER."""
        own = {
            source.name: source.stale_after
            for source in self._settings.sources.values()
            if source.project == project and source.stale_after != STALE_AFTER
        }
        stale = run(conn, upkeep.fold_stale(project, STALE_AFTER, but=list(own), now=now))
        for name, after in own.items():
            stale += run(conn, upkeep.fold_stale(project, after, only=[name], now=now))
        if stale:
            log.event("episode.staled", project=project, count=stale)

    def _sweep(
        self, conn: psycopg.Connection[Any], project: str, *, now: datetime | None, whole: bool
    ) -> int:
        """Go on with the round over the ledger for this purge's share; *whole*: to its end."""
        keep = self._settings.retention
        # What is past its time waits for the round, so a round is a tenth of that time at most.
        every = min(ROUND_EVERY, min(keep.results, keep.operations or keep.results) / 10)
        changed = run(conn, upkeep.holder_expire(project, now=now))
        for _ in itertools.count() if whole else range(SWEEP_PAGES_MAX):
            swept = run(
                conn,
                upkeep.operation_expire(
                    project,
                    keep.results,
                    keep.operations,
                    every=timedelta(0) if whole else every,
                    limit=SWEEP_PAGE_ROWS,
                    now=now,
                ),
            )
            changed += swept.tombstones + swept.deleted
            if swept.deleted:
                log.event("operation.purged", project=project, count=swept.deleted)
            if swept.looked < SWEEP_PAGE_ROWS:
                break
        return changed

    def _drain(
        self, conn: psycopg.Connection[Any], call: Call[int | None], *, rows: int = BATCH_ROWS
    ) -> int:
        """Run a call in batches of *rows* until it has nothing left, or has had its share."""
        total = 0
        for _ in range(BATCHES_MAX):
            count = run(conn, call) or 0
            total += count
            if count < rows:
                break
        return total

    def _partitions(self, conn: psycopg.Connection[Any], *, now: datetime | None = None) -> int:
        """Make and drop what is due; who reads for long delays it to the next time."""
        keep = self._settings.retention
        changed = 0
        for call in (
            upkeep.partitions_make(),
            upkeep.partitions_drop(keep.runs, keep.deliveries, now=now),
        ):
            try:
                changed += run(conn, call)
            except LockNotAvailable as busy:
                log.event("upkeep.failed", reason=_said(busy))
        return changed


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
