"""cases.md R1: a handler whose run was given to another writes nothing more, and is stopped."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from durable import begin, cancel, claim, everything, hear, park, say
from fix_world import DEAD, NOW, Conn, second
from semel import Run
from semel.core import recovery, transitions
from semel.db.execute import run
from semel.db.pool import connect
from semel.model import Claim
from workshop import work

#: Takes the run of a claim away from its worker.
Loss = Callable[[Conn, Claim], None]


# -- how it is lost --------------------------------------------------------------------------


def reaped_and_claimed_by_another(conn: Conn, held: Claim) -> None:
    run(conn, recovery.run_reap("p", dead_after=DEAD, trust=True, now=second(3600)))
    assert "w2" == claim(conn, "w2", at=3600).worker


def resumed_and_claimed_by_its_name(conn: Conn, held: Claim) -> None:
    """The same worker in the same attempt: the fence alone tells them apart."""
    park(conn, held, hear("elsewhere"))
    say(conn, held.run_id)
    again = claim(conn, held.worker)
    assert (held.worker, held.attempt) == (again.worker, again.attempt)


def retried_by_an_operator_and_claimed_by_its_name(conn: Conn, held: Claim) -> None:
    cancel(conn, held.run_id)
    run(conn, transitions.run_retry("p", held.run_id))
    claim(conn, held.worker)


def cancelled(conn: Conn, held: Claim) -> None:
    cancel(conn, held.run_id)


LOSSES: list[Loss] = [
    reaped_and_claimed_by_another,
    resumed_and_claimed_by_its_name,
    retried_by_an_operator_and_claimed_by_its_name,
    cancelled,
]

# -- what it does afterwards -----------------------------------------------------------------

Lose = Callable[[], None]
EXECUTED: list[str] = []


@pytest.fixture(autouse=True)
def nothing_yet() -> None:
    EXECUTED.clear()


def executed(word: str) -> str:
    EXECUTED.append(word)
    return word


async def a_result(run: Run, lose: Lose) -> None:
    await run.step("s", lose)


async def an_error(run: Run, lose: Lose) -> None:
    def fails() -> None:
        lose()
        raise ValueError("of its own")

    await run.step("s", fails)


async def an_intent(run: Run, lose: Lose) -> None:
    lose()
    await run.step("s", executed, "s", undo="u")


async def an_approval(run: Run, lose: Lose) -> None:
    lose()
    await run.approval("restart web", action={"pod": "web-1"})


async def a_wait(run: Run, lose: Lose) -> None:
    lose()
    await run.sleep(60)


async def a_child(run: Run, lose: Lose) -> None:
    lose()
    await run.spawn("kid", 1)


async def a_block(run: Run, lose: Lose) -> None:
    async with run.transaction("t") as tx:
        await tx.execute("insert into public.business values (1)")
        lose()


async def a_block_that_completes(run: Run, lose: Lose) -> None:
    async with run.transaction("t") as tx:
        await tx.execute("insert into public.business values (1)")
        await tx.start("kid", 1)
        tx.complete("done")
        lose()


async def a_block_that_begins(run: Run, lose: Lose) -> None:
    lose()
    async with run.transaction("t") as tx:
        executed("block")
        await tx.execute("insert into public.business values (1)")


def a_function_in_a_thread(run: Run, lose: Lose) -> None:
    def writes(conn: Conn) -> None:
        conn.execute("insert into public.business values (1)")
        lose()

    run.transaction("t", writes)


def a_result_in_a_thread(run: Run, lose: Lose) -> None:
    run.step("s", lose)


def a_wait_in_a_thread(run: Run, lose: Lose) -> None:
    lose()
    run.signal("go")


async def its_completion(run: Run, lose: Lose) -> str:
    lose()
    return "done"


async def its_failure(run: Run, lose: Lose) -> None:
    lose()
    raise RuntimeError("of its own")


WRITES: list[Callable[..., Any]] = [
    a_result,
    an_error,
    an_intent,
    an_approval,
    a_wait,
    a_child,
    a_block,
    a_block_that_completes,
    a_block_that_begins,
    a_function_in_a_thread,
    a_result_in_a_thread,
    a_wait_in_a_thread,
    its_completion,
    its_failure,
]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_r1_a_zombie_writes_nothing_and_is_stopped(
    dsn: str, conn: Conn, write: Callable[..., Any]
) -> None:
    conn.execute("create table public.business (value int)")
    for loss in LOSSES:
        held = begin(conn)
        left: list[dict[str, Any]] = []
        went_on: list[str] = []
        lose = partial(taken, dsn, held, loss, left)
        attempt = work(
            dsn,
            held,
            zombie(write, lose, went_on),
            undos={"u": lambda word, result: None},
            clock=lambda: NOW,
        )
        assert (loss, True) == (loss, attempt.lost)
        assert (loss, left) == (loss, [everything(conn)])
        assert (loss, [], []) == (loss, went_on, EXECUTED)
        assert [] == conn.execute("select value from public.business").fetchall()


def taken(dsn: str, held: Claim, loss: Loss, left: list[dict[str, Any]]) -> None:
    """Take the run of *held* away, and keep all that there is then."""
    with connect(dsn) as mine:
        loss(mine, held)
        left.append(everything(mine))


def zombie(write: Callable[..., Any], lose: Lose, went_on: list[str]) -> Callable[..., Any]:
    """A handler that loses its run and writes."""

    async def on_the_loop(run: Run) -> Any:
        returned = await write(run, lose)
        if write is not its_completion:
            went_on.append(write.__name__)
        return returned

    def in_a_thread(run: Run) -> None:
        write(run, lose)
        went_on.append(write.__name__)

    return on_the_loop if asyncio.iscoroutinefunction(write) else in_a_thread


def test_a_handler_that_keeps_on_is_told_so_at_each_step(dsn: str, conn: Conn) -> None:
    held = begin(conn)
    told: list[str] = []

    async def handler(run: Run) -> None:
        cancel(conn, held.run_id)
        for _ in range(3):
            try:
                await run.step("s", executed, "s")
            except BaseException as error:  # noqa: BLE001 - as no handler should
                told.append(type(error).__name__)

    assert work(dsn, held, handler).lost
    assert 3 == len(told)
    assert "Exception" not in told
    assert 1 >= len(EXECUTED)
