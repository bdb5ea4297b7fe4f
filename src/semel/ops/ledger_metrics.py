"""
Ledger metrics: `semel_operations_total` and `semel_operation_seconds` of this process.

Operations are executed in the process of whoever calls `once` or serves an adapter, so they are
shown there: register this with the registry that the process shows already.

    from prometheus_client import REGISTRY
    from semel.ops.ledger_metrics import Operations

    REGISTRY.register(Operations())
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from semel.edges.tally import BOUNDS, TALLY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

    from semel.edges.tally import Tally


class Operations(Collector):
    """Shows a tally, that of this process unless another is told."""

    def __init__(self, tally: Tally = TALLY) -> None:
        self._tally = tally

    def collect(self) -> Iterable[Metric]:
        """As Prometheus asks for it."""
        now = self._tally.read()
        counted = CounterMetricFamily(
            "semel_operations",
            "Requests for operations, by what became of them.",
            labels=["outcome"],
        )
        for outcome, count in now.outcomes.items():
            counted.add_metric([outcome], count)
        bounds = [*map(str, BOUNDS), "+Inf"]
        timed = HistogramMetricFamily(
            "semel_operation_seconds",
            "From an operation's claim to its COMMIT, of those that were executed.",
            buckets=list(zip(bounds, map(float, accumulate(now.buckets)), strict=True)),
            sum_value=now.seconds,
        )
        return [counted, timed]
