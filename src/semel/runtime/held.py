"""
Held: the runs this process has leased, shared by its event loop and its heartbeat thread.

Each attempt carries the moment until which its lease may be trusted, on this machine's own clock
that goes on while the machine sleeps. The database's clock never meets this one: trust is counted
from before the claim or beat was sent, so it ends here no later than there.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from semel.runtime.attempt import Attempt


def boottime() -> float:
    """Seconds on a clock that only goes forward, also while the machine is suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Held:
    """The runs this process holds, by (run, fence)."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._attempts: dict[tuple[UUID, int], Attempt] = {}

    def __len__(self) -> int:
        return len(self._attempts)

    def add(self, attempt: Attempt) -> None:
        """Hold one more."""
        with self._guard:
            self._attempts[attempt.key] = attempt

    def drop(self, attempt: Attempt) -> None:
        """Let one go, whatever became of it."""
        with self._guard:
            self._attempts.pop(attempt.key, None)

    def all(self) -> list[Attempt]:
        """What is held now."""
        with self._guard:
            return list(self._attempts.values())

    def by_worker(self) -> dict[tuple[str, str], list[Attempt]]:
        """What is held, under each (project, worker) that must beat for it."""
        groups: dict[tuple[str, str], list[Attempt]] = {}
        for attempt in self.all():
            groups.setdefault((attempt.claim.project, attempt.claim.worker), []).append(attempt)
        return groups

    def trust(self, attempts: Iterable[Attempt], until: float) -> None:
        """A beat was answered: these may be trusted until then."""
        with self._guard:
            for attempt in attempts:
                attempt.trusted_until = max(attempt.trusted_until, until)

    def lose(self, keys: Iterable[tuple[UUID, int]]) -> list[Attempt]:
        """These are ours no longer: stop their handlers. Answers those that were not known lost."""
        with self._guard:
            found = [self._attempts[key] for key in keys if key in self._attempts]
            lost = [attempt for attempt in found if not attempt.lost]
            for attempt in lost:
                attempt.lost_at = boottime()
        for attempt in lost:
            attempt.stop()
        return lost

    def stuck(self, seconds: float) -> list[Attempt]:
        """Those whose handlers were told to stop that long ago, and have not."""
        now = boottime()
        return [h for h in self.all() if h.lost_at is not None and now - h.lost_at > seconds]

    def expired(self, now: float) -> list[tuple[UUID, int]]:
        """The (run, fence) pairs whose lease may no longer be trusted."""
        return [h.key for h in self.all() if h.trusted_until <= now and not h.lost]
