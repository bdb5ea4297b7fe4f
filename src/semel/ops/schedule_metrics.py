"""Schedule metrics: how many schedules there are, how late they are, what became of their ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge

if TYPE_CHECKING:
    from semel.core.schedule_reads import Figures

OUTCOMES = ("fired", "missed", "skipped")


class ScheduleMetrics:
    """Shows what was read of the database; nothing while it is away."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._before: dict[str, int] | None = None
        self._schedules = Gauge(
            "semel_schedules",
            "Schedules; failing ones are active, and their ticks cannot be worked out.",
            ["state"],
            registry=registry,
        )
        self._late = Gauge(
            "semel_schedule_late_seconds",
            "How long the schedule that is most overdue waits to be fired.",
            registry=registry,
        )
        self._ticks = Counter(
            "semel_schedule_ticks",
            "Ticks since this process began: fired, missed (passed over by the schedule's policy)"
            " or skipped (the run before was live).",
            ["outcome"],
            registry=registry,
        )
        for outcome in OUTCOMES:
            self._ticks.labels(outcome)

    def show(self, figures: Figures | None) -> None:
        """Show *figures*; None: the database is away."""
        self._schedules.clear()
        if figures is None:
            self._late.set(float("nan"))
            return
        for state in ("active", "paused", "withdrawn", "failing"):
            self._schedules.labels(state).set(getattr(figures, state))
        self._late.set(figures.late_seconds)
        now = {outcome: int(getattr(figures, outcome)) for outcome in OUTCOMES}
        before, self._before = self._before or now, now
        for outcome in OUTCOMES:
            # A schedule that was deleted takes its count with it.
            self._ticks.labels(outcome).inc(max(0, now[outcome] - before[outcome]))
