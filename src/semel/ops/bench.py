"""
Bench: how fast this database is for us, with runs of our own that leave nothing behind.

A scratch project and an agent that nobody else has; other projects' rows are neither read nor
written, though they share the machine. One process is client and worker at once, so these are
figures to compare with each other, before and after a change; `make bench` compares with peers.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from psycopg import sql

from semel.core import runs
from semel.db.execute import arun
from semel.db.pool import aconnect, pool
from semel.edges.acceptor import Acceptor
from semel.errors import BadRequest
from semel.model import Offer
from semel.runtime.app import App
from semel.runtime.start import start, wake
from semel.runtime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import psycopg

    from semel.config import Settings
    from semel.runtime.handlers import Run

CALLERS = 8
SECONDS = 1.5
DRAIN_RUNS = 5_000
DRAIN_SECONDS_MAX = 60.0
PACED_RUNS = 100
PACE_SECONDS = 0.02
PAYLOAD = {"kind": 1, "message": "somebody has to look at this, and it had better be soon"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the answer."""

    name: str
    value: float
    unit: str


class Bench:
    """One measurement of the database at *dsn*, in *project*, which it leaves full."""

    def __init__(self, settings: Settings, dsn: str, project: str) -> None:
        self._settings = replace(settings, project=project)
        self._dsn = dsn
        self._project = project
        self._agent = project
        self._handled: dict[int, float] = {}  # when each run's handler began

    async def measure(self) -> list[Figure]:
        """Ingest, drain and latency, one after the other."""
        return [*await self._start(), *await self._accept(), *await self._work()]

    async def _start(self) -> list[Figure]:
        async with AsyncExitStack() as stack:
            conns = [
                await stack.enter_async_context(await aconnect(self._dsn))
                for _ in range(CALLERS)
            ]

            async def call(caller: int, number: int) -> None:
                conn, told = conns[caller], self._input(number)
                started = start(conn, project=self._project, agent=self._agent, input=told)
                await cast("Awaitable[Any]", started)

            return await _pressed("start", call)

    async def _accept(self) -> list[Figure]:
        async with pool(self._dsn, size=4, prepare=not self._settings.pooler) as lent:
            acceptor = Acceptor(lent)

            async def call(caller: int, number: int) -> None:
                offer = Offer(
                    source="bench",
                    channel="api",
                    id=f"{caller}-{number}",
                    agent=self._agent,
                    input=self._input(number),
                )
                await acceptor.accept(self._project, [offer])

            return await _pressed("accept", call)

    async def _work(self) -> list[Figure]:
        app = App()

        @app.agent(self._agent)
        async def noop(run: Run) -> None:
            self._handled[run.input["n"]] = time.perf_counter()

        worker = Worker(app, self._settings, target="", dsn=self._dsn)
        async with await aconnect(self._dsn) as conn:
            await self._fill(conn)
            working = asyncio.create_task(worker.run())
            try:
                return [await self._drain(conn), *await self._pace(conn)]
            finally:
                worker.stop()
                await working

    async def _fill(self, conn: psycopg.AsyncConnection[Any]) -> None:
        async with conn.transaction():
            await conn.execute(
                "select count(s.run_id) from generate_series(1, %s) as n, lateral"
                " semel.run_start(%s, %s, jsonb_build_object('n', -n)::text) as s",
                (DRAIN_RUNS, self._project, self._agent),
            )

    async def _drain(self, conn: psycopg.AsyncConnection[Any]) -> Figure:
        before = await self._left(conn)
        began = time.perf_counter()
        while left := await self._left(conn):
            if time.perf_counter() - began > DRAIN_SECONDS_MAX:
                break  # a rate all the same
            await asyncio.sleep(0.05)
        return Figure("drain", (before - left) / (time.perf_counter() - began), "runs/s")

    async def _left(self, conn: psycopg.AsyncConnection[Any]) -> int:
        asked = await conn.execute(
            "select count(*) from semel.runs where project_id = %s and finished_at is null",
            (self._project,),
        )
        return int((await asked.fetchall())[0][0])

    async def _pace(self, conn: psycopg.AsyncConnection[Any]) -> list[Figure]:
        committed = {}
        for number in range(1_000_000, 1_000_000 + PACED_RUNS):
            # What `start` does, with a look at the clock before it rings for the workers.
            await arun(conn, runs.run_start(self._project, self._agent, self._input(number)))
            committed[number] = time.perf_counter()
            await cast("Awaitable[None]", wake(conn, self._agent))
            await asyncio.sleep(PACE_SECONDS)
        deadline = time.perf_counter() + DRAIN_SECONDS_MAX
        while committed.keys() - self._handled.keys() and time.perf_counter() < deadline:  # noqa: ASYNC110 - a handler that never comes must not hold us
            await asyncio.sleep(0.01)
        waits = [self._handled[n] - at for n, at in committed.items() if n in self._handled]
        return _latencies("pick-up", waits)

    def _input(self, number: int) -> dict[str, Any]:
        return {"n": number, "p": PAYLOAD}


async def _pressed(name: str, call: Callable[[int, int], Awaitable[None]]) -> list[Figure]:
    """CALLERS callers, one call after the other for SECONDS."""
    took: list[float] = []

    async def caller(number: int) -> None:
        calls = 0
        while (began := time.perf_counter()) < until:
            await call(number, calls)
            took.append(time.perf_counter() - began)
            calls += 1

    began = time.perf_counter()
    until = began + SECONDS
    await asyncio.gather(*map(caller, range(CALLERS)))
    rate = len(took) / (time.perf_counter() - began)
    return [Figure(name, rate, "runs/s"), *_latencies(name, took)]


def _latencies(name: str, seconds: Sequence[float]) -> list[Figure]:
    ranked = sorted(seconds) or [float("nan")]
    return [
        Figure(f"{name} p{share}", ranked[len(ranked) * share // 100] * 1e3, "ms")
        for share in (50, 99)
    ]


def bench(settings: Settings, dsn: str, conn: psycopg.Connection[Any]) -> list[Figure]:
    """
    Measure, and remove what that made.

    Raises:
        BadRequest: the role of *conn* may not delete, so that its runs would stay.
    """
    tables = _tables(conn)
    for table in tables:
        asked = conn.execute("select has_table_privilege(%s, 'delete')", (f"semel.{table}",))
        if not asked.fetchall()[0][0]:
            raise BadRequest(
                f"this role may not remove rows of semel.{table}: use the schema's owner"
            )
    project = f"bench-{secrets.token_hex(6)}"
    try:
        return asyncio.run(Bench(settings, dsn, project).measure())
    finally:
        with conn.transaction():
            for table in tables:
                name = sql.Identifier("semel", table)
                conn.execute(
                    sql.SQL("delete from {} where project_id = %s").format(name), (project,)
                )


def _tables(conn: psycopg.Connection[Any]) -> list[str]:
    """Our tables that have rows of projects."""
    rows = conn.execute(
        "select c.relname from pg_class as c join pg_attribute as a on a.attrelid = c.oid"
        " where c.relnamespace = 'semel'::regnamespace and c.relkind in ('r', 'p')"
        " and not c.relispartition and a.attname = 'project_id' order by c.relname"
    ).fetchall()
    return [name for (name,) in rows]
