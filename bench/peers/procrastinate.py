"""procrastinate: 30 jobs at a time on a pool, LISTEN on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import driver
import procrastinate

CONCURRENCY = 30
QUEUE = "q"

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(
        conninfo=driver.DSN, min_size=10, max_size=CONCURRENCY
    )
)
recorder = driver.Recorder()


@app.task(name="noop", queue=QUEUE)
async def noop(i: int, p: object = None) -> None:  # noqa: ARG001 - the payload
    recorder.hit(i)


async def setup() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def fill(jobs: int) -> None:
    async with app.open_async():
        for start in range(0, jobs, 1000):
            part = range(start, min(start + 1000, jobs))
            await noop.batch_defer_async(*({"i": job, "p": driver.PAYLOAD} for job in part))


async def work() -> None:
    async with app.open_async():
        await app.run_worker_async(
            queues=[QUEUE],
            concurrency=CONCURRENCY,
            wait=True,
            listen_notify=True,
            delete_jobs="never",
        )


@asynccontextmanager
async def calls(_callers: int) -> AsyncIterator[driver.Call]:
    async def call(_caller: int, job: int) -> None:
        await noop.defer_async(i=job, p=driver.PAYLOAD)

    async with app.open_async():
        yield call


driver.serve(setup=setup, fill=fill, work=work, calls=calls)
