"""
The same run for each way to be killed: an agent, and an App of its own, for each name of KILLS.

`kills.py:app3` works for the fourth of them only, `kills.py:every` for all. Each effect of a step is a
row in public.effect, with the idempotency key that the step was given.
"""

import asyncio
import os
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from semel import App, Backoff, Run

#: How often each stop point is passed, once the run is claimed.
PASSES = {
    "worker.claim.before": 1,
    "worker.claim.after": 2,
    "worker.step.before": 5,
    "worker.step.after": 5,
    "worker.transaction.before": 1,
    "worker.transaction.after": 1,
    "worker.park.before": 1,
    "worker.park.after": 1,
    "worker.complete.before": 1,
    "worker.complete.after": 1,
}
IN_THREAD = (
    "worker.step.before#3",
    "worker.step.after#3",
    "worker.transaction.before#1",
    "worker.transaction.after#1",
    "worker.park.after#1",
)
#: Where the run is cancelled after the kill, with what the undo is told; None: nothing to undo.
UNDONE = {
    "worker.step.before#4": None,  # the promise was on its way
    "worker.step.after#4": "undo five None",  # nothing was done, which only the step itself knows
    "worker.step.before#5": "undo five None",  # done, and its result lost
    "worker.step.after#5": "undo five FIVE",
}
KILLS = [
    *(("async", f"{stop}#{n}") for stop, most in PASSES.items() for n in range(1, most + 1)),
    *(("thread", stop) for stop in IN_THREAD),
    *(("undone", stop) for stop in UNDONE),
    *(("beside", f"worker.step.{when}#1") for when in ("before", "after")),
]
#: One more passage than there are: nobody is killed. And a handler whose own process is, at each
#: attempt, while its worker lives.
UNKILLED = [
    *(("async", f"{stop}#{most + 1}") for stop, most in PASSES.items() if most == 5),
    ("process", "worker.step.after#1"),
]


def effect(run_id: UUID | str, step: str, key: str) -> None:
    """What a step does outside the transaction of its journal."""
    with psycopg.connect(os.environ["SEMEL_DSN"], autocommit=True) as conn:
        conn.execute(
            "insert into public.effect (run_id, step, key) values (%s, %s, %s)",
            (run_id, step, key),
        )


async def double(run: Run, step: str, value: int, *, idempotency_key: str) -> int:
    effect(run.id, step, idempotency_key)
    return 2 * value


def double_in_thread(run: Run, step: str, value: int, *, idempotency_key: str) -> int:
    effect(run.id, step, idempotency_key)
    return 2 * value


def act(run_id: str, word: str, *, idempotency_key: str) -> str:
    effect(run_id, word, idempotency_key)
    return word.upper()


def take_back(run_id: str, word: str, *, result: Any) -> None:
    effect(run_id, f"undo {word} {result}", "")


async def five(run: Run) -> Any:
    one = await run.step("one", double, run, "one", 1)
    two = await run.step("two", double_in_thread, run, "two", one)
    async with run.transaction("three") as tx:
        cursor = await tx.execute(
            "insert into public.business (run_id, value) values (%s, %s) returning value + 1",
            (run.id, two),
        )
        [three] = await cursor.fetchone()
    await run.sleep(timedelta(milliseconds=20))
    four = await run.step("four", double, run, "four", three)
    last = await run.step("five", act, str(run.id), "five", undo=take_back)
    return [one, two, three, four, last]


async def beside(run: Run) -> Any:
    """Two steps at once, whose entries may go in one batch."""
    left, right = await asyncio.gather(
        run.step("left", double, run, "left", 1),
        run.step("right", double_in_thread, run, "right", 2),
    )
    return [left, right, await run.step("last", double, run, "last", left + right)]


def five_in_thread(run: Run) -> Any:
    one = run.step("one", double_in_thread, run, "one", 1)
    two = run.step("two", double, run, "two", one)
    three = run.transaction("three", insert, run.id, two)
    run.sleep(timedelta(milliseconds=20))
    four = run.step("four", double_in_thread, run, "four", three)
    last = run.step("five", act, str(run.id), "five", undo=take_back)
    return [one, two, three, four, last]


def insert(conn: psycopg.Connection[Any], run_id: UUID, value: int) -> int:
    conn.execute("insert into public.business (run_id, value) values (%s, %s)", (run_id, value))
    return value + 1


def agent(kind: str, stop: str) -> str:
    """The agent that is killed at *stop*."""
    return f"{kind}-{stop.replace('#', '-')}"


def _app(*kills: tuple[str, str]) -> App:
    app = App()
    app.compensation("take-back")(take_back)
    for kind, stop in kills:
        handler: Any = {"thread": five_in_thread, "beside": beside}.get(kind, five)
        app.agent(
            agent(kind, stop),
            max_attempts=10,
            executor="process" if kind == "process" else None,
            backoff=Backoff(base=timedelta(milliseconds=1)),
        )(handler)
    return app


every = _app(*KILLS)
for _n, _kill in enumerate([*KILLS, *UNKILLED]):
    globals()[f"app{_n}"] = _app(_kill)
