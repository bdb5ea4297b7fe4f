"""
Tally: what became of the operations that this process was asked for.

Plain numbers, counted by whoever executes operations and read by whoever shows them, such as
`semel.ops.ledger_metrics`. Nothing here knows of Prometheus, and nothing is ever taken back.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from dataclasses import dataclass
from typing import Literal, get_args

#: executed: SUCCEEDED by this very request; failed: FAILED, its writes undone; conflict: another
#: input, actor or operation; raced: nothing was kept, it may be sent again; refused: of the
#: caller's transaction. The others as the ledger calls them.
Outcome = Literal[
    "executed",
    "replayed",
    "failed",
    "conflict",
    "in_flight",
    "unknown",
    "gone",
    "legacy",
    "raced",
    "refused",
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
#: What the ledger's begin answers, as it is counted.
MET: dict[str, Outcome] = {
    "replay": "replayed",
    "mismatch": "conflict",
    "procedure": "conflict",
    "actor": "conflict",
    "foreign": "conflict",
    "version": "legacy",
    "legacy": "legacy",
    "in_flight": "in_flight",
    "unknown": "unknown",
    "gone": "gone",
    "written": "refused",
    "isolation": "refused",
}
#: Upper bounds of the seconds from begin to COMMIT; the last bucket has none.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of one moment."""

    outcomes: dict[Outcome, int]
    buckets: list[int]  # how many operations ended within each of BOUNDS, and later
    seconds: float  # in all


class Tally:
    """Counts; any thread may."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcomes = dict.fromkeys(OUTCOMES, 0)
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def count(self, outcome: Outcome) -> None:
        """One request that executed nothing."""
        with self._lock:
            self._outcomes[outcome] += 1

    def ended(self, outcome: Outcome, began: float) -> None:
        """One execution, which *began* at that `time.perf_counter()`."""
        seconds = time.perf_counter() - began
        with self._lock:
            self._outcomes[outcome] += 1
            self._buckets[bisect_left(BOUNDS, seconds)] += 1
            self._seconds += seconds

    def read(self) -> Reading:
        """The numbers now."""
        with self._lock:
            return Reading(dict(self._outcomes), list(self._buckets), self._seconds)


#: Of this process.
TALLY = Tally()
