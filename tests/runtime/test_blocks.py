"""The block of a transaction: what it may say, when, and what it reads in every attempt."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from durable import begin, claim
from fix_world import Conn, one
from semel import Run
from workshop import work

UPDATE = "update public.seats set taken = true where id = %s and not taken"
Late = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def seats(conn: Conn) -> None:
    conn.execute("create table public.seats (id int primary key, taken bool default false)")
    conn.execute("insert into public.seats values (1), (2)")


def ended(conn: Conn, run_id: Any) -> list[Any]:
    columns = "array[status, failure_code, failure_reason]"
    return list(one(conn, f"select {columns} from semel.runs where run_id = %s", run_id))


def test_a_statement_says_how_many_rows_it_changed_now_and_later(dsn: str, conn: Conn) -> None:
    counted: list[int] = []

    async def handler(run: Run) -> Any:
        async with run.transaction("take") as tx:
            counted.append((await tx.execute(UPDATE, (1,))).rowcount)
            counted.append((await tx.execute(UPDATE, (1,))).rowcount)
            counted.append((await tx.execute("select 1 where false")).rowcount)
        if run.attempt == 1:
            raise RuntimeError("again")

    work(dsn, begin(conn), handler)
    work(dsn, claim(conn), handler)

    assert counted == [1, 0, 0, 1, 0, 0]


def test_a_statement_in_a_thread_says_it_too(dsn: str, conn: Conn) -> None:
    counted: list[int] = []

    def handler(run: Run) -> Any:
        with run.transaction("take") as tx:
            counted.append(tx.execute(UPDATE, (2,)).rowcount)
        if run.attempt == 1:
            raise RuntimeError("again")

    work(dsn, begin(conn), handler)
    work(dsn, claim(conn), handler)

    assert counted == [1, 1]


@pytest.mark.parametrize(
    "late",
    [
        lambda tx: tx.execute(UPDATE, (1,)),
        lambda tx: tx.start("a", 1),
        lambda tx: asyncio.to_thread(tx.complete),
        lambda tx: asyncio.to_thread(tx.journal, "topic"),
    ],
    ids=["execute", "start", "complete", "journal"],
)
def test_nothing_is_said_to_a_block_that_has_ended(dsn: str, conn: Conn, late: Late) -> None:
    async def handler(run: Run) -> Any:
        async with run.transaction("take") as tx:
            await tx.execute("select 1")
        await late(tx)

    held = begin(conn)
    work(dsn, held, handler)

    status, code, reason = ended(conn, held.run_id)
    assert (status, code) == ("FAILED", "E-REQUEST-001")
    assert "the block of transaction 'take' has ended" in reason
    assert one(conn, "select count(*) from public.seats where taken") == 0


@pytest.mark.parametrize("sql", ["commit", "rollback"])
def test_a_block_that_ends_its_transaction_itself_is_no_step(
    dsn: str, conn: Conn, sql: str
) -> None:
    async def handler(run: Run) -> Any:
        async with run.transaction("take") as tx:
            await tx.execute(UPDATE, (1,))
            await tx.execute(sql)

    held = begin(conn)
    work(dsn, held, handler)

    status, code, reason = ended(conn, held.run_id)
    assert (status, code) == ("FAILED", "E-REQUEST-001")
    assert "ended its transaction itself" in reason


def test_a_statement_that_the_code_has_more_is_a_mismatch(dsn: str, conn: Conn) -> None:
    async def handler(run: Run) -> Any:
        async with run.transaction("take") as tx:
            for seat in range(run.attempt):
                await tx.execute(UPDATE, (seat,))
        raise RuntimeError("again")

    held = begin(conn)
    work(dsn, held, handler)
    work(dsn, claim(conn), handler)

    status, code, reason = ended(conn, held.run_id)
    assert (status, code) == ("FAILED", "E-STEP-001")
    assert "'take' had 1 statements" in reason


def test_a_transaction_that_is_given_up_stays_given_up(dsn: str, conn: Conn) -> None:
    executed: list[str] = []

    async def slow(_: Any) -> None:
        executed.append("slow")
        await asyncio.sleep(60 if executed == ["slow"] else 0)

    async def handler(run: Run) -> Any:
        try:
            async with asyncio.timeout(1):
                await run.transaction("slow", slow)
        except TimeoutError:
            await run.step("instead", executed.append, "instead")
        if run.attempt == 1:
            raise RuntimeError("again")

    held = begin(conn)
    work(dsn, held, handler)
    work(dsn, claim(conn), handler)

    assert executed == ["slow", "instead"]
    assert ended(conn, held.run_id)[0] == "COMPLETED"
