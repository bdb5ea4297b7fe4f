"""Oban for Python: 100 jobs at a time, a pool of 10."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import driver
from oban import Job, Oban, worker
from oban.schema import install

recorder = driver.Recorder()


@worker(queue="q")
class Noop:
    async def process(self, job: Job) -> None:
        recorder.hit(job.args["i"])


def made(number: int):  # noqa: ANN201 - the library's own
    return Noop.new({"i": number, "p": driver.PAYLOAD})


async def setup() -> None:
    await install(await Oban.create_pool(driver.DSN, min_size=1, max_size=2))


async def fill(jobs: int) -> None:
    async with Oban(pool=await Oban.create_pool(driver.DSN, min_size=1, max_size=10)) as oban:
        for start in range(0, jobs, 1000):
            part = range(start, min(start + 1000, jobs))
            await oban.enqueue_many([made(number) for number in part])


async def work() -> None:
    pool = await Oban.create_pool(driver.DSN, min_size=1, max_size=10)
    await Oban(pool=pool, queues={"q": 100}).start()
    await asyncio.Event().wait()


@asynccontextmanager
async def calls(_callers: int) -> AsyncIterator[driver.Call]:
    async with Oban(pool=await Oban.create_pool(driver.DSN, min_size=1, max_size=10)) as oban:

        async def call(_caller: int, number: int) -> None:
            await oban.enqueue(made(number))

        yield call


driver.serve(setup=setup, fill=fill, work=work, calls=calls)
