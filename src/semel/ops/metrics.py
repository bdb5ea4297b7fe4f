"""
Metrics: /metrics in the Prometheus text format.

What this process did is counted as it happens. What the database holds is read when somebody
looks, at most every few seconds however many look, and left out while the database is away: an
old number would be believed.
"""

from __future__ import annotations

import asyncio
import platform
import time
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import psycopg
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from semel.core import alert_polls, figures, health, reads, sources, tools
from semel.core.batches import count_open
from semel.core.schedule_reads import schedule_figures
from semel.db.execute import arun
from semel.errors import SemelError
from semel.ops.alert_metrics import AlertMetrics
from semel.ops.ledger_metrics import Operations
from semel.ops.schedule_metrics import ScheduleMetrics
from semel.ops.source_metrics import SourceMetrics
from semel.ops.tool_metrics import ToolMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from psycopg_pool import AsyncConnectionPool
    from starlette.requests import Request

    from semel.config import Source
    from semel.core.schedule_reads import Figures
    from semel.core.sources import Silence

#: A reading of the database stands this long.
CACHE_SECONDS = 5.0
#: A look at the metrics waits no longer than this for the database.
READ_SECONDS_MAX = 2.0

#: A commit may show itself this long after the moment it carries.
LATE_SECONDS = 60.0
STATES = ("PENDING", "APPROVED", "REJECTED", "EXPIRED", "VOID")

_WAITS = (
    1.0,
    5.0,
    15.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    900.0,
    1800.0,
    3600.0,
    14400.0,
    86400.0,
)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


T = TypeVar("T")


class _Found(NamedTuple):
    """One reading of the database."""

    runs: list[tuple[str, str, int]]
    oldest: list[tuple[str, float]]
    schema: int
    asked_at: float
    approvals: list[tuple[str, int]]
    decided: list[tuple[Any, float]]
    undone: list[tuple[Any, str]]
    unserved: list[tuple[str, str, int]]
    silences: list[Silence]
    schedules: Figures
    alerts: list[tuple[str, str, int]]
    polls: list[alert_polls.Poll]
    tools: tools.Figures
    batches: int


class Metrics:
    """
    The metrics of one server process, in a registry of their own.

    Args:
        dead_after: A worker that was silent for so long is dead.
        sources: Those that this process serves.
    """

    def __init__(
        self,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        *,
        dead_after: timedelta,
        sources: Iterable[Source] = (),
    ) -> None:
        self._pool = pool
        self._dead_after = dead_after
        self._turn = asyncio.Lock()
        self._read_at = float("-inf")
        self._asked_at = time.monotonic()  # what ended before this is counted, but for the late
        self._late = 0.0
        self._seen: dict[Any, float] = {}  # when, of what may still be seen again
        self._asking: asyncio.Task[_Found | None] | None = None  # at most one: it may hang
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(Operations())
        self._events = Counter(
            "semel_events",
            "Events received, by what became of them.",
            ["source", "outcome"],
            registry=self.registry,
        )
        self._counted: dict[tuple[str, str], Counter] = {}  # as many as sources and outcomes
        self._sources = SourceMetrics(sources, self.registry)
        self._schedules = ScheduleMetrics(self.registry)
        self._batches = Gauge(
            "semel_batches_open", "Batches that are not complete.", registry=self.registry
        )
        self._alerts = AlertMetrics(self.registry)
        self._tools = ToolMetrics(self.registry)
        self.observe_secret = self._sources.observe_secret
        for source in self._sources.names:  # a rate needs the 0 before the first
            for outcome in ("refused", "quarantined"):
                self._events.labels(source, outcome)
        self._ingest = Histogram(
            "semel_ingest_seconds",
            "From the headers of a delivery to its answer.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._runs = Gauge(
            "semel_runs", "Live runs.", ["agent", "status"], registry=self.registry
        )
        self._oldest = Gauge(
            "semel_run_oldest_ready_seconds",
            "How long the oldest claimable run waits.",
            ["agent"],
            registry=self.registry,
        )
        self._unserved = Gauge(
            "semel_runs_unserved",
            "Runs that wait and that no live worker knows: their agent, or the version of its code"
            " that began them.",
            ["agent", "version"],
            registry=self.registry,
        )
        self._approvals = Gauge(
            "semel_approvals",
            "Approvals that are kept, by what became of them.",
            ["state"],
            registry=self.registry,
        )
        self._approval_wait = Histogram(
            "semel_approval_wait_seconds",
            "From an approval's question to its decision, of those since this process began.",
            buckets=_WAITS,
            registry=self.registry,
        )
        self._compensations = Counter(
            "semel_compensations",
            "Compensating runs that ended since this process began, by how.",
            ["outcome"],
            registry=self.registry,
        )
        for status in ("COMPLETED", "FAILED", "CANCELLED"):
            self._compensations.labels(status)
        self._up = Gauge(
            "semel_database_up", "1 while the database answers.", registry=self.registry
        )
        self._schema = Gauge(
            "semel_schema_version",
            "The last table file the database has; 0 while it is away.",
            registry=self.registry,
        )
        Gauge(
            "semel_build_info",
            "Always 1.",
            ["version", "python"],
            registry=self.registry,
        ).labels(version("semel"), platform.python_version()).set(1)

    def observe(self, source: Source, outcome: str, seconds: float) -> None:
        """Count one event of a delivery and time its answer."""
        name = (source.name, outcome)
        counted = self._counted.get(name)
        if counted is None:  # to look a counter up costs more than to count
            counted = self._counted[name] = self._events.labels(*name)
        counted.inc()
        self._ingest.observe(seconds)

    async def answer(self, _request: Request) -> Response:
        """Everything, as text; without the database's part while it is away."""
        async with self._turn:
            if time.monotonic() - self._read_at >= CACHE_SECONDS:
                await self._read()
                self._read_at = time.monotonic()
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)

    async def _read(self) -> None:
        self._runs.clear()
        self._oldest.clear()
        self._unserved.clear()
        self._approvals.clear()
        self._sources.show(())
        self._schedules.show(None)
        self._alerts.clear()
        self._tools.clear()
        self._batches.set(float("nan"))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        await asyncio.wait({self._asking}, timeout=READ_SECONDS_MAX)
        found = None
        if self._asking.done():
            found, self._asking = self._asking.result(), None
        self._up.set(0 if found is None else 1)
        self._schema.set(0 if found is None else found.schema)
        if found is not None:
            self._show(found)

    def _show(self, found: _Found) -> None:
        for agent, status, count in found.runs:
            self._runs.labels(agent, status).set(count)
        for agent, seconds in found.oldest:
            self._oldest.labels(agent).set(seconds)
        for agent, began, count in found.unserved:
            self._unserved.labels(agent, began).set(count)
        self._batches.set(found.batches)
        self._sources.show(found.silences)
        self._schedules.show(found.schedules)
        self._alerts.show(found.alerts, found.polls)
        ended = self._new(found.tools.ended, found.asked_at)
        self._tools.show(found.tools.open, [told for _, told in ended])
        for state in STATES:
            self._approvals.labels(state).set(0)
        for state, count in found.approvals:
            self._approvals.labels(state).set(count)
        for _, seconds in self._new(found.decided, found.asked_at):
            self._approval_wait.observe(seconds)
        for _, status in self._new(found.undone, found.asked_at):
            self._compensations.labels(status).inc()
        self._asked_at, self._late = found.asked_at, LATE_SECONDS
        forgotten = found.asked_at - 2 * LATE_SECONDS
        self._seen = {name: at for name, at in self._seen.items() if at > forgotten}

    def _new(self, ended: list[tuple[Any, T]], asked_at: float) -> list[tuple[Any, T]]:
        """Those of *ended* that were not counted before."""
        new = [one for one in ended if one[0] not in self._seen]
        self._seen.update((name, asked_at) for name, _ in new)
        return new

    async def _ask(self) -> _Found | None:
        """What the database says; None while it is away."""
        now = time.monotonic()
        within = timedelta(seconds=now - self._asked_at + self._late)
        try:
            async with self._pool.connection() as conn:
                return _Found(
                    await arun(conn, reads.live_runs()),
                    await arun(conn, reads.oldest_ready()),
                    await arun(conn, reads.schema_version()),
                    now,
                    await arun(conn, figures.approvals_by_state()),
                    await arun(conn, figures.decided_approvals(within)),
                    await arun(conn, figures.ended_undos(within)),
                    await arun(conn, health.unserved_agents(self._dead_after)),
                    await arun(conn, sources.silences()),
                    await arun(conn, schedule_figures()),
                    await arun(conn, alert_polls.alerts_by_state()),
                    await arun(conn, alert_polls.list_polls()),
                    tools=await arun(conn, tools.tool_figures(within)),
                    batches=await arun(conn, count_open()),
                )
        except (psycopg.Error, SemelError):
            return None
