"""The agents that the tests put to work. Each start of one is a row in public.started."""

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any

import psycopg

from semel import App, DoNotRetry, Run

app = App()


def note(run: Run, word: str = "start") -> None:
    """Leave a row that outlives this process."""
    with psycopg.connect(os.environ["SEMEL_DSN"], autocommit=True) as conn:
        conn.execute(
            "insert into public.started (run_id, attempt, fence, word, pid) values (%s, %s, %s, %s, %s)",
            (run.id, run.attempt, run.fence, word, os.getpid()),
        )


@app.agent("echo")
async def echo(run: Run) -> Any:
    await asyncio.to_thread(note, run)
    return run.input


@app.agent("noop")
async def noop(run: Run) -> None:
    return None


@app.agent("sleep")
async def sleep(run: Run) -> str:
    try:  # it may be told to stop as soon as the row is there
        await asyncio.to_thread(note, run)
        await asyncio.sleep(float(run.input))
    except asyncio.CancelledError:
        await asyncio.to_thread(note, run, "cancelled")
        raise
    await asyncio.to_thread(note, run, "slept")
    return "slept"


@app.agent("sleep-in-thread")
def sleep_in_thread(run: Run) -> str:
    note(run)
    for _ in range(int(float(run.input) * 20)):
        if run.cancelled:
            note(run, "cancelled")
            return "stopped early"
        time.sleep(0.05)
    return "slept"


@app.agent("block-the-loop")
async def block_the_loop(run: Run) -> str:
    note(run)
    time.sleep(float(run.input))  # noqa: ASYNC251 - what it is for
    return "blocked"


@app.agent("raise", max_attempts=2)
async def fail(run: Run) -> None:
    await asyncio.to_thread(note, run)
    raise ValueError(f"attempt {run.attempt} went wrong")


class OutOfStock(DoNotRetry):
    """No other attempt will find any."""


@app.agent("give-up")
async def give_up(run: Run) -> None:
    await asyncio.to_thread(note, run)
    raise OutOfStock("none left")


@app.agent("ignore-stop")
async def ignore_stop(run: Run) -> str:
    with suppress(asyncio.CancelledError):  # as soon as the row is there
        await asyncio.to_thread(note, run)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.to_thread(note, run, "ignored")


@app.agent("ignore-stop-in-thread")
def ignore_stop_in_thread(run: Run) -> str:
    note(run)
    time.sleep(3600)
    return "late"


@app.agent("exit", max_attempts=1)
async def leave(run: Run) -> None:
    sys.exit(3)


@app.agent("exit-in-thread", max_attempts=1)
def leave_thread(run: Run) -> None:
    raise KeyboardInterrupt


@app.agent("no-json")
async def no_json(run: Run) -> Any:
    return object()


@app.agent("ten-megabytes")
async def ten_megabytes(run: Run) -> str:
    return "x" * 10_000_000


@app.agent("kill")
async def kill(run: Run) -> None:
    await asyncio.to_thread(note, run)
    os.kill(os.getpid(), signal.SIGKILL)


@app.agent("in-process", executor="process")
def in_process(run: Run) -> dict[str, int]:
    return {"pid": os.getpid()}


@app.agent("async-in-process", executor="process")
async def async_in_process(run: Run) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"pid": os.getpid()}


@app.agent("kill-in-process", executor="process", max_attempts=2)
def kill_in_process(run: Run) -> None:
    note(run)
    os.kill(os.getpid(), signal.SIGKILL)


@app.agent("count")
async def count(run: Run) -> None:
    await asyncio.to_thread(_count, run)


_pool: list[psycopg.Connection[Any]] = []


def _count(run: Run) -> None:
    conn = _pool.pop() if _pool else psycopg.connect(os.environ["SEMEL_DSN"], autocommit=True)
    conn.execute(
        "insert into public.started (run_id, attempt, fence, word, pid) values (%s, %s, %s, 'start', %s)",
        (run.id, run.attempt, run.fence, os.getpid()),
    )
    _pool.append(conn)


@app.agent("two-at-a-time", concurrency=2)
async def two_at_a_time(run: Run) -> None:
    await asyncio.to_thread(note, run)
    await asyncio.sleep(float(run.input))
