"""once when the connection is lost: what became of the operation is asked for, never guessed."""

# ruff: noqa: ASYNC110 - what is waited for is a row of the database

import asyncio
from typing import Any

import psycopg
import pytest

from cut import Loss, cut
from fix_world import Conn, one
from semel import once
from semel.db.ledger import drive
from semel.errors import DatabaseUnreachable, TransactionEnded, UnknownOutcome
from ways import WAYS, Way

EVERY = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)


@pytest.fixture(autouse=True)
def _paid(conn: Conn) -> None:
    conn.execute("create table public.paid (id int primary key)")


def rows(conn: Conn) -> int:
    return int(one(conn, "select count(*) from public.paid"))


def state(conn: Conn) -> tuple[str, int] | None:
    found = conn.execute("select status, attempts from semel.operation").fetchall()
    return (found[0][0], found[0][1]) if found else None


async def pay(way: Way, conn: Any, number: int = 1, **told: Any) -> bytes:
    async with way.once(conn, **told) as op:
        if op.replay is None:
            await way.execute(conn, "insert into public.paid values (%s)", number)
            op.reply({"id": number})
    return op.response().body


@EVERY
def test_an_answer_of_commit_that_is_lost_changes_nothing(
    way: Way, dsn: str, conn: Conn
) -> None:
    with cut(dsn) as between:

        async def act(mine: Any) -> None:
            between.lose("answer")
            assert b'{"id":1}' == await pay(way, mine)
            assert between.lost

        way.play(between.dsn, act)
        way.play(between.dsn, lambda mine: _again(way, mine))
    assert (1, ("SUCCEEDED", 1)) == (rows(conn), state(conn))


async def _again(way: Way, mine: Any) -> None:
    assert b'{"id":1}' == await pay(way, mine, 2)


@EVERY
def test_a_commit_that_never_arrived_is_a_failure_counted_once(
    way: Way, dsn: str, conn: Conn
) -> None:
    with cut(dsn) as between:

        async def act(mine: Any) -> None:
            between.lose("request")
            with pytest.raises(DatabaseUnreachable, match="nothing was committed"):
                await pay(way, mine)

        way.play(between.dsn, act)
        assert (0, ("FAILED", 1)) == (rows(conn), state(conn))
        way.play(between.dsn, lambda mine: _again_executes(way, mine))
    assert (1, ("SUCCEEDED", 2)) == (rows(conn), state(conn))


async def _again_executes(way: Way, mine: Any) -> None:
    assert b'{"id":2}' == await pay(way, mine, 2)


def test_a_commit_that_is_still_on_its_way_is_not_known_and_not_a_failure(
    dsn: str, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import timedelta

    from semel.core import operations

    monkeypatch.setattr(
        operations.operation_recover,
        "__kwdefaults__",
        {
            **(operations.operation_recover.__kwdefaults__ or {}),
            "wait": timedelta(milliseconds=50),
        },
    )
    way = WAYS[2]
    with cut(dsn) as between:

        async def act(mine: Any) -> None:
            between.lose("late")
            with pytest.raises(UnknownOutcome) as raised:
                await pay(way, mine)
            assert raised.value.retryable
            assert state(conn) is None

        way.play(between.dsn, act)
        between.let()
        way.play(dsn, lambda mine: _again(way, mine))
    assert (1, ("SUCCEEDED", 1)) == (rows(conn), state(conn))


def test_without_another_connection_the_outcome_is_not_known(dsn: str, conn: Conn) -> None:
    way = WAYS[2]

    def nowhere() -> Any:
        raise DatabaseUnreachable("no")

    with cut(dsn) as between:

        async def act(mine: Any) -> None:
            between.lose("answer")
            with pytest.raises(UnknownOutcome):
                await pay(way, mine, reconnect=nowhere)

        way.play(between.dsn, act)
    assert (1, ("SUCCEEDED", 1)) == (rows(conn), state(conn))


@EVERY
def test_a_backend_that_dies_in_the_work_leaves_the_state_from_before(
    way: Way, dsn: str, conn: Conn
) -> None:
    async def act(mine: Any) -> None:
        with pytest.raises(DatabaseUnreachable, match="nothing was kept"):
            async with way.once(mine):
                await way.execute(mine, "insert into public.paid values (1)")
                [[pid]] = await way.execute(mine, "select pg_backend_pid()")
                conn.execute("select pg_terminate_backend(%s, 5000)", (pid,))
                await way.execute(mine, "select 1")

    way.play(dsn, act)
    assert (0, None) == (rows(conn), state(conn))
    way.play(dsn, lambda mine: _again_executes(way, mine))
    assert ("SUCCEEDED", 1) == state(conn)


@pytest.mark.parametrize("way", WAYS[:4], ids=lambda way: way.name)
def test_work_that_closes_the_connection_is_found_out(way: Way, dsn: str, conn: Conn) -> None:
    async def act(mine: Any) -> None:
        with pytest.raises(TransactionEnded):
            async with way.once(mine) as op:
                await way.execute(mine, "insert into public.paid values (1)")
                closed = mine.close()
                if asyncio.iscoroutine(closed):
                    await closed
                op.reply({"ok": True})

    way.play(dsn, act)
    assert (0, ("FAILED", 1)) == (rows(conn), state(conn))
    way.play(dsn, lambda mine: _again_executes(way, mine))
    assert ("SUCCEEDED", 2) == state(conn)


@pytest.mark.parametrize("way", WAYS[2:4], ids=lambda way: way.name)
@pytest.mark.parametrize("loss", ["answer", "request"])
def test_a_failure_that_could_not_be_committed_is_recorded_once(
    way: Way, loss: Loss, dsn: str, conn: Conn
) -> None:
    with cut(dsn) as between:

        async def act(mine: Any) -> None:
            with pytest.raises(ZeroDivisionError):
                async with way.once(mine):
                    await way.execute(mine, "insert into public.paid values (1)")
                    between.lose(loss)
                    raise ZeroDivisionError
            assert between.lost

        way.play(between.dsn, act)
    assert (0, ("FAILED", 1)) == (rows(conn), state(conn))


# -- cancellation ---------------------------------------------------------------------------

AWAITED = [way for way in WAYS if not way.sync]


@pytest.mark.parametrize("way", AWAITED, ids=lambda way: way.name)
def test_who_is_cancelled_as_it_begins_leaves_the_key_free(
    way: Way, dsn: str, conn: Conn
) -> None:
    """It waits for another's claim, which comes to nothing just then."""

    async def act(mine: Any) -> None:
        async def work() -> None:
            async with way.once(mine):
                raise AssertionError("the work began")

        with psycopg.connect(dsn) as other:
            once(other, project="p", actor="a", key="k", operation="pay").__enter__()
            task = asyncio.create_task(work())
            waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
            while not one(conn, waits):
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.sleep(0)
            other.rollback()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert state(conn) is None
        assert b'{"id":2}' == await pay(way, mine, 2)

    way.play(dsn, act)
    assert (1, ("SUCCEEDED", 1)) == (rows(conn), state(conn))


@pytest.mark.parametrize("way", AWAITED, ids=lambda way: way.name)
def test_who_is_cancelled_in_the_work_leaves_the_key_free(
    way: Way, dsn: str, conn: Conn
) -> None:
    async def act(mine: Any) -> None:
        inside = asyncio.Event()

        async def work() -> None:
            async with way.once(mine):
                await way.execute(mine, "insert into public.paid values (1)")
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert b'{"id":2}' == await pay(way, mine, 2)

    way.play(dsn, act)
    assert (1, ("SUCCEEDED", 1)) == (rows(conn), state(conn))


@pytest.mark.parametrize("way", AWAITED[:-1], ids=lambda way: way.name)
def test_who_is_cancelled_in_a_statement_leaves_the_key_free(
    way: Way, dsn: str, conn: Conn
) -> None:
    async def act(mine: Any) -> None:
        async def work() -> None:
            async with way.once(mine):
                await way.execute(mine, "insert into public.paid values (1)")
                await way.execute(mine, "select pg_sleep(600)")

        task = asyncio.create_task(work())
        sleeping = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
        while not one(conn, sleeping):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while one(conn, sleeping):
            await asyncio.sleep(0.01)

    way.play(dsn, act)
    assert (0, None) == (rows(conn), state(conn))
    way.play(dsn, lambda mine: _again_executes(way, mine))


@pytest.mark.parametrize("way", AWAITED, ids=lambda way: way.name)
def test_who_is_cancelled_at_commit_has_committed(way: Way, dsn: str, conn: Conn) -> None:
    """The COMMIT waits for a lock of ours; the caller is cancelled meanwhile, twice."""
    conn.execute(
        "create function public.hold() returns trigger language plpgsql as $$ begin"
        " perform pg_advisory_xact_lock(7); return null; end $$"
    )
    conn.execute(
        "create constraint trigger hold after insert on public.paid deferrable initially deferred"
        " for each row execute function public.hold()"
    )

    async def act(mine: Any) -> None:
        conn.execute("select pg_advisory_lock(7)")
        task = asyncio.create_task(pay(way, mine))
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        while not one(conn, waiting):
            await asyncio.sleep(0.01)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        conn.execute("select pg_advisory_unlock(7)")
        with pytest.raises(asyncio.CancelledError):
            await task

    way.play(dsn, act)
    assert (1, ("SUCCEEDED", 1)) == (rows(conn), state(conn))


def test_patience_ends(dsn: str, conn: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    """As before, but the lock is never given: the caller is not kept for ever."""
    monkeypatch.setattr(drive, "PATIENCE_SECONDS", 0.05)
    way = WAYS[2]
    conn.execute("create table public.held (id int)")
    conn.execute(
        "create function public.hold() returns trigger language plpgsql as $$ begin"
        " perform pg_advisory_xact_lock(7); return null; end $$"
    )
    conn.execute(
        "create constraint trigger hold after insert on public.paid deferrable initially deferred"
        " for each row execute function public.hold()"
    )

    async def act(mine: Any) -> None:
        conn.execute("select pg_advisory_lock(7)")
        task = asyncio.create_task(pay(way, mine))
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        while not one(conn, waiting):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        conn.execute("select pg_advisory_unlock(7)")

    way.play(dsn, act)
    assert (0, None) == (rows(conn), state(conn))
