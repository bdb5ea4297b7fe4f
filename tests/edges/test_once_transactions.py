"""once in transactions that others began: taken, joined or refused with the mend."""

# ruff: noqa: SIM117 - the outer block is what the inner one meets

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import semel
from fix_world import Conn, one
from semel.errors import BadRequest, KeyConflict, NeedsReconcile, TransactionUnfit
from ways import WAYS, Way, django_connection, forget_django, url

TOLD: dict[str, Any] = {"project": "p", "actor": "a", "key": "k", "operation": "pay"}


class Refused(Exception):
    """A business error."""


@pytest.fixture(autouse=True)
def _paid(conn: Conn) -> None:
    conn.execute("create table public.paid (id int primary key)")


def rows(conn: Conn) -> list[int]:
    return [n for (n,) in conn.execute("select id from public.paid order by 1").fetchall()]


def state(conn: Conn) -> tuple[str, int] | None:
    found = conn.execute("select status, attempts from semel.operation").fetchall()
    return (found[0][0], found[0][1]) if found else None


BEGINNING = [way for way in WAYS if way.name not in {"django", "django_async"}]
IMPLICIT = {
    "psycopg",
    "session",
    "connection",
    "session_psycopg",
    "session_asyncpg",
    "connection_asyncpg",
}


async def begun(way: Way, conn: Any) -> None:
    """In a transaction, as the driver's users are."""
    if way.name not in IMPLICIT:
        await way.execute(conn, "begin")


async def finished(way: Way, conn: Any, word: str) -> None:
    if hasattr(conn, word):
        done = getattr(conn, word)()
        if asyncio.iscoroutine(done):
            await done
    else:
        await way.execute(conn, word)


@pytest.mark.parametrize("way", BEGINNING, ids=lambda way: way.name)
def test_a_transaction_that_wrote_is_refused_and_unharmed(
    way: Way, dsn: str, conn: Conn
) -> None:
    async def act(mine: Any) -> None:
        await begun(way, mine)
        await way.execute(mine, "insert into public.paid values (1)")
        with pytest.raises(TransactionUnfit, match="has written"):
            async with way.once(mine):
                raise AssertionError
        with pytest.raises(TransactionUnfit, match="has written"):
            async with way.once(mine, key=None):
                raise AssertionError
        await way.execute(mine, "insert into public.paid values (2)")
        await finished(way, mine, "commit")

    way.play(dsn, act)
    assert ([1, 2], None) == (rows(conn), state(conn))


@pytest.mark.parametrize("way", BEGINNING, ids=lambda way: way.name)
def test_one_that_is_not_read_committed_is_refused(way: Way, dsn: str, conn: Conn) -> None:
    async def act(mine: Any) -> None:
        await begun(way, mine)
        await way.execute(mine, "set transaction isolation level repeatable read")
        with pytest.raises(TransactionUnfit, match="READ COMMITTED"):
            async with way.once(mine):
                raise AssertionError
        await finished(way, mine, "rollback")

    way.play(dsn, act)
    assert state(conn) is None


@pytest.mark.parametrize("way", BEGINNING, ids=lambda way: way.name)
def test_who_joins_is_as_durable_as_the_callers_commit(way: Way, dsn: str, conn: Conn) -> None:
    async def act(mine: Any) -> None:
        for word, seen in (("rollback", []), ("commit", [1, 2])):
            await begun(way, mine)
            await way.execute(mine, "insert into public.paid values (1)")
            async with way.once(mine, join=True) as op:
                await way.execute(mine, "insert into public.paid values (2)")
                op.reply({"ok": True})
            assert b'{"ok":true}' == op.response().body
            assert [] == rows(conn)
            await finished(way, mine, word)
            assert seen == rows(conn)
        await begun(way, mine)
        async with way.once(mine, join=True) as op:
            assert op.replay is not None
        await way.execute(mine, "insert into public.paid values (3)")
        await finished(way, mine, "commit")

    way.play(dsn, act)
    assert ([1, 2, 3], ("SUCCEEDED", 1)) == (rows(conn), state(conn))


@pytest.mark.parametrize("way", BEGINNING, ids=lambda way: way.name)
def test_a_joined_failure_is_undone_alone(way: Way, dsn: str, conn: Conn) -> None:
    async def act(mine: Any) -> None:
        await begun(way, mine)
        await way.execute(mine, "insert into public.paid values (1)")
        with pytest.raises(Refused):
            async with way.once(mine, join=True):
                await way.execute(mine, "insert into public.paid values (2)")
                raise Refused
        with pytest.raises(KeyConflict):
            async with way.once(mine, join=True, operation="other"):
                raise AssertionError
        await finished(way, mine, "commit")

    way.play(dsn, act)
    assert ([1], ("FAILED", 1)) == (rows(conn), state(conn))


@pytest.mark.parametrize("name", ["psycopg_autocommit", "psycopg_async", "asyncpg"])
def test_there_must_be_something_to_join(name: str, dsn: str, conn: Conn) -> None:
    [way] = [way for way in WAYS if way.name == name]

    async def act(mine: Any) -> None:
        with pytest.raises(TransactionUnfit, match="no transaction"):
            async with way.once(mine, join=True):
                raise AssertionError

    way.play(dsn, act)


def test_the_wrong_with_is_refused(dsn: str, conn: Conn) -> None:
    async def go() -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as mine:
            with pytest.raises(BadRequest, match="async with"):
                with semel.once(mine, **TOLD):
                    raise AssertionError
        with pytest.raises(BadRequest, match="`with once"):
            async with semel.once(conn, **TOLD):
                raise AssertionError

    asyncio.run(go())
    assert state(conn) is None


# -- blocks of the drivers ------------------------------------------------------------------


@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.parametrize("before", ["select 1", ""])
def test_psycopgs_block_goes_on_in_another_transaction(
    dsn: str, conn: Conn, autocommit: bool, before: str
) -> None:
    with psycopg.connect(dsn, autocommit=autocommit) as mine:
        mine.execute(before)
        with pytest.raises(Refused), mine.transaction():
            with semel.once(mine, **TOLD):
                mine.execute("insert into public.paid values (1)")
            assert [1] == rows(conn)
            mine.execute("insert into public.paid values (2)")
            raise Refused
        mine.rollback()
        with mine.transaction():
            with pytest.raises(Refused), semel.once(mine, **{**TOLD, "key": "2"}):
                mine.execute("insert into public.paid values (3)")
                raise Refused
            mine.execute("insert into public.paid values (4)")
    assert [1, 4] == rows(conn)
    assert 1 == one(conn, "select count(*) from semel.operation where status = 'FAILED'")


def test_in_a_savepoint_nothing_can_be_committed(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn) as mine, mine.transaction(), mine.transaction():
        with pytest.raises(TransactionUnfit, match="nested"):
            with semel.once(mine, **TOLD):
                raise AssertionError
    assert state(conn) is None


def test_asyncpgs_block_goes_on_in_another_transaction(dsn: str, conn: Conn) -> None:
    told = conninfo_to_dict(dsn)

    async def go() -> None:
        async with (
            asyncpg.create_pool(
                host=told["host"], user=told["user"], database=told["dbname"], min_size=1
            ) as pool,
            pool.acquire() as mine,
        ):
            with pytest.raises(Refused):
                async with mine.transaction():
                    async with semel.once(mine, **TOLD):
                        async with mine.transaction():
                            await mine.execute("insert into public.paid values (1)")
                    await mine.execute("insert into public.paid values (2)")
                    raise Refused
            async with semel.once(mine, **{**TOLD, "key": "3"}):
                async with mine.transaction():
                    await mine.execute("insert into public.paid values (3)")
            async with mine.transaction():
                await mine.execute("insert into public.paid values (4)")

    asyncio.run(go())
    assert [1, 3, 4] == rows(conn)


def test_sqlalchemys_block_is_over(dsn: str, conn: Conn) -> None:
    from sqlalchemy import create_engine, text
    from sqlalchemy.exc import InvalidRequestError
    from sqlalchemy.orm import Session

    engine = create_engine(url(dsn, "psycopg"))
    with engine.begin() as mine:
        with semel.once(mine, **TOLD):
            mine.execute(text("insert into public.paid values (1)"))
        with pytest.raises(InvalidRequestError):
            mine.execute(text("insert into public.paid values (2)"))
    with Session(engine) as session, session.begin():
        with semel.once(session, **{**TOLD, "key": "3"}):
            session.execute(text("insert into public.paid values (3)"))
    with engine.connect() as mine, mine.begin_nested():
        with pytest.raises(TransactionUnfit, match="begin_nested"):
            with semel.once(mine, **TOLD):
                raise AssertionError
    engine.dispose()
    assert [1, 3] == rows(conn)


def test_a_flush_that_fails_is_a_failure_of_the_operation(dsn: str, conn: Conn) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.exc import IntegrityError
    from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

    class Base(DeclarativeBase):
        pass

    class Paid(Base):
        __tablename__ = "paid"
        id: Mapped[int] = mapped_column(primary_key=True)

    engine = create_engine(url(dsn, "psycopg"))
    conn.execute("insert into public.paid values (1)")
    with Session(engine, expire_on_commit=False) as session:
        with pytest.raises(IntegrityError), semel.once(session, **TOLD):
            session.add(Paid(id=1))
            session.flush()
        assert ("FAILED", 1) == state(conn)
        with pytest.raises(IntegrityError), semel.once(session, **TOLD):
            session.add(Paid(id=1))  # flushed when the block ends
        assert ("FAILED", 2) == state(conn)
        kept = Paid(id=2)
        with semel.once(session, **TOLD):
            session.add(kept)
            with pytest.raises(IntegrityError), session.begin_nested():
                session.add(Paid(id=1))
        with semel.once(session, **TOLD) as op:
            assert op.replay is not None
        assert 2 == kept.id  # a replay takes no object from the session
        session.add(Paid(id=3))
        with pytest.raises(TransactionUnfit, match="not flushed"), semel.once(session, **TOLD):
            raise AssertionError
        session.rollback()
        with semel.once(session, **{**TOLD, "key": None}):
            session.add(Paid(id=4))
    engine.dispose()
    assert ([1, 2, 4], ("SUCCEEDED", 3)) == (rows(conn), state(conn))


def test_a_session_that_the_work_committed_is_found_out(dsn: str, conn: Conn) -> None:
    from sqlalchemy import create_engine, text
    from sqlalchemy.orm import Session

    engine = create_engine(url(dsn, "psycopg"), pool_size=1, max_overflow=0)
    with Session(engine) as session:
        with pytest.raises(semel.SemelError, match="ended the transaction"):
            with semel.once(session, **TOLD):
                session.execute(text("insert into public.paid values (1)"))
                session.commit()
        with pytest.raises(NeedsReconcile), semel.once(session, **TOLD):
            raise AssertionError
    engine.dispose()
    assert ([1], ("PROCESSING", 1)) == (rows(conn), state(conn))


# -- Django ---------------------------------------------------------------------------------


@pytest.fixture
def django(dsn: str) -> Iterator[Any]:
    yield django_connection(dsn)
    forget_django()


def insert(mine: Any, number: int) -> None:
    with mine.cursor() as cursor:
        cursor.execute("insert into public.paid values (%s)", (number,))


def test_djangos_atomic_requests_are_taken_while_nothing_is_written(
    django: Any, conn: Conn
) -> None:
    from django.db import transaction

    heard: list[str] = []
    with transaction.atomic(using=django.alias):
        with semel.once(django, **TOLD):
            insert(django, 1)
            transaction.on_commit(lambda: heard.append("kept"), using=django.alias)
        assert [1] == rows(conn)
        with pytest.raises(Refused), semel.once(django, **{**TOLD, "key": "2"}):
            insert(django, 2)
            transaction.on_commit(lambda: heard.append("lost"), using=django.alias)
            raise Refused
        insert(django, 3)
        with pytest.raises(TransactionUnfit, match="has written"), semel.once(django, **TOLD):
            raise AssertionError
    with pytest.raises(TransactionUnfit, match="nested atomic"):
        with transaction.atomic(using=django.alias), transaction.atomic(using=django.alias):
            with semel.once(django, **TOLD):
                raise AssertionError
    assert (["kept"], [1, 3]) == (heard, rows(conn))


def test_django_runs_on_commit_after_the_commit_and_not_after_a_failure(
    django: Any, conn: Conn
) -> None:
    from django.db import transaction
    from django.db.utils import IntegrityError

    heard: list[Any] = []
    for number in (1, 1):
        with pytest.raises(IntegrityError) if heard else semel.once(django, **TOLD) as op:
            if heard:
                with semel.once(django, **{**TOLD, "key": "2"}):
                    transaction.on_commit(lambda: heard.append("lost"), using=django.alias)
                    insert(django, number)
            else:
                assert op.attempts == 1  # type: ignore[union-attr]
                transaction.on_commit(lambda: heard.append(rows(conn)), using=django.alias)
                with transaction.atomic(using=django.alias):
                    insert(django, number)
    assert [[1]] == heard
    assert django.get_autocommit()
    assert not django.in_atomic_block


def test_django_joins_its_atomic_block(django: Any, conn: Conn) -> None:
    from django.db import transaction

    with transaction.atomic(using=django.alias):
        insert(django, 1)
        with pytest.raises(Refused), semel.once(django, join=True, **TOLD):
            insert(django, 2)
            raise Refused
        with semel.once(django, join=True, **TOLD):
            insert(django, 3)
    assert ([1, 3], ("SUCCEEDED", 2)) == (rows(conn), state(conn))
