"""Chancy: 1,000 jobs at a time on the event loop, eager polling."""

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import driver
from chancy import Chancy, Queue, Worker, job

LOG = logging.getLogger("chancy")
LOG.setLevel(logging.WARNING)
QUEUE = "q"
EXECUTOR = "chancy.executors.asyncex.AsyncExecutor"
# A worker imports the module that has the job by name; it is this one, under another name.
sys.modules["noop_jobs"] = sys.modules[__name__]
recorder = driver.Recorder()


@job(queue=QUEUE)
async def noop(*, i: int, p: object = None) -> None:  # noqa: ARG001 - the payload
    recorder.hit(i)


def made(number: int):  # noqa: ANN201 - the library's own
    return noop.job.with_kwargs(i=number, p=driver.PAYLOAD)


def opened() -> Chancy:
    return Chancy(driver.DSN, log=LOG)


async def setup() -> None:
    queue = Queue(
        QUEUE, concurrency=1000, executor=EXECUTOR, polling_interval=1, eager_polling=True
    )
    async with opened() as chancy:
        await chancy.migrate()
        await chancy.declare(queue, upsert=True)


async def fill(jobs: int) -> None:
    async with opened() as chancy:
        made_jobs = [made(number) for number in range(jobs)]
        async for _ in chancy.push_many(made_jobs, batch_size=1000):
            pass


async def work() -> None:
    async with opened() as chancy, Worker(chancy) as worker:
        await worker.wait_for_shutdown()


@asynccontextmanager
async def calls(_callers: int) -> AsyncIterator[driver.Call]:
    async with opened() as chancy:

        async def call(_caller: int, number: int) -> None:
            await chancy.push(made(number))

        yield call


if __name__ == "__main__":
    driver.serve(setup=setup, fill=fill, work=work, calls=calls)
