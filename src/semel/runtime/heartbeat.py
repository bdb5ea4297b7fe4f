"""
Heartbeat: a thread of its own, with a connection of its own, that says this process lives.

A handler that blocks the event loop does not stop it. It is the last thing to stop: it beats
while the worker drains. When the database does not answer, the worker pauses; the watchdog, which
waits for no answer, stops what can no longer be trusted.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from semel import log
from semel.core import workers
from semel.db.execute import run
from semel.db.pool import connect
from semel.runtime.held import boottime

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from semel.config import WorkerSettings
    from semel.core.workers import Asked
    from semel.runtime.held import Held

#: After a beat that failed, the next comes this soon.
RETRY_SECONDS = 1.0


class Heartbeat:
    """
    Beats for every (project, worker) that holds runs, and for the worker's own project.

    Args:
        home: The worker, in its own project.
        asked: Is told in this thread, by each beat at home, what an operator asks of it.
    """

    def __init__(
        self,
        dsn: str,
        home: tuple[str, str],
        held: Held,
        settings: WorkerSettings,
        *,
        prepare: bool,
        asked: Callable[[Asked], None],
    ) -> None:
        self._dsn = dsn
        self._home = home
        self._held = held
        self._settings = settings
        self._prepare = prepare
        self._asked = asked
        self._conn: psycopg.Connection[Any] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._beat_on, name="semel-heartbeat", daemon=True
        )
        self._last_ok = boottime()

    @property
    def paused(self) -> bool:
        """Whether the last answered beat is so old that nothing new may begin."""
        return boottime() - self._last_ok > self._settings.pause.total_seconds()

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Stop beating; returns when the thread has ended, or after two seconds."""
        self._stopping.set()
        self._thread.join(2.0)

    def _beat_on(self) -> None:
        interval = self._settings.heartbeat.total_seconds()
        wait = 0.0
        while not self._stopping.wait(wait):
            try:
                self._beat()
                wait = interval
            except Exception as error:  # noqa: BLE001 - whatever it was, the next beat must come
                log.event("worker.missed_beat", reason=type(error).__name__)
                self._close()
                wait = min(RETRY_SECONDS, interval)
        self._close()

    def _beat(self) -> None:
        began = boottime()
        if self._conn is None:
            self._conn = connect(self._dsn, name="semel-heartbeat", prepare=self._prepare)
        lease = self._settings.lease
        groups = self._held.by_worker()
        groups.setdefault(self._home, [])
        for (project, worker), attempts in groups.items():
            named = [h.key for h in attempts]
            lost = run(self._conn, workers.run_beat(project, worker, named, lease=lease))
            if (project, worker) == self._home:
                self._asked(lost.asked)
            # A beat renews only past half of the lease, so half is what it vouches for.
            kept = [h for h in attempts if h.key not in lost]
            self._held.trust(kept, began + lease.total_seconds() / 2)
            for attempt in self._held.lose(lost):
                log.event(
                    "run.lost",
                    run=str(attempt.claim.run_id),
                    fence=attempt.claim.fence,
                    reason="another worker has it, or it ended",
                )
        self._last_ok = began

    def _close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with suppress(Exception):
                conn.close()
