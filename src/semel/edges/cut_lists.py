"""
Cut lists: notifications of which Alertmanager left alerts out, as its receiver has `max_alerts`.

What happens to an alert that is left out is told by nobody. That is no fault of the notification,
which is accepted; it is counted and logged here, and said in the reason of its verdict by the fold.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from semel import log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semel.config import Source
    from semel.model import Json

#: A source's cut lists are logged at most this often; the metrics count all of them.
LOG_SECONDS = 600.0


class CutLists:
    """Counts; any thread may."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._told: dict[str, float] = {}

    def note(self, source: Source, envelope: Mapping[str, Json]) -> None:
        """Count the notification of *envelope* where it left alerts out."""
        left = envelope.get("truncatedAlerts")
        if isinstance(left, bool) or not isinstance(left, int | float) or left <= 0:
            return
        now = time.monotonic()
        with self._lock:
            self._counts[source.name] = self._counts.get(source.name, 0) + 1
            is_due = now - self._told.get(source.name, -LOG_SECONDS) >= LOG_SECONDS
            if is_due:
                self._told[source.name] = now
        if is_due:
            log.event(
                "source.truncated", project=source.project, source=source.name, alerts=left
            )

    def read(self) -> dict[str, int]:
        """How many came to each source until now."""
        with self._lock:
            return dict(self._counts)


#: Of this process.
CUT_LISTS = CutLists()
