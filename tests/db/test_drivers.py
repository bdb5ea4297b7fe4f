"""semel.start is part of the caller's transaction, whatever driver it is on."""

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import semel
from fix_world import Conn, one
from semel.db.execute import on
from semel.errors import BadRequest, KeyConflict

WANTED: dict[str, Any] = {"project": "p", "agent": "a", "input": {"x": "é"}, "key": "k"}


def count(conn: Conn) -> int:
    return int(one(conn, 'select count(*) from semel.runs where input = \'{"x": "é"}\''))


def url(dsn: str, driver: str) -> str:
    """*dsn* as SQLAlchemy spells it."""
    parts = conninfo_to_dict(dsn)
    return f"postgresql+{driver}://{parts['user']}@/{parts['dbname']}?host={parts['host']}"


class Boom(Exception):
    """Rolls a transaction back."""


def test_psycopg(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn) as mine:
        with pytest.raises(Boom), mine.transaction():
            semel.start(mine, **WANTED)
            raise Boom
        assert 0 == count(conn)
        with mine.transaction():
            first = semel.start(mine, **WANTED)
            assert 0 == count(conn)
        assert ("duplicate", first.run_id) == (
            semel.start(mine, **WANTED).outcome,
            first.run_id,
        )
    assert 1 == count(conn)


def test_a_connection_that_makes_other_rows(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn, autocommit=True, row_factory=psycopg.rows.dict_row) as mine:
        assert "new" == semel.start(mine, **WANTED).outcome
    assert 1 == count(conn)


def test_a_conflict_or_a_bad_argument_leaves_the_transaction_unharmed(conn: Conn) -> None:
    with conn.transaction():
        semel.start(conn, **WANTED)
        with pytest.raises(KeyConflict):
            semel.start(conn, **{**WANTED, "input": "other"})
        with pytest.raises(BadRequest):
            semel.start(conn, **{**WANTED, "project": "NO"})
    assert 1 == count(conn)


def test_psycopg_async(dsn: str, conn: Conn) -> None:
    async def go() -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as mine:
            with pytest.raises(Boom):
                async with mine.transaction():
                    await semel.start(mine, **WANTED)
                    raise Boom
            async with mine.transaction():
                assert "new" == (await semel.start(mine, **WANTED)).outcome
            with pytest.raises(KeyConflict):
                await semel.start(mine, **{**WANTED, "agent": "b"})

    asyncio.run(go())
    assert 1 == count(conn)


def test_asyncpg(dsn: str, conn: Conn) -> None:
    import asyncpg

    parts = conninfo_to_dict(dsn)

    async def go() -> None:
        mine = await asyncpg.connect(
            host=parts["host"], user=parts["user"], database=parts["dbname"]
        )
        try:
            with pytest.raises(Boom):
                async with mine.transaction():
                    await semel.start(mine, **WANTED)
                    raise Boom
            async with mine.transaction():
                assert "new" == (await semel.start(mine, **WANTED)).outcome
        finally:
            await mine.close()

    asyncio.run(go())
    assert 1 == count(conn)


def test_sqlalchemy(dsn: str, conn: Conn) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    engine = create_engine(url(dsn, "psycopg"))
    with Session(engine) as session:
        semel.start(session, **WANTED)
        session.rollback()
        assert 0 == count(conn)
        semel.start(session, **WANTED)
        session.commit()
    with engine.begin() as connection:
        assert "duplicate" == semel.start(connection, **WANTED).outcome
    engine.dispose()
    assert 1 == count(conn)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_sqlalchemy_async(dsn: str, conn: Conn, driver: str) -> None:
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    async def go() -> None:
        engine = create_async_engine(url(dsn, driver))
        async with AsyncSession(engine) as session:
            await semel.start(session, **WANTED)
            await session.rollback()
            assert 0 == count(conn)
            await semel.start(session, **WANTED)
            await session.commit()
        async with engine.begin() as connection:
            assert "duplicate" == (await semel.start(connection, **WANTED)).outcome
        await engine.dispose()

    asyncio.run(go())
    assert 1 == count(conn)


def test_django(dsn: str, conn: Conn) -> None:
    import django
    from django.conf import settings

    parts = conninfo_to_dict(dsn)
    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    from django.db.backends.postgresql.base import DatabaseWrapper
    from django.db.utils import ConnectionHandler

    config = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "HOST": parts["host"],
    }
    mine = ConnectionHandler({"default": config})["default"]
    assert isinstance(mine, DatabaseWrapper)
    mine.set_autocommit(False)
    semel.start(mine, **WANTED)
    mine.rollback()
    assert 0 == count(conn)
    semel.start(mine, **WANTED)
    mine.commit()
    mine.close()
    assert 1 == count(conn)


def test_a_stranger_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"builtins\.dict is no connection"):
        on({}, None)  # type: ignore[arg-type]
