"""Agents with steps, transactions, waits and undos. Each effect is a row in public.started."""

import asyncio
import json
import os
import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

import semel
from semel import App, ApprovalRejected, Retry, Run, StepFailed

app = App()


def mark(run: Run | UUID, word: str) -> None:
    """Leave a row that outlives this process."""
    run_id, attempt, fence = (
        (run, 0, 0) if isinstance(run, UUID) else (run.id, run.attempt, run.fence)
    )
    with psycopg.connect(os.environ["SEMEL_DSN"], autocommit=True) as conn:
        conn.execute(
            "insert into public.started (run_id, attempt, fence, word, pid) values (%s, %s, %s, %s, %s)",
            (run_id, attempt, fence, word, os.getpid()),
        )


async def double(run: Run, word: str, value: int) -> int:
    await asyncio.to_thread(mark, run, word)
    return 2 * value


def double_in_thread(run: Run, word: str, value: int) -> int:
    mark(run, f"{word} in {threading.current_thread().name.rpartition('_')[0]}")
    return 2 * value


@app.compensation("undo-double")
def undo_double(run_id: str, word: str, result: Any = None) -> str:
    mark(UUID(run_id), f"undo {word} {result}")
    return f"undid {word}"


@app.compensation("undo-badly")
def undo_badly(run_id: str, word: str, *, run: Run, result: Any = None) -> None:
    mark(UUID(run_id), f"try undo {word}")
    if run.attempt < 3:
        raise ValueError(f"{word} cannot be undone yet")


def act(run_id: str, word: str) -> str:
    mark(UUID(run_id), word)
    return word.upper()


@app.agent("five", max_attempts=20)
async def five(run: Run) -> Any:
    """Five steps, of which one is a transaction and one is undone if it comes to that."""
    one = await run.step("one", double, run, "one", 1)
    two = await run.step("two", double_in_thread, run, "two", one)
    async with run.transaction("three") as tx:
        cursor = await tx.execute(
            "insert into public.business (run_id, value) values (%s, %s) returning value + 1",
            (run.id, two),
        )
        [three] = await cursor.fetchone()
        tx.result = three
    four, four_b = await asyncio.gather(
        run.step("four", double, run, "four", three),
        run.step("four-b", double, run, "four-b", 1),
    )
    five = await run.step("five", act, str(run.id), "five", undo=undo_double)
    return [one, two, three, four, four_b, five]


@app.agent("five-in-thread", max_attempts=20)
def five_in_thread(run: Run) -> Any:
    one = run.step("one", double_in_thread, run, "one", 1)
    two = run.step("two", double, run, "two", one)
    with run.transaction("three") as tx:
        [three] = tx.execute(
            "insert into public.business (run_id, value) values (%s, %s) returning value + 1",
            (run.id, two),
        ).fetchone()
    four = run.transaction("four", in_function, run.id, three)
    return [one, two, three, four]


def in_function(conn: Any, run_id: UUID, value: int) -> int:
    conn.execute("insert into public.business (run_id, value) values (%s, %s)", (run_id, value))
    return value + 1


@app.agent("five-in-process", executor="process", max_attempts=20)
def five_in_process(run: Run) -> Any:
    one = run.step("one", double_in_thread, run, "one", 1)
    said = run.signal("go")
    return [one, said]


@app.agent("repeats")
async def repeats(run: Run) -> Any:
    return [await run.step("again", double, run, f"again {n}", n) for n in range(3)]


@app.agent("retries")
async def retries(run: Run) -> Any:
    told: dict[str, Any] = run.input
    tries = {"n": 0}

    def flaky() -> int:
        mark(run, f"try in attempt {run.attempt}")
        tries["n"] += 1
        with psycopg.connect(os.environ["SEMEL_DSN"], autocommit=True) as conn:
            [[count]] = conn.execute(
                "select count(*) from public.started where run_id = %s", (run.id,)
            ).fetchall()
        if count < told["until"]:
            raise ValueError(f"try {count} went wrong")
        return int(count)

    retry = Retry(
        attempts=told["attempts"],
        base=timedelta(milliseconds=20),
        park_after=timedelta(milliseconds=0 if told.get("park") else 1000),
    )
    return await run.step("flaky", flaky, retry=retry)


@app.agent("goes-on")
async def goes_on(run: Run) -> Any:
    """A step fails, the handler goes on; then the attempt fails once, and the way is the same."""

    def fails() -> None:
        mark(run, "fails")
        raise ValueError("no")

    try:
        await run.step("fails", fails)
        way = "went well"
    except ValueError as error:
        way = f"caught {error}"
    await run.step("after", double, run, "after", 1)
    if run.attempt == 1:
        raise RuntimeError("once more")
    return way


@app.agent("waits")
async def waits(run: Run) -> Any:
    await run.step("before", double, run, "before", 1)
    await run.sleep(timedelta(milliseconds=50))
    first = await run.signal("go")
    second = await run.signal("go")
    try:
        await run.signal("never", timeout=timedelta(milliseconds=50))
    except semel.WaitTimedOut:
        late = True
    return [first, second, late]


@app.agent("both")
async def both(run: Run) -> Any:
    return await asyncio.gather(
        run.signal("left"), run.step("beside", double, run, "beside", 2), run.signal("right")
    )


@app.agent("parent")
async def parent(run: Run) -> Any:
    good = await run.spawn("child", 1)
    bad = await run.spawn("child", -1, max_attempts=1)
    try:
        await bad.result()
    except semel.ChildFailed as error:
        failed = str(error)
    return [await good.result(), failed]


@app.agent("child")
def child(run: Run) -> Any:
    mark(run, "child")
    if run.input < 0:
        raise semel.DoNotRetry("below zero")
    return run.input + 1


@app.agent("asks")
async def asks(run: Run) -> Any:
    await run.step("before", double, run, "before", 1)
    told: dict[str, Any] = run.input or {}
    asking = dict(told.get("asking", {}))
    if "seconds" in told:
        asking["ttl"] = timedelta(seconds=told["seconds"])
    try:
        answer = await run.approval("restart web", action={"pod": "web-1"}, **asking)
    except ApprovalRejected as error:
        return f"rejected: {error}"
    await run.step("act", double, run, "act", 1)
    return answer["by"]


@app.agent("saga", max_attempts=1)
async def saga(run: Run) -> Any:
    told: dict[str, Any] = run.input or {}
    for word in ("s1", "s2", "s3"):
        undo = undo_badly if word in told.get("badly", ()) else undo_double
        await run.step(word, act, str(run.id), word, undo=undo)
        if told.get("wait") == word:
            await run.signal("go on")
        if told.get("hang") == word:
            await asyncio.sleep(600)
    raise RuntimeError("the saga fails at its end")


@app.agent("mismatch")
async def mismatch(run: Run) -> Any:
    """Its code changes between its attempts, as one would deploy it."""
    name = "old" if run.attempt == 1 else "new"
    await run.step(name, act, str(run.id), name, undo="undo-double")
    raise RuntimeError("again")


@app.agent("drops")
async def drops(run: Run) -> Any:
    if run.attempt == 1:
        await run.step("dropped", double, run, "dropped", 1)
        raise RuntimeError("again")
    return "done"


@app.agent("patched")
async def patched(run: Run) -> Any:
    """Runs of attempt 1 are old code, later ones new code with a patch."""
    await run.step("first", double, run, "first", 1)
    if run.attempt > 1 and run.patched("more"):
        await run.step("more", double, run, "more", 1)
    await run.step("last", double, run, "last", 1)
    if run.attempt == 1 and run.input == "past":
        raise RuntimeError("again")
    return "done"


@app.agent("bad-steps")
async def bad_steps(run: Run) -> Any:
    match run.input:
        case "no-json":
            await run.step("bad", object)
        case "caught":
            try:
                await run.step("bad", object)
            except Exception:  # noqa: BLE001 - as a careless handler does
                await run.step("more", double, run, "more", 1)
        case "too-large":
            await run.step("bad", lambda: "x" * (1024 * 1024))
        case "no-undo":
            await run.step("bad", act, str(run.id), "bad", undo="nobody")
        case "undo-arguments":
            await run.step("bad", act, undo=undo_double)
        case "parallel":
            await asyncio.gather(*(run.step("same", double, run, "same", n) for n in range(2)))
        case _:
            await run.step("", double, run, "nameless", 1)


@app.agent("odd-steps")
async def odd_steps(run: Run) -> Any:
    match run.input:
        case "stop":
            await run.step("stop", lambda: next(iter([])))
        case "hash":
            await run.step("a#2", double, run, "a", 1)
            await run.step("a", double, run, "a", 1)
            await run.step("a", double, run, "a", 1)
        case "wait-inside":
            await run.step("out", lambda: run.signal("go"))
        case "step-inside":

            async def out() -> Any:
                return await run.step("in", double, run, "in", 1)

            await run.step("out", out)
        case _:
            async with run.transaction("block"):
                await run.sleep(1)


@app.agent("gives-up")
async def gives_up(run: Run) -> Any:
    """A step that is too slow is given up, once and for all; so is a signal."""
    slow = 60 if run.attempt == 1 else 0

    async def act() -> str:
        await asyncio.to_thread(mark, run, "slow")
        await asyncio.sleep(slow)
        return "late"

    said = []
    try:
        async with asyncio.timeout(0.3):
            await run.step("slow", act)
    except TimeoutError:
        said.append("gave up")
    await run.step("after", double, run, "after", 1)
    if run.attempt == 1:
        raise RuntimeError("again")
    return said


@app.agent("limited")
async def limited(run: Run) -> Any:
    """Steps whose order is chance: each is begun by a task when its turn comes."""
    turns = asyncio.Semaphore(2)

    async def one(step: Any) -> Any:
        async with turns:
            await asyncio.sleep(0.01 * (run.attempt % 2))
            return await step

    steps = [run.step(f"s{n}", double, run, f"s{n}", n) for n in range(6)]
    order = steps if run.attempt == 1 else steps[::-1]
    done = await asyncio.gather(*(one(step) for step in order))
    if run.attempt == 1:
        raise RuntimeError("again")
    return sorted(done)


class Declined(Exception):
    def __init__(self, code: int, detail: str) -> None:
        super().__init__(f"{code} {detail}")


@app.agent("fallback")
async def fallback(run: Run) -> Any:
    """Errors of awkward classes are caught, in every attempt."""
    caught = []

    def decline() -> None:
        raise Declined(402, "no")

    for name, fn, args in (("json", json.loads, ["{"]), ("own", decline, [])):
        try:
            await run.step(name, fn, *args)
        except (ValueError, Declined) as error:
            caught.append(type(error).__name__)
    await run.step("after", double, run, "after", 1)
    if run.attempt == 1:
        raise RuntimeError("again")
    return caught


@app.agent("patched-wait")
async def patched_wait(run: Run) -> Any:
    await run.step("first", double, run, "first", 1)
    if run.attempt > 1 and run.patched("more"):
        await run.step("more", double, run, "more", 1)
    await run.sleep(0.05)
    if run.attempt == 1:
        raise RuntimeError("again")
    return "done"


@app.agent("keys")
async def keys(run: Run) -> Any:
    def given(idempotency_key: str) -> str:
        return idempotency_key

    return [await run.step("given", given), await run.step("asked", semel.idempotency_key)]


@app.agent("completes")
async def completes(run: Run) -> Any:
    async with run.transaction("last") as tx:
        await tx.execute(
            "insert into public.business (run_id, value) values (%s, 1)", (run.id,)
        )
        tx.complete("in the transaction")
    return "ignored"


@app.agent("starts")
async def starts(run: Run) -> Any:
    async with run.transaction("start") as tx:
        started = [str(await tx.start("child", n)) for n in range(2)]
    if run.attempt == 1:
        raise RuntimeError("again")
    return started


@app.agent("rolls-back")
async def rolls_back(run: Run) -> Any:
    try:
        async with run.transaction("bad") as tx:
            await tx.execute(
                "insert into public.business (run_id, value) values (%s, 1)", (run.id,)
            )
            raise LookupError("no")  # noqa: TRY301 - what the block raises
    except (LookupError, StepFailed):
        return "rolled back"
