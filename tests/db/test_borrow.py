"""Calls that commit by themselves, on whatever async pool a program has."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from fix_world import Conn, one
from semel.core.operations import operation_beat
from semel.db.borrow import Pool
from semel.errors import BadConfig, BadRequest, DatabaseUnreachable


@asynccontextmanager
async def pools(dsn: str, kind: str) -> AsyncIterator[Any]:
    parts = conninfo_to_dict(dsn)
    url = f"postgresql+asyncpg://{parts['user']}@/{parts['dbname']}?host={parts['host']}"
    if kind.startswith("psycopg"):
        from psycopg_pool import AsyncConnectionPool

        told = {"autocommit": kind.endswith("autocommit")}
        async with AsyncConnectionPool(dsn, min_size=1, kwargs=told, open=False) as pool:
            yield pool
    elif kind == "asyncpg":
        import asyncpg

        user, database, host = parts["user"], parts["dbname"], parts["host"]
        async with asyncpg.create_pool(host=host, user=user, database=database) as pool:
            yield pool
    elif kind == "function":
        yield lambda: _connected(dsn)
    else:
        from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

        engine = create_async_engine(url)
        yield engine if kind == "engine" else async_sessionmaker(engine)
        await engine.dispose()


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        yield conn


@pytest.mark.parametrize(
    "kind", ["psycopg", "psycopg-autocommit", "asyncpg", "engine", "sessions", "function"]
)
def test_a_call_commits(dsn: str, conn: Conn, kind: str) -> None:
    async def story() -> None:
        async with pools(dsn, kind) as pool:
            mine = Pool(pool)
            await mine.run(operation_beat("p", uuid4(), "x"))
            with pytest.raises(BadRequest):
                await mine.run(operation_beat("NO", uuid4(), "x"))
            await mine.run(operation_beat("p", uuid4(), "y"))

    asyncio.run(story())
    assert one(conn, "select count(*) from semel.operation_holder") == 2


def test_a_server_that_is_away_is_said_so(dsn: str) -> None:
    gone = dsn + " port=1"
    with pytest.raises(DatabaseUnreachable):
        asyncio.run(Pool(lambda: _connected(gone)).run(operation_beat("p", uuid4(), "x")))


def test_what_lends_nothing_is_refused_by_name(dsn: str) -> None:
    odds: list[Any] = [dsn, {}, 7]
    for odd in odds:
        with pytest.raises(BadConfig, match=r"builtins\.\w+ is no pool"):
            Pool(odd)
    with pytest.raises(BadConfig, match="not awaited"):
        asyncio.run(Pool(threading.Lock).run(operation_beat("p", uuid4(), "x")))
