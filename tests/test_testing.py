"""semel.testing: agents on a real database, with the clock and the worker in a test's hands."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import semel
from semel import App, ApprovalRejected, Retry, Run
from semel.errors import ApprovalDecided, ApprovalExpired, Forbidden, NoSuchApproval, RunRefused
from semel.testing import POINTS, Clock, World

Story = Callable[[World], Awaitable[None]]

app = App()
done: list[str] = []
world_now: list[World] = []


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    done.clear()
    yield
    world_now.clear()


@pytest.fixture
def play(dsn: str) -> Callable[..., None]:
    """Play a story in a world on this test's database."""

    def in_world(story: Story, **options: Any) -> None:
        async def whole() -> None:
            async with World(app, dsn, **options) as world:
                world_now.append(world)
                await story(world)

        asyncio.run(whole())

    return in_world


def did(word: str) -> str:
    done.append(word)
    return word.upper()


@app.compensation("undo")
def undo(word: str, result: Any = None) -> None:
    done.append(f"undo {word} {result}")


@app.agent("restart")
async def restart(run: Run) -> Any:
    found = await run.step("diagnose", did, "diagnose")
    try:
        await run.approval("restart web", action={"pod": "web-1"}, ttl=timedelta(minutes=15))
    except ApprovalRejected:
        return "left alone"
    await run.step("restart", did, "restart", undo=undo)
    if run.input == "fails":
        raise semel.DoNotRetry("it did not come back")
    return found


@app.agent("restart-in-thread")
def restart_in_thread(run: Run) -> Any:
    run.step("diagnose", did, "diagnose")
    run.approval("restart web", action={"pod": "web-1"})
    with run.transaction("record") as tx:
        tx.execute("insert into public.incident values (%s)", (run.id,))
    return run.step("restart", did, "restart")


@app.agent("sleeper")
async def sleeper(run: Run) -> Any:
    await run.sleep(timedelta(hours=1))
    return await run.signal("go", timeout=timedelta(days=1))


@app.agent("parent")
async def parent(run: Run) -> Any:
    child = await run.spawn("sleeper", delay=timedelta(minutes=10))
    return await child.result()


@app.agent("flaky", max_attempts=2)
async def flaky(run: Run) -> Any:
    def fails() -> None:
        did("try")
        raise ValueError("no")

    await run.step("flaky", fails, retry=Retry(attempts=3))


@app.agent("dies")
async def dies(run: Run) -> Any:
    def dies() -> str:
        did("begun")
        if run.attempt == 1:
            world_now[0].crash()
        return did("ended")

    return await run.step("dies", dies)


# -- time -----------------------------------------------------------------------------------


def test_a_clock_stands_still_until_it_is_told() -> None:
    clock = Clock()
    beginning = clock.now

    assert clock() == clock.now == datetime(2026, 1, 1, 9, tzinfo=UTC)
    assert beginning + timedelta(minutes=15) == clock.advance(minutes=15)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(timedelta(seconds=-1))
    with pytest.raises(ValueError, match="has no time zone"):
        Clock(datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is refused


def test_hours_and_days_pass_at_once(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        run = await world.start("parent")
        await world.drain()
        for minutes, state in [(9, "WAITING_TOOL"), (1, "WAITING_TOOL"), (60, "WAITING_TOOL")]:
            world.advance(minutes=minutes)
            await world.drain()
            assert state == (await world.run(run)).status
        [child] = await world.runs(parent=run)
        world.advance(hours=23)
        await world.signal(child.run_id, "go", {"from": "us"})
        await world.drain()

        ended = await world.run(run)
        assert ("COMPLETED", {"from": "us"}) == (ended.status, ended.result)
        assert world.clock.now == ended.finished_at
        with pytest.raises(RunRefused, match="COMPLETED"):
            await world.signal(run, "go")

    play(story)


def test_a_steps_pauses_are_the_clocks(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        run = await world.start("flaky")
        for tries in (1, 2, 3):
            await world.drain()
            assert ["try"] * tries == done
            world.advance(seconds=2)
        world.advance(seconds=1)
        await world.drain()
        assert 2 == (await world.run(run)).attempt_count
        for _ in range(3):
            world.advance(minutes=5)
            await world.drain()
        failed = await world.run(run)
        assert ("FAILED", "E-RUN-003") == (failed.status, failed.failure_code)
        assert ["try"] * 6 == done

    play(story)


# -- people ---------------------------------------------------------------------------------


def test_an_approval_is_told_waited_for_and_decided(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        run = await world.start("restart")
        assert 2 == await world.drain()  # the attempt, and the letter
        assert "WAITING_APPROVAL" == (await world.run(run)).status
        [letter] = world.letters
        assert ("oncall", "restart web", {"pod": "web-1"}, run) == (
            letter.recipient,
            letter.title,
            letter.action,
            letter.run_id,
        )
        world.advance(minutes=14)

        await world.decide(run, "approve", voter="alice")
        await world.drain()

        assert "DIAGNOSE" == (await world.run(run)).result
        assert ["diagnose", "restart"] == done
        with pytest.raises(ApprovalDecided):
            await world.decide(run, "reject")

    play(story)


def test_a_rejection_is_the_handlers_to_answer(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        run = await world.start("restart")
        with pytest.raises(NoSuchApproval, match="asks 0 questions"):
            await world.decide(run, "approve")
        await world.drain()
        await world.decide(run, "reject", reason="not now")
        await world.drain()
        assert "left alone" == (await world.run(run)).result
        assert ["diagnose"] == done

    play(story)


def test_what_is_not_decided_in_time_has_failed(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        run = await world.start("restart")
        await world.drain()
        world.advance(minutes=15)
        with pytest.raises(ApprovalExpired):
            await world.decide(run, "approve")
        await world.drain()
        failed = await world.run(run)
        assert ("FAILED", "E-APPROVAL-002") == (failed.status, failed.failure_code)

    play(story)


def test_who_is_no_approver_is_told(play: Callable[..., None], dsn: str) -> None:
    asking = App()

    @asking.agent("asks")
    async def asks(run: Run) -> Any:
        return await run.approval("go", action=1, approvers=["alice", "bob"], need=2)

    async def story() -> None:
        async with World(asking, dsn, recipients=["alice", "bob"]) as world:
            run = await world.start("asks")
            await world.drain()
            assert ["alice", "bob"] == sorted(letter.recipient for letter in world.letters)
            with pytest.raises(Forbidden, match="mallory"):
                await world.decide(run, "approve", voter="mallory")
            assert "voted" == (await world.decide(run, "approve", voter="alice")).outcome
            assert "won" == (await world.decide(run, "approve", voter="bob")).outcome
            await world.drain()
            assert ["alice", "bob"] == (await world.run(run)).result["by"]

    asyncio.run(story())


# -- faults ---------------------------------------------------------------------------------


def test_a_failed_run_is_undone(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        run = await world.start("restart", "fails")
        await world.drain()
        assert await world.undo(run) is None
        await world.decide(run, "approve")
        await world.drain()
        compensation = await world.undo(run)
        assert compensation
        assert ("FAILED", "COMPLETED") == (
            (await world.run(run)).status,
            compensation.status,
        )
        assert ["diagnose", "restart", "undo restart RESTART"] == done

    play(story)


def test_a_process_that_dies_in_a_step_comes_no_further(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        run = await world.start("dies")
        await world.drain()
        assert ["begun"] == done
        assert ("RUNNING", "world-1") == (
            (found := await world.run(run)).status,
            found.worker_id,
        )
        world.advance(seconds=29)
        await world.drain()
        assert "RUNNING" == (await world.run(run)).status

        world.advance(seconds=2)
        await world.drain()

        ended = await world.run(run)
        assert ("COMPLETED", 2, "world-2") == (
            ended.status,
            ended.attempt_count,
            ended.worker_id,
        )
        assert ["begun", "begun", "ended"] == done

    play(story)


@pytest.mark.parametrize("agent", ["restart", "restart-in-thread"])
@pytest.mark.parametrize("point", POINTS)
def test_a_process_may_die_at_every_point(
    play: Callable[..., None], conn: Any, point: str, agent: str
) -> None:
    conn.execute("create table public.incident (run_id uuid primary key)")

    async def story(world: World) -> None:
        run = await world.start(agent)
        # The first completion is that of the letter: the run's own is the second.
        world.crash_at(point, nth=2 if "complete" in point else 1)
        for _ in range(3):
            await world.drain()
            asked = await world.approvals(run)
            if asked and asked[-1].state == "PENDING":
                await world.decide(run, "approve")
                await world.drain()
            world.advance(seconds=31)
            await world.drain()

        ended = await world.run(run)
        assert "COMPLETED" == ended.status
        if agent == "restart" and "transaction" in point:
            assert [point] == world.points
            return
        assert [] == world.points
        holds_none = {"worker.claim.before", "worker.park.after", "worker.complete.after"}
        assert (1 if point in holds_none else 2) == ended.attempt_count
        assert 1 == len(world.letters)
        twice = point == "worker.step.before"  # the effect was there, its journal was not
        assert ["diagnose"] * (1 + twice) + ["restart"] == done
        if agent == "restart-in-thread":
            assert 1 == conn.execute("select count(*) from public.incident").fetchone()[0]

    play(story)


def test_who_has_lost_his_lease_writes_nothing_more(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        run = await world.start("restart")
        world.lose_at("worker.step.before")
        await world.drain()
        assert ["diagnose", "diagnose"] == done
        assert "WAITING_APPROVAL" == (await world.run(run)).status
        assert 2 == (await world.run(run)).attempt_count

    play(story)


def test_something_may_happen_in_the_middle(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        run = await world.start("restart")
        world.at("worker.park.before", lambda: world.cancel(run))
        await world.drain()
        assert "CANCELLED" == (await world.run(run)).status
        assert [] == world.letters
        assert [] == await world.approvals(run)

        again = await world.retry(run)
        await world.drain()
        assert "WAITING_APPROVAL" == (await world.run(again)).status
        assert ["diagnose"] == done

    play(story)


def test_a_cancel_in_the_middle_undoes_what_was_done(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        run = await world.start("restart")
        await world.drain()
        await world.decide(run, "approve")
        world.at("worker.step.before", lambda: world.cancel(run), nth=2)
        await world.drain()
        assert ["diagnose", "restart", "undo restart None"] == done
        assert "CANCELLED" == (await world.run(run)).status

    play(story)


def test_what_fails_at_a_point_fails_the_test(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        async def nobody_asks() -> None:
            assert await world.approvals(run)

        run = await world.start("restart")
        world.at("worker.park.before", nobody_asks)
        with pytest.raises(AssertionError):
            await world.drain()
        assert "WAITING_APPROVAL" == (await world.run(run)).status
        assert 0 == await world.drain()

    play(story)


def test_runs_of_another_version_are_left_alone(dsn: str) -> None:
    old, new = App(), App()

    async def waits(run: Run) -> Any:
        return await run.signal("go")

    old.agent("waits", version="1")(waits)
    new.agent("waits", version="2")(waits)

    async def story() -> None:
        async with World(old, dsn) as world:
            run = await world.start("waits")
            await world.drain()
            await world.signal(run, "go", "on")
        async with World(new, dsn) as world:
            assert 0 == await world.drain()
            assert ("RESUMED", "1") == (
                (left := await world.run(run)).status,
                left.version,
            )
        async with World(old, dsn) as world:
            await world.drain()
            assert "on" == (await world.run(run)).result

    asyncio.run(story())


def test_a_handler_for_a_process_of_its_own_works_in_this_one(dsn: str) -> None:
    alone = App()

    @alone.agent("alone", executor="process")
    def in_process(run: Run) -> Any:
        return run.step("did", did, "did")

    async def story() -> None:
        async with World(alone, dsn) as world:
            run = await world.start("alone", key="k")
            assert run == await world.start("alone", key="k")
            await world.drain()
            assert "DID" == (await world.run(run)).result

    asyncio.run(story())


def test_what_cannot_be_is_refused(play: Callable[..., None], dsn: str) -> None:
    async def story(world: World) -> None:
        with pytest.raises(ValueError, match=r"no worker passes 'worker\.nowhere'"):
            world.crash_at("worker.nowhere")
        with pytest.raises(ValueError, match="the next passage is 1"):
            world.crash_at("worker.step.after", nth=0)
        with pytest.raises(ValueError, match="has no agent 'nobody'"):
            await world.start("nobody")

        async def drains(run: Run) -> None:
            await world.drain()

        greedy = App()
        greedy.agent("drains", max_attempts=1)(drains)
        async with World(greedy, dsn, project="greedy") as inner:
            run = await inner.start("drains")
            world = inner
            await inner.drain()
            [attempt] = await inner.attempts(run)
            assert "at work already" in attempt.reason

    play(story)
