"""
Pace: how long nobody asks a server again that did not answer.

It doubles with each failure in a row, up to a minute, and is spread, so that no outage ends in
everybody's asking at once. What the server says itself is obeyed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semel.core.polls import State

#: The first pause, in seconds. A webhook, a second poller or a token is a person's to mend.
FIRST: dict[State, float] = {
    "webhook": 5.0,
    "conflict": 5.0,
    "refused": 10.0,
    "throttled": 5.0,
    "failing": 1.0,
    "elsewhere": 10.0,
}
MOST = 60.0
_DOUBLINGS_MAX = 10


@dataclass(frozen=True, slots=True)
class Pace:
    """Pauses, each *scale* times as long as they should be; for tests."""

    scale: float = 1.0

    def pause(self, state: State, failures: int, asked: float | None = None) -> timedelta:
        """
        Until somebody asks again.

        Args:
            state: What is wrong.
            failures: In a row before this one.
            asked: Seconds that the server asks for: it is never less.
        """
        own = min(FIRST.get(state, 1.0) * 2 ** min(failures, _DOUBLINGS_MAX), MOST)
        spread = own * self.scale * (0.5 + 0.5 * random.random())  # noqa: S311 - jitter
        if asked is None:
            return timedelta(seconds=spread)
        return timedelta(seconds=asked + min(spread, 1.0))
