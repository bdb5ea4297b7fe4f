"""Clock: the time of a test's world, which goes on only when the test says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

#: When a world begins, unless its test says otherwise: a Thursday.
BEGINNING = datetime(2026, 1, 1, 9, tzinfo=UTC)
NO_TIME = timedelta(0)


class Clock:
    """
    A clock that is set by hand; call it for the moment it shows.

    Args:
        now: What it shows at first.
    """

    def __init__(self, now: datetime = BEGINNING) -> None:
        if now.tzinfo is None:
            raise ValueError(f"{now} has no time zone; write datetime(..., tzinfo=UTC)")
        self.now = now

    def __call__(self) -> datetime:
        """What it shows."""
        return self.now

    def advance(self, by: timedelta = NO_TIME, /, **parts: float) -> datetime:
        """
        Let time go by, as in `advance(minutes=15)`; answers what it shows then.

        Args:
            parts: Those of timedelta: weeks, days, hours, minutes, seconds, milliseconds.

        Raises:
            ValueError: that is less than nothing.
        """
        whole = by + timedelta(**parts)
        if whole < NO_TIME:
            raise ValueError(f"time does not go back: {whole}")
        self.now += whole
        return self.now
