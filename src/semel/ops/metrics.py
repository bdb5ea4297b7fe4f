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
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from semel.core import reads
from semel.db.execute import arun
from semel.errors import SemelError

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool
    from starlette.requests import Request

#: A reading of the database stands this long.
CACHE_SECONDS = 5.0
#: A look at the metrics waits no longer than this for the database.
READ_SECONDS_MAX = 2.0

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class _Found(NamedTuple):
    """One reading of the database."""

    runs: list[tuple[str, str, int]]
    oldest: list[tuple[str, float]]
    schema: int


class Metrics:
    """The metrics of one server process, in a registry of their own."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool
        self._turn = asyncio.Lock()
        self._read_at = float("-inf")
        self._asking: asyncio.Task[_Found | None] | None = None  # at most one: it may hang
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._events = Counter(
            "semel_events",
            "Events received, by what became of them.",
            ["source", "outcome"],
            registry=self.registry,
        )
        self._counted: dict[tuple[str, str], Counter] = {}  # as many as sources and outcomes
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

    def observe(self, source: str, outcome: str, seconds: float) -> None:
        """Count one event of a delivery and time its answer."""
        counted = self._counted.get((source, outcome))
        if counted is None:  # to look a counter up costs more than to count
            counted = self._counted[source, outcome] = self._events.labels(source, outcome)
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
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        await asyncio.wait({self._asking}, timeout=READ_SECONDS_MAX)
        found = None
        if self._asking.done():
            found, self._asking = self._asking.result(), None
        self._up.set(0 if found is None else 1)
        self._schema.set(0 if found is None else found.schema)
        if found is None:
            return
        for agent, status, count in found.runs:
            self._runs.labels(agent, status).set(count)
        for agent, seconds in found.oldest:
            self._oldest.labels(agent).set(seconds)

    async def _ask(self) -> _Found | None:
        """What the database says; None while it is away."""
        try:
            async with self._pool.connection() as conn:
                return _Found(
                    await arun(conn, reads.live_runs()),
                    await arun(conn, reads.oldest_ready()),
                    await arun(conn, reads.schema_version()),
                )
        except (psycopg.Error, SemelError):
            return None
