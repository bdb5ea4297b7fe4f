"""
Points: places in the worker at which a test may have something happen.

They are those of `semel.db.stops` that a worker passes. What happens there happens at once, in the
middle of whatever the worker does; then it goes on, unless it has crashed.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.db.stops import STOPS
from semel.runtime.hands import drive

if TYPE_CHECKING:
    from collections.abc import Callable

POINTS = tuple(name for name in STOPS if name.startswith("worker."))


@dataclass(slots=True)
class Point:
    """What is to happen at one place."""

    name: str
    act: Callable[[], Any]
    left: int  # passages until it does


class Points:
    """The places that a test has named."""

    def __init__(self) -> None:
        self._points: list[Point] = []
        self._failed: Exception | None = None

    def add(self, name: str, act: Callable[[], Any], nth: int) -> None:
        """
        Have *act* called at the *nth* passage from now, once.

        Raises:
            ValueError: there is no such place, or no such passage.
        """
        if name not in POINTS:
            raise ValueError(f"no worker passes {name!r}; it passes {', '.join(POINTS)}")
        if nth < 1:
            raise ValueError(f"nth is {nth}; the next passage is 1")
        self._points.append(Point(name, act, nth))

    def passed(self, name: str) -> None:
        """The worker passes *name*: let happen what is to happen there."""
        here = [point for point in self._points if point.name == name]
        for point in here:
            point.left -= 1
        due = [point for point in here if point.left == 0]
        for point in due:
            self._points.remove(point)
        for point in due:
            try:
                asked = point.act()
                if inspect.iscoroutine(asked):
                    drive(asked)
            except Exception as error:  # noqa: BLE001 - the test's own: no fault of the worker's
                self._failed = self._failed or error

    def settle(self) -> None:
        """
        The worker has stopped.

        Raises:
            Exception: what the first act that failed raised.
        """
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    @property
    def waiting(self) -> list[str]:
        """The places that were named and have not been passed as often."""
        return [point.name for point in self._points]
