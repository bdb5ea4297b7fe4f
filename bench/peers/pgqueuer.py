"""pgqueuer: one asyncpg connection under uvloop, batches of 100, as its benchmark does."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import driver
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

BATCH = 100
#: Jobs of one bulk enqueue; all at once is no faster.
PAGE = int(os.environ.get("BENCH_PAGE", "1000"))


def payload(job: int) -> bytes:
    return json.dumps({"i": job, "p": driver.PAYLOAD}).encode()


async def queries() -> Queries:
    return Queries(AsyncpgDriver(await asyncpg.connect(driver.DSN)))


async def setup() -> None:
    await (await queries()).install()


async def fill(jobs: int) -> None:
    ask = await queries()
    for start in range(0, jobs, 1000):
        part = range(start, min(start + 1000, jobs))
        await ask.enqueue(["noop"] * len(part), [payload(job) for job in part], [0] * len(part))


async def batch(jobs: int) -> None:
    """Its bulk enqueue by the thousand, in one transaction."""
    conn = await asyncpg.connect(driver.DSN)
    ask = Queries(AsyncpgDriver(conn))
    async with conn.transaction():
        for start in range(0, jobs, PAGE):
            part = range(start, min(start + PAGE, jobs))
            await ask.enqueue(
                ["noop"] * len(part), [payload(job) for job in part], [0] * len(part)
            )


async def work() -> None:
    recorder = driver.Recorder()
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(driver.DSN)))

    @queue.entrypoint("noop")
    async def noop(job: Job) -> None:
        recorder.hit(json.loads(job.payload)["i"])

    await queue.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=30))


@asynccontextmanager
async def calls(callers: int) -> AsyncIterator[driver.Call]:
    asks = [await queries() for _ in range(callers)]

    async def call(caller: int, job: int) -> None:
        await asks[caller].enqueue("noop", payload(job))

    yield call


driver.serve(setup=setup, fill=fill, work=work, calls=calls, batch=batch)
