"""run.transaction on every driver: the user's rows and the step are one, or neither is there."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest

from connections import (
    async_connection,
    async_session,
    asyncpg,
    connection,
    django,
    psycopg_,
    psycopg_async,
    send,
    session,
)
from cut import Cut, Loss, cut
from durable import begin, cancel, claim, journal
from fix_world import Conn, one, until
from semel import Run
from semel.db.pool import connect
from workshop import work

INSERT = "insert into public.business values (1)"
ROWS = "select count(*) from public.business"

Way = Callable[..., Any]


@contextmanager
def ours(dsn: str) -> Iterator[None]:
    yield None


@asynccontextmanager
async def ours_async(dsn: str) -> AsyncIterator[None]:
    yield None


def in_thread(opened: Callable[..., Any]) -> Way:
    """A `def` handler that writes on what *opened* opens."""

    def way(run: Run, dsn: str, then: Callable[[], None], before: str | None = None) -> Any:
        def write(conn: Any) -> int:
            send(conn, INSERT)
            then()
            return 7

        with opened(dsn) as mine:
            if before:
                send(mine, before)
            return run.transaction("t", write, using=mine)

    return way


def on_loop(opened: Callable[..., Any]) -> Way:
    """An `async def` handler that writes on what *opened* opens."""

    async def way(
        run: Run, dsn: str, then: Callable[[], None], before: str | None = None
    ) -> Any:
        async def write(conn: Any) -> int:
            await send(conn, INSERT)
            await asyncio.to_thread(then)
            return 7

        async with opened(dsn) as mine:
            if before:
                await send(mine, before)
            return await run.transaction("t", write, using=mine)

    return way


async def sync_on_loop(
    run: Run, dsn: str, then: Callable[[], None], before: str | None = None
) -> Any:
    """A sync Session in an `async def` handler: its function is called in a thread."""

    def write(conn: Any) -> int:
        send(conn, INSERT)
        then()
        return 7

    with session(dsn) as mine:
        if before:
            send(mine, before)
        return await run.transaction("t", write, using=mine)


def block(run: Run, dsn: str, then: Callable[[], None]) -> Any:
    with run.transaction("t") as tx:
        [value] = tx.execute(f"{INSERT} returning 7").fetchone()
        if not tx.done:
            then()
        tx.result = value
    return value


async def async_block(run: Run, dsn: str, then: Callable[[], None]) -> Any:
    async with run.transaction("t") as tx:
        cursor = await tx.execute(f"{INSERT} returning 7")
        [value] = await cursor.fetchone()
        if not tx.done:
            await asyncio.to_thread(then)
        tx.result = value
    return value


THEIRS: dict[str, Way] = {
    "psycopg": in_thread(psycopg_),
    "sqlalchemy-session": in_thread(session),
    "sqlalchemy-connection": in_thread(connection),
    "django": in_thread(django),
    "psycopg-async": on_loop(psycopg_async),
    "asyncpg": on_loop(asyncpg),
    "sqlalchemy-async-session-asyncpg": on_loop(async_session("asyncpg")),
    "sqlalchemy-async-session-psycopg": on_loop(async_session("psycopg")),
    "sqlalchemy-async-connection": on_loop(async_connection),
    "sqlalchemy-session-in-async": sync_on_loop,
}
WAYS: dict[str, Way] = {
    **THEIRS,
    "function": in_thread(ours),
    "async-function": on_loop(ours_async),
    "block": block,
    "async-block": async_block,
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@pytest.fixture(autouse=True)
def business(conn: Conn) -> None:
    conn.execute("create table public.business (value int)")


def handling(way: Way, end: Callable[..., Any], **more: Any) -> Callable[..., Any]:
    """The handler that goes *way*, and returns what *end* makes of its answer."""

    async def on_the_loop(run: Run) -> Any:
        return end(await way(run, **more))

    def in_a_thread(run: Run) -> Any:
        return end(way(run, **more))

    return on_the_loop if asyncio.iscoroutinefunction(way) else in_a_thread


# -- promises --------------------------------------------------------------------------------


@ways
def test_rows_and_step_are_committed_once_and_answered_again(
    dsn: str, conn: Conn, way: Way
) -> None:
    first = begin(conn)
    executed: list[int] = []

    def again(value: Any) -> Any:
        if len(answers) == 0:
            answers.append(value)
            raise RuntimeError("again")
        return value

    answers: list[Any] = []
    handler = handling(way, again, dsn=dsn, then=lambda: executed.append(1))
    work(dsn, first, handler)
    assert (1, [1], [7]) == (one(conn, ROWS), executed, answers)
    assert ("t", "result", 7) == journal(conn, first.run_id)[0]

    work(dsn, claim(conn), handler)

    assert (1, [1], 7) == (
        one(conn, ROWS),
        executed,
        one(conn, "select result from semel.runs where run_id = %s", first.run_id),
    )


@ways
def test_with_a_lost_lease_all_of_it_is_rolled_back(dsn: str, conn: Conn, way: Way) -> None:
    held = begin(conn)
    went_on: list[Any] = []

    attempt = work(
        dsn,
        held,
        handling(way, went_on.append, dsn=dsn, then=lambda: cancel(conn, held.run_id)),
    )

    assert attempt.lost
    assert (0, [], []) == (one(conn, ROWS), went_on, journal(conn, held.run_id))


@ways
def test_what_raises_leaves_no_rows_and_is_told_in_the_journal(
    dsn: str, conn: Conn, way: Way
) -> None:
    held = begin(conn)

    def raises() -> None:
        raise LookupError("of its own")

    work(dsn, held, handling(way, lambda value: value, dsn=dsn, then=raises))

    assert 0 == one(conn, ROWS)
    [(key, entry, told)] = journal(conn, held.run_id)
    assert ("t", "error", "of its own") == (key, entry, told["message"])
    assert "E-RUN-006" == one(
        conn, "select failure_code from semel.runs where run_id = %s", held.run_id
    )


@pytest.mark.parametrize("way", THEIRS.values(), ids=THEIRS)
def test_a_connection_in_a_transaction_is_refused(dsn: str, conn: Conn, way: Way) -> None:
    held = begin(conn)
    executed: list[int] = []

    work(
        dsn,
        held,
        handling(
            way,
            lambda value: value,
            dsn=dsn,
            then=lambda: executed.append(1),
            before="begin",
        ),
    )

    assert ([], 0) == (executed, one(conn, ROWS))
    reason = one(conn, "select failure_reason from semel.runs where run_id = %s", held.run_id)
    assert "in a transaction already" in reason


LOST: list[Loss] = ["answer", "request", "late"]


@ways
def test_a_transaction_whose_commit_was_not_answered_is_executed_once(
    dsn: str, conn: Conn, way: Way
) -> None:
    executed: list[int] = []
    for n, loss in enumerate(LOST, 1):
        executed.clear()
        held = begin(conn)
        with cut(dsn) as between, letting(dsn, between):
            handler = handling(
                way, lambda value: value, dsn=between.dsn, then=lambda: executed.append(1)
            )
            between.lose(loss)
            work(dsn, held, handler, lend=between.dsn)
            assert between.lost
            if loss == "request":
                assert (loss, n - 1) == (loss, one(conn, ROWS))
                work(dsn, claim(conn), handler, lend=between.dsn)
        assert (loss, n) == (loss, one(conn, ROWS))
        assert (loss, [1, 1] if loss == "request" else [1]) == (loss, executed)
        assert ("COMPLETED", 7) == conn.execute(
            "select status, result from semel.runs where run_id = %s", (held.run_id,)
        ).fetchone()


@contextmanager
def letting(dsn: str, between: Cut) -> Iterator[None]:
    """A late COMMIT arrives as soon as somebody waits for its locks."""
    over = threading.Event()

    def watch() -> None:
        with connect(dsn) as mine:
            blocked = (
                "select count(*) from pg_stat_activity where datname = current_database()"
                " and pg_blocking_pids(pid) <> '{}'"
            )
            until(lambda: over.is_set() or one(mine, blocked))
        between.let()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("form", ["block", "function"])
def test_a_commit_that_is_refused_is_an_error_like_any_other(
    dsn: str, conn: Conn, form: str
) -> None:
    """And what was caught before it is caught at the next attempt too."""
    conn.execute("alter table public.business add unique (value) deferrable initially deferred")
    executed: list[str] = []

    async def fails() -> None:
        executed.append("fails")
        raise LookupError("no")

    async def twice(own: Any) -> None:
        executed.append("twice")
        await own.execute(INSERT)
        await own.execute(INSERT)

    async def handler(run: Run) -> list[str]:
        caught = []
        try:
            await run.step("fails", fails)
        except LookupError:
            caught.append("fails")
        try:
            if form == "function":
                await run.transaction("t", twice)
            else:
                async with run.transaction("t") as tx:
                    await twice(tx)
        except psycopg.errors.UniqueViolation:
            caught.append("t")
        await run.step("after", lambda: executed.append("after"))
        if run.attempt == 1:
            raise RuntimeError("again")
        return caught

    held = begin(conn)
    work(dsn, held, handler)
    work(dsn, claim(conn), handler)

    assert ["fails", "twice", "after"] == executed
    assert ("COMPLETED", ["fails", "t"]) == conn.execute(
        "select status, result from semel.runs where run_id = %s", (held.run_id,)
    ).fetchone()
    assert 0 == one(conn, ROWS)
