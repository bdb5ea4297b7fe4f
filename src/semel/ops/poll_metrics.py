"""
Poll metrics: what the pollers of this process do, as they know it.

The database is not asked: a poller looks at its row every few seconds anyway. What it cannot know
while the database is away is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from semel.edges.poller.status import OUTCOMES, ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client import Metric

    from semel.edges.poller.status import Status

_NAMES = ("project", "source")


class PollMetrics(Collector):
    """Of every source that polls."""

    def __init__(self, statuses: Sequence[Status]) -> None:
        self._statuses = statuses

    def collect(self) -> Iterator[Metric]:
        """The numbers as they are now."""
        role = GaugeMetricFamily(
            "semel_poll_role",
            "1 for what this process is doing: polling, or why it is not.",
            labels=[*_NAMES, "role"],
        )
        asked = CounterMetricFamily(
            "semel_poll_requests",
            "Questions to the server, by how they ended.",
            labels=[*_NAMES, "outcome"],
        )
        updates = CounterMetricFamily(
            "semel_poll_updates", "Updates that this process committed.", labels=_NAMES
        )
        missing = CounterMetricFamily(
            "semel_poll_missing_ids",
            "Ids of updates that never came, of all processes.",
            labels=_NAMES,
        )
        restarts = CounterMetricFamily(
            "semel_poll_restarts", "How often the server's ids began anew.", labels=_NAMES
        )
        for status in self._statuses:
            names = [status.project, status.source]
            for each in ROLES:
                role.add_metric([*names, each], each == status.role)
            for outcome in OUTCOMES:
                asked.add_metric([*names, outcome], status.asked[outcome])
            updates.add_metric(names, status.updates)
            if status.missing is not None:
                missing.add_metric(names, status.missing)
            if status.restarts is not None:
                restarts.add_metric(names, status.restarts)
        yield from (role, asked, updates, missing, restarts)
