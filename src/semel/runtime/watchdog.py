"""
Watchdog: a thread that trusts nobody to be quick, not even the heartbeat.

It asks nothing of the database, so no hung query or lock can keep it from its three duties: to
stop a handler whose lease may no longer be trusted, before another worker has the run; to end
the process when a handler that was told to stop does not; and to end it when a signal asked for
that and a handler that blocks the event loop lets nobody hear. Before it ends the process it gives
the other runs back, unharmed.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from semel import log
from semel.core import runs, workers
from semel.db.execute import run
from semel.db.pool import connect
from semel.runtime.held import boottime

if TYPE_CHECKING:
    from semel.config import Settings
    from semel.runtime.held import Held

TICK_SECONDS = 0.2
#: How long giving back may take before the process ends without it: half the time after which who
#: is silent loses its runs. A handler that holds the interpreter leaves little of it to us.
GIVE_BACK_SECONDS_MAX = 15.0
#: A drain that nobody began this long after it was asked for, and its own time, is overdue.
DEAF_SECONDS = 3.0
#: The exit status of a worker that a handler would not leave.
EXIT_STUCK = 70


class Watchdog:
    """Watches over *held*, and over the event loop's ears."""

    def __init__(self, settings: Settings, dsn: str, home: tuple[str, str], held: Held) -> None:
        self._settings = settings
        self._dsn = dsn
        self._home = home
        self._held = held
        self._asked_at: float | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="semel-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopping.set()

    def ask(self) -> None:
        """A signal asked this process to stop: somebody must hear it."""
        self._asked_at = self._asked_at or boottime()

    def heard(self) -> None:
        """The event loop is draining: nothing of it is overdue."""
        self._asked_at = None

    def _watch(self) -> None:
        hard_stop = self._settings.worker.hard_stop.total_seconds()
        deaf = DEAF_SECONDS + self._settings.worker.drain.total_seconds()
        while not self._stopping.wait(TICK_SECONDS):
            for attempt in self._held.lose(self._held.expired(boottime())):
                log.event(
                    "run.lost",
                    run=str(attempt.claim.run_id),
                    fence=attempt.claim.fence,
                    reason="its lease ran out before a beat was answered",
                )
            for attempt in self._held.stuck(hard_stop):
                log.event("run.stuck", run=str(attempt.claim.run_id), agent=attempt.claim.agent)
                self._end(EXIT_STUCK)
            if self._asked_at is not None and boottime() - self._asked_at > deaf:
                log.event("worker.deaf", worker=self._home[1])
                self._end(0)

    def _end(self, status: int) -> None:
        giver = threading.Thread(target=self._give_back, daemon=True)
        giver.start()
        giver.join(GIVE_BACK_SECONDS_MAX)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    def _give_back(self) -> None:
        with suppress(Exception), connect(self._dsn, name="semel-watchdog") as conn:
            for (project, worker), attempts in self._held.by_worker().items():
                kept = [a.key for a in attempts if not a.lost]
                run(conn, runs.run_release(project, worker, kept))
            run(conn, workers.worker_stop(*self._home))
