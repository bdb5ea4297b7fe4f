"""
Ticker: the part of upkeep that fires schedules, in a thread and on a connection of its own.

    how long until the next? ──> wait ──> which are due? ──> their ticks ──> fire, a batch at a time

It sleeps until the next tick of any project, and looks every few seconds whether another one has
come nearer; so 10,000 schedules that are not due cost one statement in that time. Any number of
them may run: whoever is second at a tick is told so by SQL, and a process that dies in between
leaves the tick to another, or to itself.
"""

from __future__ import annotations

import threading
from collections import Counter
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from semel import log
from semel.core import agents, schedules
from semel.db.execute import run
from semel.db.stops import stop_here
from semel.errors import SemelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime, timedelta

    import psycopg

    from semel.core.schedules import Due, Fired

#: The longest and the shortest time from one look to the next.
LOOK_SECONDS = 2.5
LOOK_SECONDS_MIN = 0.5
#: Schedules that one transaction fires.
BATCH = 100
#: Looks at one moment: what comes after is left to the next.
ROUNDS_MAX = 1000


class Ticker:
    """
    Fires the schedules of every project until stopped.

    Args:
        connect: Makes a connection in autocommit.
        memory: How long a run's key is remembered.
        wake: Whether idle workers are told; not through a pooler.
    """

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]],
        *,
        memory: timedelta,
        wake: bool,
    ) -> None:
        self._connect = connect
        self._memory = memory
        self._wake = wake
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="semel-ticker", daemon=True)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End after the look that is under way."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        conn: psycopg.Connection[Any] | None = None
        while not self._stopping.is_set():
            pause = LOOK_SECONDS
            try:
                if conn is None or conn.closed:
                    conn = self._connect()
                pause = self.look(conn)
            except Exception as error:  # noqa: BLE001 - it outlives whatever the database says
                log.event("upkeep.failed", reason=f"{type(error).__name__}: {error}"[:300])
                if conn is not None:
                    conn.close()
            self._stopping.wait(pause)
        if conn is not None:
            conn.close()

    def look(self, conn: psycopg.Connection[Any]) -> float:
        """Fire what is due; answers the seconds until the next look."""
        until = run(conn, schedules.schedule_next())
        if until is not None and until.total_seconds() <= 0:
            self.fire(conn, rounds=ROUNDS_MAX)
            until = run(conn, schedules.schedule_next())
        wanted = LOOK_SECONDS if until is None else until.total_seconds()
        return min(LOOK_SECONDS, max(LOOK_SECONDS_MIN, wanted))

    def fire(
        self, conn: psycopg.Connection[Any], *, now: datetime | None = None, rounds: int
    ) -> Counter[str]:
        """
        Fire what is due, in *rounds* looks at most; answers how many ticks came to what.

        Args:
            now: For tests: the moment to fire by.
        """
        done: Counter[str] = Counter()
        for _ in range(rounds):
            if self._stopping.is_set():
                break
            due = run(conn, schedules.schedule_due(now=now))
            if not due:
                break
            here: Counter[str] = Counter()
            for project, some in groupby(due, key=lambda one: one.project):
                for batch in _batches(some):
                    here.update(self._batch(conn, project, batch, now))
            done.update(here)
            if here["lost"] >= len(due):
                break  # all of them are another's, or fail
        return done

    def _batch(
        self,
        conn: psycopg.Connection[Any],
        project: str,
        batch: Sequence[Due],
        now: datetime | None,
    ) -> Counter[str]:
        """One transaction; what fails in it is tried one by one, so that the others go on."""
        try:
            fired = self._fire(conn, project, batch, now)
        except Exception as error:
            if conn.closed:
                raise
            if len(batch) > 1:
                tried = (self._batch(conn, project, [one], now) for one in batch)
                return sum(tried, Counter())
            said = str(error).partition("\n")[0]
            if not isinstance(error, SemelError):
                said = f"{type(error).__name__}: {said}"
            _failed(project, batch[0].schedule, said)
            return Counter(lost=1)
        return Counter(one.outcome for one in fired)

    def _fire(
        self,
        conn: psycopg.Connection[Any],
        project: str,
        batch: Sequence[Due],
        now: datetime | None,
    ) -> list[Fired]:
        plans = [schedules.look(due) for due in batch]
        stop_here("upkeep.fire.before")
        fired = run(conn, schedules.schedule_fire(project, plans, memory=self._memory, now=now))
        stop_here("upkeep.fire.after")
        for plan in plans:
            if "error" in plan:
                _failed(project, plan["schedule"], plan["error"])
            elif plan["missed"]:
                log.event(
                    "schedule.missed",
                    project=project,
                    schedule=plan["schedule"],
                    ticks=plan["missed"],
                )
        for one in fired:
            if one.outcome != "lost":
                log.event(
                    "schedule.fired",
                    project=project,
                    schedule=one.schedule,
                    tick=one.tick_at,
                    outcome=one.outcome,
                    run=one.run_id,
                )
        woken = sorted({str(one.agent) for one in fired if one.outcome == "fired"})
        if woken and self._wake:
            run(conn, agents.agent_wake(woken))
        return fired


def _failed(project: str, schedule: str, reason: str) -> None:
    log.event("schedule.failed", project=project, schedule=schedule, reason=reason)


def _batches(some: Iterable[Due]) -> Iterator[list[Due]]:
    rest = iter(some)
    while batch := list(islice(rest, BATCH)):
        yield batch
