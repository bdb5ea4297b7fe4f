"""What a transaction says is in the journal with its rows, once, on every driver; and is taken so."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from connections import ASYNC, SYNC, psycopg_, psycopg_async, send
from cut import Loss, cut
from durable import begin, cancel, claim
from fix_world import Conn, one, status
from journals import join, kept, number, say, words
from semel import Run, journal
from semel.db.pool import connect
from semel.db.transact import atransact, transact
from semel.errors import BadRequest, JournalPassed, NoSuchConsumer, TooLarge
from workshop import work

Opened = Callable[[str], Any]
sync = pytest.mark.parametrize("opened", SYNC.values(), ids=SYNC)
on_loop = pytest.mark.parametrize("opened", ASYNC.values(), ids=ASYNC)


@pytest.fixture(autouse=True)
def business(conn: Conn) -> None:
    conn.execute("create table public.business (value int)")


# -- run.transaction -------------------------------------------------------------------------


def nothing() -> None:
    """What happens in the middle, mostly."""


async def async_block(run: Run, then: Callable[[], Any] = nothing) -> str:
    async with run.transaction("t") as tx:
        await tx.execute("insert into public.business values (1)")
        tx.journal("orders", {"id": 1})
        tx.journal("orders", {"id": 2})
        if not tx.done:
            await asyncio.to_thread(then)
    return "done"


def block(run: Run, then: Callable[[], Any] = nothing) -> str:
    with run.transaction("t") as tx:
        tx.execute("insert into public.business values (1)")
        tx.journal("orders", {"id": 1})
        tx.journal("orders", {"id": 2})
        if not tx.done:
            then()
    return "done"


def function(run: Run, then: Callable[[], Any] = nothing) -> str:
    def write(conn: Any) -> None:
        conn.execute("insert into public.business values (1)")
        for n in (1, 2):
            said = {"id": n}
            journal.append(
                conn, project=run.project, topic="orders", payload=said, run_id=run.id
            )
        then()

    run.transaction("t", write)
    return "done"


async def async_function(run: Run, then: Callable[[], Any] = nothing) -> str:
    async def write(conn: Any) -> None:
        await conn.execute("insert into public.business values (1)")
        for n in (1, 2):
            said = {"id": n}
            await journal.append(
                conn, project=run.project, topic="orders", payload=said, run_id=run.id
            )
        await asyncio.to_thread(then)

    await run.transaction("t", write)
    return "done"


FORMS = [block, async_block, function, async_function]
forms = pytest.mark.parametrize("form", FORMS)


def handling(
    form: Callable[..., Any],
    *,
    then: Callable[[], Any] = nothing,
    end: Callable[[], Any] = nothing,
) -> Callable[..., Any]:
    """The handler that goes *form*, with *then* in the middle and *end* after it."""

    async def on_the_loop(run: Run) -> Any:
        await form(run, then)
        return end()

    def in_a_thread(run: Run) -> Any:
        form(run, then)
        return end()

    return on_the_loop if inspect.iscoroutinefunction(form) else in_a_thread


@forms
def test_a_transaction_of_a_run_journals_once_however_often_its_handler_is_called(
    dsn: str, conn: Conn, form: Callable[..., Any]
) -> None:
    first = begin(conn)
    failures = [RuntimeError("again")]

    def end() -> str:
        if failures:
            raise failures.pop()
        return "done"

    work(dsn, first, handling(form, end=end))
    work(dsn, claim(conn), handling(form, end=end))

    number(conn)
    assert [{"id": 1}, {"id": 2}] == kept(conn)
    assert 1 == one(conn, "select count(*) from public.business")
    rows = conn.execute(
        "select distinct topic, run_id, request_id from semel.journal"
    ).fetchall()
    assert [("orders", first.run_id, None)] == rows


@forms
def test_nothing_is_journaled_for_a_run_whose_lease_was_lost(
    dsn: str, conn: Conn, form: Callable[..., Any]
) -> None:
    """The rows were written, the entries with them, and the fence refuses all of it."""
    held = begin(conn)

    attempt = work(dsn, held, handling(form, then=lambda: cancel(conn, held.run_id)))

    assert attempt.lost
    number(conn)
    assert [] == kept(conn)
    assert 0 == one(conn, "select count(*) from public.business")


@forms
@pytest.mark.parametrize("loss", ["request", "answer"])
def test_a_lost_commit_journals_once(
    dsn: str, conn: Conn, form: Callable[..., Any], loss: Loss
) -> None:
    held = begin(conn)
    with cut(dsn) as between:
        between.lose(loss)
        work(dsn, held, handling(form), lend=between.dsn)
        assert between.lost
    if "COMPLETED" != status(conn, held.run_id):
        work(dsn, claim(conn), handling(form))

    number(conn)
    assert [{"id": 1}, {"id": 2}] == kept(conn)
    assert 1 == one(conn, "select count(*) from public.business")


@pytest.mark.parametrize(
    ("topic", "payload", "error"),
    [("", 1, BadRequest), ("t", {1}, BadRequest), ("t", "x" * 300_000, TooLarge)],
)
def test_what_cannot_be_journaled_is_an_error_in_the_block(
    dsn: str, conn: Conn, topic: str, payload: Any, error: type[Exception]
) -> None:
    caught: list[str] = []

    async def handler(run: Run) -> str:
        async with run.transaction("t") as tx:
            await tx.execute("insert into public.business values (1)")
            try:
                tx.journal(topic, payload)
            except error as refused:
                caught.append(str(refused))
        return "done"

    work(dsn, begin(conn), handler)

    assert 1 == len(caught)
    assert (0, 1) == (number(conn), one(conn, "select count(*) from public.business"))


# -- any transaction -------------------------------------------------------------------------


@sync
def test_an_entry_is_one_with_the_callers_transaction(
    dsn: str, conn: Conn, opened: Opened
) -> None:
    def write(mine: Any) -> None:
        send(mine, "insert into public.business values (1)")
        journal.append(mine, project="p", topic="t", payload={"é": [1]}, request_id="r")

    class Refused(Exception):
        pass

    def refuse(mine: Any) -> None:
        write(mine)
        raise Refused

    with opened(dsn) as mine:
        transact(mine, lambda: write(mine))
        with pytest.raises(Refused):
            transact(mine, lambda: refuse(mine))

    assert 1 == number(conn)
    assert [{"é": [1]}] == kept(conn)


@on_loop
def test_an_entry_is_one_with_the_callers_transaction_on_the_loop(
    dsn: str, conn: Conn, opened: Opened
) -> None:
    async def go() -> None:
        async with opened(dsn) as mine:

            async def write() -> None:
                await send(mine, "insert into public.business values (1)")
                await journal.append(mine, project="p", topic="t", payload={"é": [1]})

            await atransact(mine, write)

    asyncio.run(go())

    assert 1 == number(conn)
    assert [{"é": [1]}] == kept(conn)


@sync
def test_entries_are_taken_with_the_callers_transaction(
    dsn: str, conn: Conn, opened: Opened
) -> None:
    say(conn, 1, 2)

    def take(mine: Any) -> Any:
        entries = journal.take(mine, project="p", consumer="c", topics=["t"], limit=1)
        send(mine, f"insert into public.business values ({entries[0].payload})")
        return words(entries)

    with opened(dsn) as mine:
        assert 0 == transact(mine, lambda: journal.join(mine, project="p", consumer="c"))
        assert 2 == transact(mine, lambda: journal.number(mine, project="p"))
        assert [1] == transact(mine, lambda: take(mine))
        with pytest.raises(ZeroDivisionError):
            transact(mine, lambda: take(mine) and 1 // 0)
        assert [2] == transact(mine, lambda: take(mine))

    assert [(1,), (2,)] == conn.execute("select value from public.business").fetchall()


@on_loop
def test_entries_are_taken_with_the_callers_transaction_on_the_loop(
    dsn: str, conn: Conn, opened: Opened
) -> None:
    say(conn, 1, 2)

    async def go() -> list[Any]:
        async with opened(dsn) as mine:
            await atransact(mine, lambda: journal.join(mine, project="p", consumer="c"))
            await atransact(mine, lambda: journal.number(mine, project="p"))

            async def take() -> Any:
                return words(await journal.take(mine, project="p", consumer="c"))

            return [await atransact(mine, take) for _ in range(2)]

    assert [[1, 2], []] == asyncio.run(go())


def test_nothing_is_taken_outside_a_transaction(dsn: str, conn: Conn) -> None:
    """It would be gone at once, whatever becomes of the work on it."""
    join(conn)
    say(conn, 1)
    number(conn)
    with pytest.raises(BadRequest, match="in none"):
        journal.take(conn, project="p", consumer="c")
    with SYNC["django"](dsn) as mine, pytest.raises(BadRequest, match="in none"):
        journal.take(mine, project="p", consumer="c")

    async def on_asyncpg() -> None:
        async with ASYNC["asyncpg"](dsn) as mine:
            with pytest.raises(BadRequest, match="in none"):
                await journal.take(mine, project="p", consumer="c")

    asyncio.run(on_asyncpg())
    assert [1] == words(transact(conn, lambda: journal.take(conn, project="p", consumer="c")))


def test_who_was_passed_or_is_unknown_is_told_by_an_error(conn: Conn) -> None:
    join(conn)
    conn.execute("update semel.journal_cursor set seq = 7")
    for consumer, error in (("c", JournalPassed), ("nobody", NoSuchConsumer)):
        with pytest.raises(error), conn.transaction():
            journal.take(conn, project="p", consumer=consumer)


def test_who_commits_at_once_rings_at_once_and_nobody_else(dsn: str, conn: Conn) -> None:
    with connect(dsn) as ear, psycopg_(dsn) as mine:
        ear.execute("listen semel_journal")
        journal.append(mine, project="quiet", topic="t")
        mine.commit()
        journal.append(conn, project="loud", topic="t")
        assert ["loud"] == [n.payload for n in ear.notifies(timeout=5, stop_after=1)]
        journal.wake(mine, "woken")
        mine.commit()
        assert ["woken"] == [n.payload for n in ear.notifies(timeout=5, stop_after=1)]

    async def on_the_loop() -> None:
        async with psycopg_async(dsn) as mine:
            await mine.set_autocommit(True)
            await journal.append(mine, project="late", topic="t")
            await journal.wake(mine, "late")

    with connect(dsn) as ear:
        ear.execute("listen semel_journal")
        asyncio.run(on_the_loop())
        assert ["late"] == [n.payload for n in ear.notifies(timeout=5, stop_after=1)]


def test_a_committed_block_rings(dsn: str, conn: Conn) -> None:
    held = begin(conn)
    with connect(dsn) as ear:
        ear.execute("listen semel_journal")
        work(dsn, held, async_block)
        assert ["p"] == [n.payload for n in ear.notifies(timeout=5, stop_after=1)]


def test_a_bad_entry_harms_no_transaction(dsn: str) -> None:
    with psycopg_(dsn) as mine:
        mine.execute("select 1")
        with pytest.raises(BadRequest):
            journal.append(mine, project="p", topic="")
        assert psycopg.pq.TransactionStatus.INTRANS == mine.info.transaction_status
