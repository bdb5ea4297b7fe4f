"""What a program asks for and cannot mean ends its run at once, with a sentence; no attempt is lost."""

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import semel
from durable import begin
from fix_world import Conn, one
from semel import App, Run
from semel.errors import BadRequest, TooOften
from semel.runtime.retry import final
from semel.testing import World
from workshop import work

FOREVER = timedelta(days=3_000_000)  # PostgreSQL can keep its end, and Python not read it
Ask = Callable[[Any], Any]


def kept(run: Any, name: Any) -> Any:
    run.patched(name)
    return run.step("after", list)


BAD: dict[str, tuple[Ask, str]] = {
    "step 5": (lambda run: run.step(5, list), "a text of 1 to 255 bytes, not 5"),
    "step half": (lambda run: run.step("\ud800", list), "a text of 1 to 255 bytes"),
    "step list": (lambda run: run.step(["a"], list), "not ['a']"),
    "step empty": (lambda run: run.step("", list), "not ''"),
    "transaction": (lambda run: run.transaction(5, list), "not 5"),
    "patched": (lambda run: kept(run, 5), "not 5"),
    "patched nul": (lambda run: kept(run, "\0"), "a text of 1 to 255 bytes"),
    "tries": (lambda run: run.step("a", list, retry="3"), "write a number"),
    "no tries": (lambda run: run.step("a", list, retry=0), "write 1 or more"),
    "sleep": (lambda run: run.sleep(timedelta.max), "at most 36525 days"),
    "sleep long": (lambda run: run.sleep(1e12), "at most 36525 days"),
    "sleep nan": (lambda run: run.sleep(math.nan), "write seconds, or a timedelta"),
    "sleep text": (lambda run: run.sleep("5"), "write seconds, or a timedelta"),
    "signal 5": (lambda run: run.signal(5), "not 5"),
    "signal empty": (lambda run: run.signal(""), "not ''"),
    "timeout": (lambda run: run.signal("a", timeout=5), "timeout=5: write a timedelta"),
    "timeout long": (lambda run: run.signal("a", timeout=FOREVER), "at most 36525 days"),
    "spawn 5": (lambda run: run.spawn(5), "5 is no agent"),
    "spawn ours": (lambda run: run.spawn("semel.notify"), "is no agent that a run may start"),
    "spawn late": (lambda run: run.spawn("a", delay=FOREVER), "at most 36525 days"),
    "spawn first": (lambda run: run.spawn("a", priority="9"), "write 0 (last) to 9 (first)"),
    "title": (lambda run: run.approval(5, action=1), "a text of 1 to 500 characters"),
    "action": (lambda run: run.approval("a", action="\0"), "NUL"),
    "large": (lambda run: run.approval("a", action="x" * 300_000), "at most 262144"),
    "ttl": (lambda run: run.approval("a", action=1, ttl=5), "ttl=5"),
    "approver": (lambda run: run.approval("a", action=1, approvers="b"), "a list of names"),
    "approvers": (lambda run: run.approval("a", action=1, approvers=5), "a list of names"),
    "numbers": (lambda run: run.approval("a", action=1, approvers=[1]), "are names, not [1]"),
    "need text": (lambda run: run.approval("a", action=1, need="2"), "how many must approve"),
    "need 1.5": (lambda run: run.approval("a", action=1, need=1.5), "how many must approve"),
    "need more": (
        lambda run: run.approval("a", action=1, need=2, approvers=["b", "b"]),
        "can never approve",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_call_that_means_nothing_ends_its_run_and_says_why(
    dsn: str, conn: Conn, case: str
) -> None:
    ask, told = BAD[case]

    async def handler(run: Run) -> Any:
        await ask(run)

    held = begin(conn)
    work(dsn, held, handler)

    status, code, reason = one(
        conn,
        "select array[status, failure_code, failure_reason] from semel.runs where run_id = %s",
        held.run_id,
    )
    assert (status, code) == ("FAILED", "E-CONFIG-001" if "tries" in case else "E-REQUEST-001")
    assert told in reason


def test_a_refusal_that_passes_is_tried_again() -> None:
    assert [final(BadRequest("no")), final(TooOften("slower"))] == [True, False]


@pytest.mark.parametrize("what", ["delay", "deadline"])
def test_a_run_is_not_put_off_for_ever(conn: Conn, what: str) -> None:
    late: Any = {what: FOREVER}

    with pytest.raises(BadRequest, match=f"{what}=.*at most 36525 days"):
        semel.start(conn, project="p", agent="a", **late)


def test_who_wants_it_done_may_approve_unless_four_eyes_are_asked_for(
    dsn: str, conn: Conn
) -> None:
    async def handler(run: Run) -> Any:
        await run.approval("a", action=1, approvers=["b", "c"], need=2, requester="b")

    held = begin(conn)
    work(dsn, held, handler)

    assert "WAITING_APPROVAL" == one(
        conn, "select status from semel.runs where run_id = %s", held.run_id
    )


def test_a_plain_function_of_a_thread_may_answer_an_awaitable(dsn: str, conn: Conn) -> None:
    async def answer() -> int:
        return 7

    def asked() -> Any:
        return answer()

    held = begin(conn)
    work(dsn, held, lambda run: run.step("a", asked))

    assert one(conn, "select result from semel.runs where run_id = %s", held.run_id) == 7


# -- in a world ---------------------------------------------------------------------------------

app = App()
beside_it: list[Any] = []


@app.compensation("asks for a step")
async def asks_for_a_step(run: Run) -> None:
    await run.step("more", list)


@app.compensation("fine")
def fine() -> None:
    pass


@app.agent("saga", max_attempts=1)
async def saga(run: Run) -> None:
    await run.step("first", list, undo="fine")
    await run.step("second", list, undo="asks for a step")
    raise RuntimeError("no")


@app.agent("beside")
async def beside(run: Run) -> None:
    waiting = asyncio.ensure_future(run.signal("go"))
    beside_it.append(waiting)
    await asyncio.sleep(0)  # it waits first, and is told first
    await run.sleep(60)
    await waiting


def test_an_undo_that_asks_for_a_step_leaves_it_named(dsn: str) -> None:
    async def story() -> None:
        async with World(app, dsn) as world:
            run = await world.start("saga")
            for _ in range(12):
                await world.drain()
                world.advance(minutes=10)
            undo = await world.undo(run)
            assert undo is not None
            assert (undo.status, undo.failure_code) == ("FAILED", "E-STEP-006")
            assert undo.failure_reason.endswith("not undone: second, first")

    asyncio.run(story())


def test_a_task_whose_run_was_parked_is_no_fault_for_asyncio_to_log(dsn: str) -> None:
    async def story() -> None:
        async with World(app, dsn) as world:
            await world.start("beside")
            await world.drain()

    asyncio.run(story())

    assert [task._log_traceback for task in beside_it] == [False]
