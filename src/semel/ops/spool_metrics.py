"""
Spool metrics: what is on this ingress's disk, and what became of what was.

Read from the spool of this very process whenever somebody looks; the database is not asked.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

    from semel.edges.spool import Spool


class SpoolMetrics(Collector):
    """Shows *spool*."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def collect(self) -> Iterable[Metric]:
        """As Prometheus asks for it."""
        folder, now = self._spool.folder, time.time()
        waiting = GaugeMetricFamily(
            "semel_spool_records", "Arrivals on this disk, not drained.", labels=["source"]
        )
        oldest = GaugeMetricFamily(
            "semel_spool_oldest_seconds", "Age of the oldest of them.", labels=["source"]
        )
        for queue in folder.queues():
            waiting.add_metric([queue.source], queue.count)
            came = queue.oldest_at
            oldest.add_metric([queue.source], 0.0 if came is None else max(0.0, now - came))
        drained = CounterMetricFamily(
            "semel_spool_drained",
            "Events that came into the inbox from this disk, by their verdict.",
            labels=["source", "outcome"],
        )
        for (source, verdict), count in self._spool.drain.drained.items():
            drained.add_metric([source, verdict], count)
        refused = CounterMetricFamily(
            "semel_spool_refused",
            "Arrivals that neither the database nor this disk took.",
            labels=["source"],
        )
        for source, count in folder.refused.items():
            refused.add_metric([source], count)
        return [
            waiting,
            oldest,
            drained,
            refused,
            GaugeMetricFamily("semel_spool_bytes", "Bytes of its files.", folder.bytes),
            GaugeMetricFamily(
                "semel_spool_bytes_max", "How many there may be.", folder.bound.bytes_max
            ),
            GaugeMetricFamily(
                "semel_spool_damaged",
                "Pieces of it that could not be read since the start; each is kept as a file.",
                folder.damaged,
            ),
        ]
