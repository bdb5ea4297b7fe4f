"""A handler is led the same way in every attempt: by what it reads, what it caught, what it gave up."""

import asyncio
import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable import begin, claim
from fix_world import Conn, one
from semel import App, Retry, Run
from semel.core.text import dump, settled
from semel.testing import World
from workshop import work

DAYS = timedelta(days=1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3),
    lambda of: st.lists(of, max_size=3)
    | st.dictionaries(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3),
        of,
        max_size=4,
    ),
    max_leaves=8,
)  # fmt: skip


def status(conn: Conn, run_id: Any) -> Any:
    return one(conn, "select status from semel.runs where run_id = %s", run_id)


def test_a_value_is_settled_as_the_database_gives_it_back(conn: Conn) -> None:
    @given(JSON)
    def settles(value: Any) -> None:
        text = dump(value)
        back = one(conn, "select %s::jsonb::text", text)
        assert repr(json.loads(back)) == repr(settled(json.loads(text)))

    settles()


def test_a_result_is_read_alike_now_and_later(dsn: str, conn: Conn) -> None:
    odd = {"zebra": 1e23, "ant": -0.0, "b": {"bb": 1, "a": (2,)}}
    read: list[str] = []

    async def handler(run: Run) -> Any:
        called = await run.step("called", lambda: odd)
        written = await run.transaction("written", lambda _: odd)
        async with run.transaction("block") as tx:
            tx.result = odd
        read.append(repr([called, written, tx.result]))
        for name in called:
            await run.step(f"restart {name}", read.append, name)
        if run.attempt == 1:
            raise RuntimeError("again")

    held = begin(conn)
    work(dsn, held, handler)
    work(dsn, claim(conn), handler)

    first, *restarted, later = read
    assert first == later
    assert restarted == ["b", "ant", "zebra"]
    assert status(conn, held.run_id) == "COMPLETED"


@pytest.mark.parametrize("beside", ["called", "begun"])
def test_steps_beside_a_handler_that_caught_an_error_are_in_spite_of_it(
    dsn: str, conn: Conn, beside: str
) -> None:
    executed: list[str] = []

    def charge() -> None:
        executed.append("charge")
        raise ConnectionError("busy")

    async def handler(run: Run) -> Any:
        async def instead(name: str) -> None:
            await run.step(name, executed.append, name)

        step = run.step if beside == "called" else lambda name, *_: instead(name)
        try:
            await run.step("charge", charge)
        except ConnectionError:
            await asyncio.gather(*(step(name, executed.append, name) for name in ("a", "b")))
        if run.attempt == 1:
            raise RuntimeError("again")

    held = begin(conn)
    work(dsn, held, handler)
    work(dsn, claim(conn), handler)

    assert sorted(executed) == ["a", "b", "charge"]
    assert status(conn, held.run_id) == "COMPLETED"


def test_an_error_out_of_a_gather_is_gone_on_from_by_the_next(dsn: str, conn: Conn) -> None:
    executed: list[str] = []

    def charge() -> None:
        executed.append("charge")
        raise ConnectionError("busy")

    async def handler(run: Run) -> Any:
        try:
            await asyncio.gather(
                run.step("charge", charge), run.step("a", executed.append, "a")
            )
        except ConnectionError:
            await asyncio.gather(
                run.step("b", executed.append, "b"),
                run.transaction("c", lambda _: executed.append("c")),
            )
        if run.attempt == 1:
            raise RuntimeError("again")

    held = begin(conn)
    work(dsn, held, handler)
    work(dsn, claim(conn), handler)

    assert sorted(executed) == ["a", "b", "c", "charge"]
    assert status(conn, held.run_id) == "COMPLETED"


def test_a_step_that_is_given_up_in_its_pause_stays_given_up(dsn: str, conn: Conn) -> None:
    executed: list[str] = []

    def busy() -> None:
        executed.append("busy")
        if run_attempts == [1]:
            raise ConnectionError("busy")

    run_attempts: list[int] = []

    async def handler(run: Run) -> Any:
        run_attempts.append(run.attempt)
        pause = Retry(attempts=5, base=DAYS, cap=DAYS, park_after=2 * DAYS)  # in place
        try:
            async with asyncio.timeout(1):
                await run.step("busy", busy, retry=pause)
        except TimeoutError:
            await run.step("instead", executed.append, "instead")
        if run.attempt == 1:
            raise RuntimeError("again")

    held = begin(conn)
    work(dsn, held, handler)
    work(dsn, claim(conn), handler)

    assert executed == ["busy", "instead"]
    assert status(conn, held.run_id) == "COMPLETED"


def test_a_result_that_comes_after_its_step_was_given_up_is_too_late(
    dsn: str, conn: Conn
) -> None:
    executed: list[str] = []

    async def handler(run: Run) -> Any:
        def last() -> None:
            executed.append("slow")

        progress = run._steps()._progress
        record = progress.record

        async def recorded(entry: Any) -> Any:
            if entry.key == "slow":  # executed, and on its way to the journal
                asyncio.get_running_loop().call_soon(task.cancel)
            return await record(entry)

        progress.record = recorded  # type: ignore[method-assign]
        task = asyncio.ensure_future(run.step("slow", last))
        try:
            await task
        except (asyncio.CancelledError, TimeoutError):
            await run.step("instead", executed.append, "instead")
        if run.attempt == 1:
            raise RuntimeError("again")

    held = begin(conn)
    work(dsn, held, handler)
    work(dsn, claim(conn), handler)

    assert executed == ["slow", "instead"]
    assert status(conn, held.run_id) == "COMPLETED"


# -- waits beside the handler -------------------------------------------------------------------

app = App()
did: list[str] = []


@app.agent("leaves", max_attempts=3)
async def leaves(run: Run) -> Any:
    """Waits for people and for a time; goes on without the people, then waits for them again."""
    asked: asyncio.Task[Any] = asyncio.ensure_future(
        run.signal("go")
        if run.input == "signal"
        else run.approval("go", action=1, ttl=timedelta(minutes=5))
    )
    await asyncio.sleep(0)
    await run.sleep(timedelta(minutes=1))
    asked.cancel()
    with suppress(asyncio.CancelledError, TimeoutError):
        await asked
    await run.step("instead", did.append, "instead")
    return await run.signal("go")


@pytest.mark.parametrize("what", ["signal", "approval"])
@pytest.mark.parametrize("point", ["worker.step.after", "worker.park.before"])
def test_a_wait_that_was_given_up_is_none_for_the_next_worker(
    dsn: str, what: str, point: str
) -> None:
    did.clear()

    async def story() -> None:
        async with World(app, dsn) as world:
            run = await world.start("leaves", what)
            await world.drain()
            world.advance(minutes=1)
            world.crash_at(point)
            await world.drain()
            world.advance(minutes=9)  # a question would be over
            await world.drain()

            if what == "approval":
                assert [one.state for one in await world.approvals(run)] == ["VOID"]
            await world.signal(run, "go", "here it is")
            await world.drain()
            assert (await world.run(run)).result == "here it is"
            assert did == ["instead"]

    asyncio.run(story())


@app.agent("listens")
async def listens(run: Run) -> Any:
    """Listens beside what it does."""
    heard = asyncio.ensure_future(run.signal("go"))
    await run.sleep(timedelta(minutes=1))
    heard.cancel()
    return "done"


def test_what_was_heard_beside_the_handler_is_asked_for_again(dsn: str) -> None:
    async def story() -> None:
        async with World(app, dsn) as world:
            run = await world.start("listens")
            await world.drain()
            await world.signal(run, "go", 1)
            await world.drain()
            world.advance(minutes=1)
            await world.drain()
            found = await world.run(run)
            assert (found.status, found.result) == ("COMPLETED", "done")

    asyncio.run(story())


@app.agent("nests")
async def nests(run: Run) -> Any:
    """Its steps are far below it, and it listens beside them."""

    async def below(depth: int, name: str) -> None:
        if depth:
            await asyncio.gather(below(depth - 1, f"{name}0"), below(depth - 1, f"{name}1"))
        else:
            await run.step(name, did.append, name)

    heard = asyncio.ensure_future(run.signal("go"))
    await below(run.input, "s")
    await run.step("last", did.append, "last")
    heard.cancel()


@pytest.mark.parametrize("depth", [2, 7])
def test_a_handler_is_not_parked_while_its_steps_are_coming_back_to_it(
    dsn: str, depth: int
) -> None:
    did.clear()

    async def story() -> None:
        async with World(app, dsn) as world:
            run = await world.start("nests", depth)
            await world.drain()
            assert (await world.run(run)).status == "COMPLETED"
            assert len(did) == 2**depth + 1

    asyncio.run(story())


def test_what_a_failing_step_cancelled_beside_it_is_cancelled_again(
    dsn: str, conn: Conn
) -> None:
    """Not one error more than the first attempt had, and not one result less."""
    executed: list[Any] = []
    begun, both = asyncio.Event(), asyncio.Event()

    def bad() -> None:
        raise ConnectionError("busy")

    async def slowly() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def handler(run: Run) -> Any:
        quick: Any = None
        slow: Any = None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails(run))
                quick = group.create_task(run.step("quick", executed.append, "quick"))
                slow = group.create_task(run.step("slow", slowly))
                if run.attempt == 1:
                    await asyncio.wait([quick])
                    await begun.wait()
                    both.set()
        except* ConnectionError:
            executed.append([quick.done() and not quick.cancelled(), slow.cancelled()])
        await run.step("instead", executed.append, "instead")
        if run.attempt == 1:
            raise RuntimeError("again")

    async def fails(run: Run) -> None:
        if run.attempt == 1:
            await both.wait()
        await run.step("bad", bad)

    held = begin(conn)
    work(dsn, held, handler)
    work(dsn, claim(conn), handler)

    assert executed == ["quick", [True, True], "instead", [True, True]]
    assert status(conn, held.run_id) == "COMPLETED"
