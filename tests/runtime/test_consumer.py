"""Consumers: what is in the journal reaches each of them once, in its order, by whichever instance."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cut import Loss, cut
from fix_world import Conn, one, until
from journals import expire, join, kept, number, say, words
from semel import journal
from semel.core.consumers import journal_forget, journal_seek
from semel.db.execute import run
from semel.errors import (
    BadRequest,
    CursorLost,
    DatabaseUnreachable,
    JournalPassed,
    NoSuchConsumer,
)
from semel.journal import Batch, Consumer

NOT_LONG = timedelta(seconds=20)
AT_ONCE = timedelta(0)


def consumer(dsn: str, **more: Any) -> Consumer:
    told: dict[str, Any] = {"project": "p", "name": "c", "poll": timedelta(milliseconds=50)}
    return Consumer(dsn, **(told | more))


def play(story: Callable[[], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        return await asyncio.wait_for(story(), 50)

    return asyncio.run(whole())


async def copy(batch: Batch) -> None:
    for entry in batch:
        await batch.connection.execute(
            "insert into public.copied values (%s, %s)", (entry.seq, entry.payload)
        )


@pytest.fixture(autouse=True)
def copied(conn: Conn) -> Callable[[], list[Any]]:
    conn.execute("create table public.copied (seq bigint, word int, at serial)")
    return lambda: [
        word for [word] in conn.execute("select word from public.copied order by at").fetchall()
    ]


# -- exactly once ----------------------------------------------------------------------------


def test_a_batch_is_numbered_taken_and_committed_with_its_rows(
    dsn: str, conn: Conn, copied: Callable[[], list[Any]]
) -> None:
    say(conn, 1, 2, 3)

    async def story() -> None:
        async with consumer(dsn, limit=2) as reader:
            for want in ([1, 2], [3]):
                async with reader.batch() as batch:
                    assert want == words(list(batch))
                    assert len(want) == len(batch)
                    await copy(batch)

    play(story)
    assert [1, 2, 3] == copied()
    assert 3 == one(conn, "select seq from semel.consumers")


def test_an_error_in_the_block_gives_the_entries_again(
    dsn: str, conn: Conn, copied: Callable[[], list[Any]]
) -> None:
    say(conn, 1, 2)

    async def story() -> None:
        async with consumer(dsn) as reader:
            with pytest.raises(LookupError):
                async with reader.batch() as batch:
                    await copy(batch)
                    raise LookupError
            with pytest.raises(psycopg.errors.DivisionByZero):
                async with reader.batch() as batch:
                    await copy(batch)
                    await batch.connection.execute("select 1/0")
            async with reader.batch() as batch:
                await copy(batch)

    play(story)
    assert [1, 2] == copied()


def test_it_waits_for_what_is_not_there_yet_and_is_woken(
    dsn: str, conn: Conn, copied: Callable[[], list[Any]]
) -> None:
    """By a ring: its own look would come in an hour."""

    async def story() -> None:
        async with consumer(dsn, poll=timedelta(hours=1)) as reader:
            waiting = asyncio.create_task(one_batch(reader))
            listening = (
                "select count(*) from pg_stat_activity where query = 'listen semel_journal'"
            )
            await asyncio.to_thread(until, lambda: one(conn, listening))
            await asyncio.to_thread(journal.append, conn, project="p", topic="t", payload=7)
            await waiting

    play(story)
    assert [7] == copied()


@pytest.mark.parametrize("listen", [True, False])
def test_it_looks_by_itself_when_nobody_rings(
    dsn: str, conn: Conn, copied: Callable[[], list[Any]], *, listen: bool
) -> None:
    async def story() -> None:
        async with consumer(dsn, listen=listen) as reader:
            waiting = asyncio.create_task(one_batch(reader))
            await asyncio.to_thread(until, lambda: looks(conn) > 1)
            say(conn, 7)
            await waiting

    play(story)
    assert [7] == copied()


async def one_batch(reader: Consumer) -> None:
    async with reader.batch() as batch:
        await copy(batch)


def looks(conn: Conn) -> int:
    asked = "select count(*) from pg_stat_activity where query like '%%journal_waits%%' and state = 'idle'"
    return 2 * int(one(conn, asked))


def test_who_waits_in_vain_gets_an_empty_batch(dsn: str, conn: Conn) -> None:
    say(conn, 1, topic="other")

    async def story() -> None:
        async with consumer(dsn, topics=["mine"]) as reader:
            for wait in (AT_ONCE, timedelta(milliseconds=120)):
                async with reader.batch(wait=wait) as batch:
                    assert (0, None, []) == (len(batch), batch.connection, list(batch))
                assert [] == await reader.read(wait=wait)

    play(story)
    assert 1 == one(conn, "select seq from semel.consumers"), "passed, not looked at again"


def test_while_one_instance_has_the_cursor_the_other_is_idle(
    dsn: str, conn: Conn, copied: Callable[[], list[Any]]
) -> None:
    say(conn, 1, 2)

    async def story() -> None:
        async with consumer(dsn, limit=1) as a, consumer(dsn, limit=1) as b:
            async with a.batch() as batch:
                await copy(batch)
                async with b.batch(wait=timedelta(milliseconds=200)) as other:
                    assert 0 == len(other)
                assert [] == await b.read(wait=AT_ONCE)
            async with b.batch() as batch:
                await copy(batch)

    play(story)
    assert [1, 2] == copied()


def test_many_instances_copy_each_entry_once_and_in_order(
    dsn: str, conn: Conn, copied: Callable[[], list[Any]]
) -> None:
    many = 300

    async def copies(reader: Consumer) -> None:
        while True:
            async with reader.batch(wait=NOT_LONG) as batch:
                await copy(batch)

    async def story() -> None:
        async with AsyncExitStack() as stack:
            readers = [
                await stack.enter_async_context(
                    consumer(dsn, limit=7, poll=timedelta(milliseconds=5))
                )
                for _ in range(4)
            ]
            tasks = [asyncio.create_task(copies(reader)) for reader in readers]
            for n in range(many):
                await asyncio.to_thread(say, conn, n, at=None)
            await asyncio.to_thread(until, lambda: len(copied()) == many)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    play(story)
    assert list(range(many)) == copied()


@pytest.mark.parametrize("loss", ["answer", "request"])
def test_a_commit_that_is_lost_is_done_once(
    dsn: str, conn: Conn, copied: Callable[[], list[Any]], loss: Loss
) -> None:
    say(conn, 1)
    with cut(dsn) as between:

        async def story() -> None:
            async with consumer(between.dsn, listen=False) as reader:
                with pytest.raises(DatabaseUnreachable):
                    async with reader.batch() as batch:
                        await copy(batch)
                        between.lose(loss)
                say(conn, 2)
                async with reader.batch() as batch:
                    assert ([2] if loss == "answer" else [1, 2]) == words(batch.entries)
                    await copy(batch)

        play(story)
    assert [1, 2] == copied()


def test_a_cancelled_block_leaves_nothing_and_the_entries_to_others(
    dsn: str, conn: Conn, copied: Callable[[], list[Any]]
) -> None:
    say(conn, 1)

    async def story() -> None:
        async with consumer(dsn) as a, consumer(dsn) as b:
            begun = asyncio.Event()

            async def for_ever() -> None:
                async with a.batch() as batch:
                    await copy(batch)
                    begun.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(for_ever())
            await begun.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            async with b.batch(wait=NOT_LONG) as batch:
                await copy(batch)

    play(story)
    assert [1] == copied()


def test_a_restarted_database_is_waited_for(
    dsn: str, conn: Conn, copied: Callable[[], list[Any]]
) -> None:
    kill = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where application_name = 'semel-consumer'"
    )

    async def story() -> None:
        async with consumer(dsn) as reader:
            say(conn, 1)
            await one_batch(reader)
            assert 2 == one(conn, kill)
            say(conn, 2)
            await one_batch(reader)

    play(story)
    assert [1, 2] == copied()


# -- at least once ---------------------------------------------------------------------------


def test_what_is_read_is_read_again_until_it_is_committed(dsn: str, conn: Conn) -> None:
    say(conn, 1, 2, 3)

    async def story() -> None:
        async with consumer(dsn, limit=2) as reader:
            assert [1, 2] == words(await reader.read())
            await reader.release()
            assert [1, 2] == words(await reader.read())
            await reader.commit(upto=1)
            assert [2, 3] == words(await reader.read())
        async with consumer(dsn) as reader:
            assert [2, 3] == words(await reader.read(wait=AT_ONCE)), "given back at its end"
            await reader.commit()
            assert [] == await reader.read(wait=AT_ONCE)

    play(story)


def test_a_loop_commits_when_it_comes_back(dsn: str, conn: Conn) -> None:
    say(conn, *range(5))
    seen: list[Any] = []

    async def story() -> None:
        async with consumer(dsn, limit=2) as reader:
            async for entries in reader:
                seen.append(words(entries))
                if len(seen) == 3:
                    break
        async with consumer(dsn, limit=2) as reader:
            assert [4] == words(await reader.read(wait=AT_ONCE)), "the last was not committed"

    play(story)
    assert [[0, 1], [2, 3], [4]] == seen


def test_who_held_on_too_long_is_told_and_others_went_on(dsn: str, conn: Conn) -> None:
    say(conn, 1)

    async def story() -> None:
        async with (
            consumer(dsn, lease=timedelta(milliseconds=100)) as slow,
            consumer(dsn, poll=timedelta(milliseconds=10)) as other,
        ):
            await slow.read()
            assert [1] == words(await other.read(wait=NOT_LONG))
            with pytest.raises(CursorLost, match="is at 0"):
                await slow.commit()
            await other.commit()
            assert [] == await slow.read(wait=AT_ONCE)

    play(story)


def test_one_thing_at_a_time(dsn: str, conn: Conn) -> None:
    say(conn, 1)

    async def story() -> None:
        async with consumer(dsn) as reader:
            with pytest.raises(BadRequest, match="nothing to commit"):
                await reader.commit()
            async with reader.batch() as batch:
                assert 1 == len(batch)
                with pytest.raises(BadRequest, match="already"):
                    await reader.read()
                with pytest.raises(BadRequest, match="already"):
                    async with reader.batch():
                        pass
            say(conn, 2)
            await reader.read()
            with pytest.raises(BadRequest, match="already"):
                await reader.read()

    play(story)


# -- what an operator meets ------------------------------------------------------------------


def test_a_passed_cursor_is_an_error_until_somebody_moves_it(dsn: str, conn: Conn) -> None:
    join(conn)
    say(conn, 1)
    number(conn)
    say(conn, 2, at=100)
    number(conn, at=100)
    expire(conn, at=100)

    async def story() -> None:
        async with consumer(dsn) as reader:
            for _ in range(2):
                with pytest.raises(JournalPassed, match="stands at 0"):
                    await reader.read()
                with pytest.raises(JournalPassed, match="begins behind 1"):
                    async with reader.batch():
                        pass
            assert ("won", 1) == run(conn, journal_seek("p", "c", 0))
            assert [2] == words(await reader.read())

    play(story)


def test_a_forgotten_consumer_is_an_error(dsn: str, conn: Conn) -> None:
    async def story() -> None:
        async with consumer(dsn) as reader:
            say(conn, 1)
            await reader.read()
            run(conn, journal_forget("p", "c"))
            with pytest.raises(NoSuchConsumer):
                await reader.commit()
            with pytest.raises(NoSuchConsumer):
                await reader.read()
            with pytest.raises(NoSuchConsumer):
                async with reader.batch():
                    pass

    play(story)


@pytest.mark.parametrize("more", [{"name": ""}, {"start": "middle"}, {"project": "No"}])
def test_a_consumer_that_cannot_be_is_refused_as_it_opens(
    dsn: str, conn: Conn, more: dict[str, Any]
) -> None:
    async def story() -> None:
        with pytest.raises(BadRequest):
            async with consumer(dsn, **more):
                pass

    play(story)


def test_a_new_name_may_begin_at_the_newest(dsn: str, conn: Conn) -> None:
    say(conn, 1)
    number(conn)

    async def story() -> None:
        async with consumer(dsn, start="newest") as reader:
            say(conn, 2)
            assert [2] == words(await reader.read())

    play(story)
    assert [1, 2] == kept(conn)


def test_what_python_cannot_read_harms_no_other_entry(dsn: str, conn: Conn) -> None:
    conn.execute(
        "select semel.journal_append('p', null, null, jsonb_build_array("
        " jsonb_build_object('topic', 't', 'payload', repeat('9', 5000)::numeric)))"
    )
    say(conn, 1, at=None)

    async def story() -> None:
        async with consumer(dsn) as reader:
            odd, plain = await reader.read()
            with pytest.raises(ValueError, match="digits"):
                print(odd.payload)
            assert 5000 == len(odd.text)
            assert 1 == plain.payload

    play(story)
