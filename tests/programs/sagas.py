"""
Sagas that are told where to stand still, and where to fail. Each effect is a row in public.started.

The input is {"hold": word, ...}: after that word the handler waits until it is stopped, or until
somebody adds the word to public.go.
"""

import asyncio
import os
import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from semel import App, Backoff, Run

app = App()
SOON = Backoff(base=timedelta(milliseconds=1))


def mark(run_id: UUID | str, word: str, attempt: int = 0) -> int:
    """Leave a row that outlives this process; answers how often it is there."""
    with psycopg.connect(os.environ["SEMEL_DSN"], autocommit=True) as conn:
        conn.execute(
            "insert into public.started (run_id, attempt, word, pid) values (%s, %s, %s, %s)",
            (run_id, attempt, word, os.getpid()),
        )
        [[count]] = conn.execute(
            "select count(*) from public.started where run_id = %s and word = %s",
            (run_id, word),
        ).fetchall()
        return int(count)


def go(run_id: UUID, word: str) -> bool:
    """Whether somebody said that it may go on."""
    with psycopg.connect(os.environ["SEMEL_DSN"], autocommit=True) as conn:
        said = "select from public.go where run_id = %s and word = %s"
        return bool(conn.execute(said, (run_id, word)).fetchall())


async def hold(run: Run, word: str) -> None:
    """Stand still after *word*; takes a while to stop."""
    try:  # it may be told to stop as soon as the row is there
        await asyncio.to_thread(mark, run.id, f"at {word}")
        while not await asyncio.to_thread(go, run.id, word):  # noqa: ASYNC110 - no event of this loop
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        await asyncio.sleep(0.3)
        await asyncio.to_thread(mark, run.id, "stopped")
        raise


def act(run_id: str, word: str) -> str:
    mark(run_id, word)
    return word.upper()


async def act_slowly(run_id: str, word: str, *, seconds: float) -> str:
    """A step that takes its time, also to stop."""
    mark(run_id, f"begin {word}")
    try:
        await asyncio.sleep(seconds)
    finally:
        mark(run_id, f"end {word}")
    return word.upper()


@app.compensation("take-back")
def take_back(run_id: str, word: str, *, result: Any, seconds: float = 0) -> None:
    mark(run_id, f"undo {word} {result}")


@app.compensation("hang")
def hang(run_id: str, word: str, *, result: Any) -> None:
    if mark(run_id, f"undo {word} {result}") == 1:
        time.sleep(600)


@app.compensation("fail-twice")
def fail_twice(run_id: str, word: str, *, result: Any) -> None:
    if mark(run_id, f"undo {word} {result}") <= 2:
        raise ValueError("not yet")


@app.compensation("fail")
def fail(run_id: str, word: str, *, result: Any) -> None:
    mark(run_id, f"undo {word} {result}")
    raise ValueError("the pod is gone")


@app.agent("saga", max_attempts=2, backoff=SOON)
async def saga(run: Run) -> Any:
    told: dict[str, Any] = run.input or {}
    for word in ("s1", "s2", "s3"):
        await run.step(word, act, str(run.id), word, undo=told.get(word, "take-back"))
        if told.get("hold") == word:
            await hold(run, word)
        if told.get("ask") == word:
            await run.approval("go on", action=word)
    if told.get("fail"):
        raise RuntimeError("it fails at its end")
    return "done"


@app.agent("late", backoff=Backoff(base=timedelta(hours=1)))
async def late(run: Run) -> None:
    """Fails, and is to be retried much later."""
    for word in ("s1", "s2"):
        await run.step(word, act, str(run.id), word, undo=take_back)
    raise RuntimeError("again in an hour")


@app.agent("in-a-step")
async def in_a_step(run: Run) -> None:
    """Is at work in a step when it is cancelled."""
    await run.step("s1", act, str(run.id), "s1", undo=take_back)
    await run.step("s2", act_slowly, str(run.id), "s2", seconds=600, undo=take_back)


@app.agent("deaf")
def deaf(run: Run) -> str:
    """A handler that hears nothing, and succeeds after it was cancelled."""
    run.step("s1", act, str(run.id), "s1", undo=take_back)
    mark(run.id, "at s1")
    while not run.cancelled:
        time.sleep(0.02)
    time.sleep(0.3)
    mark(run.id, "stopped")
    return "late success"


@app.agent("side-by-side", max_attempts=1)
async def side_by_side(run: Run) -> None:
    """One of two steps fails while the other is at work."""

    async def fails() -> None:
        while not await asyncio.to_thread(begun, run.id, "begin slow"):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
        raise RuntimeError("one fails")

    await asyncio.gather(
        run.step("fails", fails),
        run.step("slow", act_slowly, str(run.id), "slow", seconds=20, undo=take_back),
    )


def begun(run_id: UUID, word: str) -> bool:
    with psycopg.connect(os.environ["SEMEL_DSN"], autocommit=True) as conn:
        said = "select from public.started where run_id = %s and word = %s"
        return bool(conn.execute(said, (run_id, word)).fetchall())
