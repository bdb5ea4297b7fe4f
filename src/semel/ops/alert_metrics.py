"""
Alert metrics: what is known of Alertmanager's alerts, and how the polls of its API do.

Read from the database with everything else that is, but for the cut lists, which this process met.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge

from semel.edges.cut_lists import CUT_LISTS

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from semel.core.alert_polls import Poll


class AlertMetrics:
    """The gauges, in a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._alerts = Gauge(
            "semel_alerts",
            "Alerts that are open, and those whose episode was closed as nobody spoke of it.",
            ["source", "state"],
            registry=registry,
        )
        self._up = Gauge(
            "semel_alert_poll_up",
            "1: the last poll of the source's Alertmanager was answered.",
            ["source"],
            registry=registry,
        )
        self._age = Gauge(
            "semel_alert_poll_age_seconds",
            "Since Alertmanager's API last answered.",
            ["source"],
            registry=registry,
        )
        self._untold = Gauge(
            "semel_alert_poll_untold",
            "Changes that a poll found and no notification had told, by what they were.",
            ["source", "change"],
            registry=registry,
        )

        self._cut = Counter(
            "semel_alerts_truncated",
            "Notifications of which Alertmanager left alerts out (max_alerts).",
            ["source"],
            registry=registry,
        )
        self._counted: dict[str, int] = {}

    def clear(self) -> None:
        """Show nothing of the database: an old number would be believed."""
        for source, count in CUT_LISTS.read().items():
            self._cut.labels(source).inc(count - self._counted.get(source, 0))
            self._counted[source] = count
        for each in (self._alerts, self._up, self._age, self._untold):
            each.clear()

    def show(self, alerts: list[tuple[str, str, int]], polls: list[Poll]) -> None:
        """One reading of the database; sources of one name are shown together."""
        for source, state, count in alerts:
            self._alerts.labels(source, state).set(count)
        for poll in polls:
            self._up.labels(poll.source).set(poll.fault is None and poll.silent is not None)
            if poll.silent is not None:
                self._age.labels(poll.source).set(poll.silent)
            self._untold.labels(poll.source, "firing").set(poll.found)
            self._untold.labels(poll.source, "resolved").set(poll.ended)
