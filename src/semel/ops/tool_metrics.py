"""
Tool metrics: the calls that go on, and how those ended whose callers were told.

Read from the database with everything else that is; servers are as many as the settings name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry

_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)


class ToolMetrics:
    """The figures, in a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._open = Gauge(
            "semel_tool_calls_open",
            "Calls of tools that go on: asked and not sent yet, or sent.",
            ["server", "state"],
            registry=registry,
        )
        self._ended = Counter(
            "semel_tool_calls",
            "Calls whose callers were told since this process began, by how they ended.",
            ["server", "outcome"],
            registry=registry,
        )
        self._seconds = Histogram(
            "semel_tool_seconds",
            "From a call's asking to its caller being told.",
            ["server"],
            buckets=_SECONDS,
            registry=registry,
        )

    def clear(self) -> None:
        """The database is away: an old number would be believed."""
        self._open.clear()

    def show(
        self, going: Iterable[tuple[str, str, int]], ended: Iterable[tuple[str, str, float]]
    ) -> None:
        """What the database says now; *ended* are those that were not shown before."""
        for server, state, count in going:
            self._open.labels(server, state).set(count)
        for server, state, seconds in ended:
            self._ended.labels(server, state).inc()
            self._seconds.labels(server).observe(seconds)
