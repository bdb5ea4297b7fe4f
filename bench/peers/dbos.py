"""DBOS: an asynchronous workflow on a queue; its client enqueues from threads."""

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import driver
import sqlalchemy
from dbos import DBOS, DBOSClient, DBOSConfig

QUEUE = "q"
OPTIONS = {"workflow_name": "noop", "queue_name": QUEUE, "app_version": "v1"}
recorder = driver.Recorder()


def launch() -> None:
    @DBOS.step()
    async def step(number: int) -> int:
        return number + 1

    @DBOS.workflow(name="noop")
    async def noop(i: int, p: object = None) -> None:  # noqa: ARG001 - the payload
        number = 0
        for _ in range(driver.STEPS):
            number = await step(number)
        recorder.hit(i)

    DBOS(
        config=DBOSConfig(
            name="bench",
            system_database_url=driver.DSN,
            sys_db_pool_size=20,
            log_level="WARNING",
            application_version="v1",
            executor_id=os.environ.get("BENCH_WORKER", "w"),
        )
    )
    DBOS.launch()


async def declare() -> None:
    launch()
    await DBOS.register_queue_async(
        QUEUE, polling_interval_sec=1.0, on_conflict="always_update"
    )


async def setup() -> None:
    await declare()
    DBOS.destroy()


async def fill(jobs: int) -> None:
    client = DBOSClient(system_database_url=driver.DSN)
    engine = sqlalchemy.create_engine(driver.DSN.replace("postgresql:", "postgresql+psycopg:"))
    for start in range(0, jobs, 1000):
        with engine.begin() as conn:
            for job in range(start, min(start + 1000, jobs)):
                client.enqueue_in_transaction(conn, OPTIONS, job, driver.PAYLOAD)


async def work() -> None:
    await declare()
    await asyncio.Event().wait()


@asynccontextmanager
async def calls(callers: int) -> AsyncIterator[driver.Call]:
    client = DBOSClient(system_database_url=driver.DSN)
    threads = ThreadPoolExecutor(callers)
    loop = asyncio.get_running_loop()

    async def call(_caller: int, job: int) -> None:
        await loop.run_in_executor(threads, client.enqueue, OPTIONS, job, driver.PAYLOAD)

    yield call


driver.serve(setup=setup, fill=fill, work=work, calls=calls)
