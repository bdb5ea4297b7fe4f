"""
Ours: the application that `semel worker` serves here, and our own driver.

The worker is the real one, as a process of its own; this file only has its handler. One verb is
ours alone:

    accept N JOBS     N callers accept JOBS events between them, through group commit
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import driver
import psycopg
import uvloop

import semel
from semel import App, Run
from semel.db import migrate
from semel.db.pool import connect, pool
from semel.edges.acceptor import Acceptor
from semel.model import Offer

PROJECT = "bench"
AGENT = "noop"
app = App()
_recorder = driver.Recorder()


async def _step(number: int) -> int:
    return number + 1


@app.agent(AGENT)
async def noop(run: Run) -> float | None:
    if "BENCH_ASKS" in os.environ:
        await run.approval("may I", action={"i": run.input["i"]}, ttl=timedelta(hours=1))
        return time.time()
    number = 0
    for turn in range(driver.STEPS):
        number = await run.step(f"s{turn}", _step, number)
    _recorder.hit(run.input["i"])
    return None


@app.agent("limited", concurrency=1)
async def limited(_run: Run) -> None:
    await asyncio.sleep(3600)  # longer than any drain


async def setup() -> None:
    with connect(driver.DSN) as conn:
        migrate.migrate(conn)


async def fill(jobs: int) -> None:
    """Runs by the thousand: `run_start` for each, one transaction for all of them."""
    with connect(driver.DSN) as conn:
        for start in range(0, jobs, 1000):
            end = min(start + 1000, jobs) - 1
            conn.execute(
                "select count(s.run_id) from generate_series(%s::int, %s) as i, lateral"
                " semel.run_start(%s, %s, jsonb_build_object('i', i, 'p', %s::jsonb)::text) as s",
                (start, end, PROJECT, AGENT, psycopg.types.json.Jsonb(driver.PAYLOAD)),
            )


async def batch(jobs: int) -> None:
    """`semel.start_many` on a connection in autocommit, its inputs made as they are asked for."""
    async with await psycopg.AsyncConnection.connect(driver.DSN, autocommit=True) as conn:
        inputs = ({"i": job, "p": driver.PAYLOAD} for job in range(jobs))
        await semel.start_many(conn, project=PROJECT, agent=AGENT, inputs=inputs)


class Timed(psycopg.AsyncConnection[Any]):
    """Notes when its first statement since `reset` was answered: `start` rings a bell after it."""

    answered: float | None = None

    async def execute(self, *args: Any, **kwargs: Any) -> Any:
        cursor = await super().execute(*args, **kwargs)
        self.answered = self.answered or time.time()
        return cursor


@asynccontextmanager
async def calls(callers: int) -> AsyncIterator[driver.Call]:
    """`semel.start` on a connection in autocommit for each caller."""
    conns = [await Timed.connect(driver.DSN, autocommit=True) for _ in range(callers)]

    async def call(caller: int, job: int) -> float | None:
        conn = conns[caller]
        conn.answered = None
        await semel.start(
            conn, project=PROJECT, agent=AGENT, input={"i": job, "p": driver.PAYLOAD}
        )
        return conn.answered

    yield call
    for conn in conns:
        await conn.close()


@asynccontextmanager
async def accepts(_callers: int) -> AsyncIterator[driver.Call]:
    """One Acceptor for all callers, as an ingress has it: each event has an id of its own."""
    async with pool(driver.DSN, size=4) as lent:
        acceptor = Acceptor(lent)
        run = f"{time.time_ns():x}"

        async def call(caller: int, job: int) -> None:
            offer = Offer(
                source="bench",
                channel="api",
                id=f"{run}-{caller}-{job}",
                agent=AGENT,
                input={"i": job, "p": driver.PAYLOAD},
            )
            await acceptor.accept(PROJECT, [offer])

        yield call


async def accept(callers: int, jobs: int) -> dict[str, float]:
    """Backlog of events: rate, and this process's CPU for each."""
    numbers = iter(range(jobs))
    used, began = time.process_time(), time.perf_counter()
    async with accepts(callers) as call:

        async def caller(number: int) -> None:
            for job in numbers:
                await call(number, job)

        await asyncio.gather(*map(caller, range(callers)))
    return {
        "rate": jobs / (time.perf_counter() - began),
        "cpu_us": (time.process_time() - used) / jobs * 1e6,
    }


if __name__ == "__main__" and sys.argv[1] == "accept":
    print(json.dumps(uvloop.run(accept(int(sys.argv[2]), int(sys.argv[3])))))
elif __name__ == "__main__":
    offered = accepts if os.environ.get("BENCH_CALL") == "accept" else calls
    driver.serve(setup=setup, fill=fill, work=None, calls=offered, batch=batch)
