"""
Held: the runs this process has leased, shared by its event loop and its heartbeat thread.

Each carries the moment until which its lease may be trusted, on this machine's own clock that
goes on while the machine sleeps. The database's clock never meets this one: trust is counted
from before the claim or beat was sent, so it ends here no later than there.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from semel.model import Claim


def boottime() -> float:
    """Seconds on a clock that only goes forward, also while the machine is suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


@dataclass(slots=True)
class Holding:
    """One leased run, and how to stop its handler."""

    claim: Claim
    stop: Callable[[], None]  # from any thread, more than once
    trusted_until: float
    lost_at: float | None = None  # when its handler was told to stop

    @property
    def lost(self) -> bool:
        """Whether it is ours no longer, though its handler may not have stopped yet."""
        return self.lost_at is not None

    @property
    def key(self) -> tuple[UUID, int]:
        """(run, fence): the same run claimed again is another holding."""
        return self.claim.run_id, self.claim.fence


class Held:
    """The runs this process holds, by (run, fence)."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._holdings: dict[tuple[UUID, int], Holding] = {}

    def __len__(self) -> int:
        return len(self._holdings)

    def add(self, holding: Holding) -> None:
        """Hold one more."""
        with self._guard:
            self._holdings[holding.key] = holding

    def drop(self, holding: Holding) -> None:
        """Let one go, whatever became of it."""
        with self._guard:
            self._holdings.pop(holding.key, None)

    def all(self) -> list[Holding]:
        """What is held now."""
        with self._guard:
            return list(self._holdings.values())

    def by_worker(self) -> dict[tuple[str, str], list[Holding]]:
        """What is held, under each (project, worker) that must beat for it."""
        groups: dict[tuple[str, str], list[Holding]] = {}
        for holding in self.all():
            groups.setdefault((holding.claim.project, holding.claim.worker), []).append(holding)
        return groups

    def trust(self, holdings: Iterable[Holding], until: float) -> None:
        """A beat was answered: these may be trusted until then."""
        with self._guard:
            for holding in holdings:
                holding.trusted_until = max(holding.trusted_until, until)

    def lose(self, keys: Iterable[tuple[UUID, int]]) -> list[Holding]:
        """These are ours no longer: stop their handlers. Answers those that were not known lost."""
        with self._guard:
            found = [self._holdings[key] for key in keys if key in self._holdings]
            lost = [holding for holding in found if not holding.lost]
            for holding in lost:
                holding.lost_at = boottime()
        for holding in lost:
            holding.stop()
        return lost

    def stuck(self, seconds: float) -> list[Holding]:
        """Those whose handlers were told to stop that long ago, and have not."""
        now = boottime()
        return [h for h in self.all() if h.lost_at is not None and now - h.lost_at > seconds]

    def expired(self, now: float) -> list[tuple[UUID, int]]:
        """The (run, fence) pairs whose lease may no longer be trusted."""
        return [h.key for h in self.all() if h.trusted_until <= now and not h.lost]
