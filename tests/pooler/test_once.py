"""once behind PgBouncer in transaction mode, on every driver as its documentation says to set it."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from fix_bouncer import BINARY
from fix_world import Conn, one
from ways import WAYS, Way, url

KEYS = 12


@asynccontextmanager
async def _psycopg(dsn: str) -> AsyncIterator[Any]:
    with psycopg.connect(dsn, prepare_threshold=None) as conn:
        yield conn


@asynccontextmanager
async def _psycopg_async(dsn: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(dsn, prepare_threshold=None) as conn:
        yield conn


@asynccontextmanager
async def _asyncpg(dsn: str) -> AsyncIterator[Any]:
    import asyncpg

    told = conninfo_to_dict(dsn)
    conn = await asyncpg.connect(
        host=told["host"],
        port=int(str(told["port"])),
        user=told["user"],
        database=told["dbname"],
        statement_cache_size=0,
    )
    yield conn
    await conn.close()


@asynccontextmanager
async def _session(dsn: str) -> AsyncIterator[Any]:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    engine = create_engine(url(dsn, "psycopg"), connect_args={"prepare_threshold": None})
    with Session(engine) as session:
        yield session
    engine.dispose()


@asynccontextmanager
async def _session_asyncpg(dsn: str) -> AsyncIterator[Any]:
    from sqlalchemy import NullPool
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    settings = {
        "statement_cache_size": 0,
        "prepared_statement_cache_size": 0,
        "prepared_statement_name_func": lambda: f"s{uuid4()}",
    }
    engine = create_async_engine(url(dsn, "asyncpg"), poolclass=NullPool, connect_args=settings)
    async with AsyncSession(engine) as session:
        yield session
    await engine.dispose()


_OPEN = {
    "psycopg": _psycopg,
    "psycopg_async": _psycopg_async,
    "asyncpg": _asyncpg,
    "session": _session,
    "session_asyncpg": _session_asyncpg,
}
POOLED = [replace(way, open=_OPEN[way.name]) for way in WAYS if way.name in _OPEN]
POOLED += [way for way in WAYS if way.name.startswith("django")]

pytestmark = [
    pytest.mark.skipif(
        BINARY is None,
        reason="no pgbouncer: apt-get install pgbouncer, or brew install pgbouncer",
    ),
    pytest.mark.parametrize("way", POOLED, ids=lambda way: way.name),
]


async def send(way: Way, mine: Any, key: int, client: int, *, fail: bool) -> bytes:
    async with way.once(mine, key=str(key)) as op:
        if op.replay is None:
            insert = "insert into public.paid values (%s, %s)"
            await way.execute(mine, insert, key, client)
            op.reply({"client": client})
            if fail:
                raise ZeroDivisionError
    return op.response().body


def test_each_key_is_executed_once_whichever_session_it_comes_to(
    way: Way, conn: Conn, bouncer: str
) -> None:
    """Clients send the same keys in orders of their own; each fails some of them at first."""
    conn.execute("create table public.paid (key int, client int)")
    answers: dict[int, set[bytes]] = {key: set() for key in range(KEYS)}

    def run(client: int) -> None:
        async def act(mine: Any) -> None:
            for n in range(KEYS):
                key = (n * 5 + client * 4) % KEYS
                if n % 4 == 1:
                    with suppress(ZeroDivisionError):
                        await send(way, mine, key, client, fail=True)
                answers[key].add(await send(way, mine, key, client, fail=False))

        way.play(bouncer, act)

    # Django has one connection for all of a process's async code, and one for each thread else.
    with ThreadPoolExecutor(1 if way.name == "django_async" else 3) as threads:
        list(threads.map(run, range(3)))
    paid = dict(conn.execute("select key, client from public.paid").fetchall())
    assert {key: {b'{"client":%d}' % client} for key, client in paid.items()} == answers
    assert KEYS == one(conn, "select count(*) from public.paid")
    statuses = "select status, count(*) from semel.operation group by 1"
    assert [("SUCCEEDED", KEYS)] == conn.execute(statuses).fetchall()
