"""Every connection that `once` takes, driven by one text of a test."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row

import semel
from semel.edges.operation import Operation

ALIAS = "ledger"


@dataclass(frozen=True)
class Way:
    """One driver: how to connect, and how to send a statement."""

    name: str
    open: Callable[[str], AbstractAsyncContextManager[Any]]
    execute: Callable[..., Coroutine[Any, Any, list[Any]]]
    sync: bool

    @asynccontextmanager
    async def once(self, conn: Any, **told: Any) -> AsyncIterator[Operation]:
        """`with` or `async with`, as the connection is."""
        wanted = {"project": "p", "actor": "a", "key": "k", "operation": "pay", **told}
        if self.sync:
            with semel.once(conn, **wanted) as op:
                yield op
        else:
            async with semel.once(conn, **wanted) as op:
                yield op

    def play(self, dsn: str, act: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        """Call *act* with a connection."""

        async def go() -> None:
            async with self.open(dsn) as conn:
                await act(conn)

        asyncio.run(go())


def url(dsn: str, driver: str) -> str:
    """*dsn* as SQLAlchemy spells it."""
    told = conninfo_to_dict(dsn)
    port = f"&port={told['port']}" if "port" in told else ""
    return f"postgresql+{driver}://{told['user']}@/{told['dbname']}?host={told['host']}{port}"


# -- psycopg --------------------------------------------------------------------------------


@asynccontextmanager
async def _psycopg(dsn: str) -> AsyncIterator[Any]:
    with psycopg.connect(dsn) as conn:
        yield conn


@asynccontextmanager
async def _autocommit(dsn: str) -> AsyncIterator[Any]:
    with psycopg.connect(dsn, autocommit=True, row_factory=psycopg.rows.dict_row) as conn:
        yield conn


@asynccontextmanager
async def _psycopg_async(dsn: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        yield conn


async def _sync_execute(conn: Any, sql: str, *args: Any) -> list[Any]:
    cursor = psycopg.Cursor(conn, row_factory=tuple_row).execute(sql.encode(), args)
    return cursor.fetchall() if cursor.description else []


async def _async_execute(conn: Any, sql: str, *args: Any) -> list[Any]:
    cursor = await psycopg.AsyncCursor(conn).execute(sql.encode(), args)
    return await cursor.fetchall() if cursor.description else []


# -- asyncpg --------------------------------------------------------------------------------


@asynccontextmanager
async def _asyncpg(dsn: str) -> AsyncIterator[Any]:
    import asyncpg

    told = conninfo_to_dict(dsn)
    conn = await asyncpg.connect(
        host=told["host"],
        user=told["user"],
        database=told["dbname"],
        port=int(told.get("port") or 5432),
    )
    try:
        yield conn
    finally:
        await conn.close()


async def _asyncpg_execute(conn: Any, sql: str, *args: Any) -> list[Any]:
    for n in range(1, len(args) + 1):
        sql = sql.replace("%s", f"${n}", 1)
    return [tuple(row) for row in await conn.fetch(sql, *args)]


# -- SQLAlchemy -----------------------------------------------------------------------------


@asynccontextmanager
async def _session(dsn: str) -> AsyncIterator[Any]:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    engine = create_engine(url(dsn, "psycopg"))
    with Session(engine) as session:
        yield session
    engine.dispose()


@asynccontextmanager
async def _connection(dsn: str) -> AsyncIterator[Any]:
    from sqlalchemy import create_engine

    engine = create_engine(url(dsn, "psycopg"))
    with engine.connect() as conn:
        yield conn
    engine.dispose()


def _async_engine(driver: str, kind: str) -> Callable[[str], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Any]:
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

        engine = create_async_engine(url(dsn, driver))
        lent = AsyncSession(engine) if kind == "session" else engine.connect()
        async with lent as conn:
            yield conn
        await engine.dispose()

    return opened


def _named(sql: str, args: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
    from sqlalchemy import text

    for n in range(len(args)):
        sql = sql.replace("%s", f":a{n}", 1)
    return text(sql), {f"a{n}": value for n, value in enumerate(args)}


async def _sqlalchemy_execute(conn: Any, sql: str, *args: Any) -> list[Any]:
    result = conn.execute(*_named(sql, args))
    return [tuple(row) for row in result] if result.returns_rows else []


async def _sqlalchemy_async_execute(conn: Any, sql: str, *args: Any) -> list[Any]:
    result = await conn.execute(*_named(sql, args))
    return [tuple(row) for row in result] if result.returns_rows else []


# -- Django ---------------------------------------------------------------------------------


def django_connection(dsn: str) -> Any:
    """This thread's Django connection to *dsn*, by the name of ALIAS."""
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    from django.db import connections

    told = conninfo_to_dict(dsn)
    config = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": told["dbname"],
        "USER": told["user"],
        "HOST": told["host"],
        "PORT": told.get("port", ""),
    }
    default = {"ENGINE": "django.db.backends.dummy"}
    known = connections.configure_settings({"default": default, ALIAS: config})
    connections.settings[ALIAS] = known[ALIAS]
    return connections[ALIAS]


def forget_django() -> None:
    """Close this thread's connection."""
    from django.db import connections

    connections[ALIAS].close()
    del connections[ALIAS]


@asynccontextmanager
async def _django(dsn: str) -> AsyncIterator[Any]:
    conn = django_connection(dsn)
    # It forbids its connections where a loop runs; here the loop has nothing else to do.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    try:
        yield conn
    finally:
        forget_django()


async def _django_execute(conn: Any, sql: str, *args: Any) -> list[Any]:
    with conn.cursor() as cursor:
        cursor.execute(sql, args)
        return list(cursor.fetchall()) if cursor.description else []


@asynccontextmanager
async def _django_async(dsn: str) -> AsyncIterator[Any]:
    from asgiref.sync import ThreadSensitiveContext, sync_to_async
    from django.utils.connection import ConnectionProxy

    async with ThreadSensitiveContext():
        await sync_to_async(django_connection)(dsn)
        from django.db import connections

        yield ConnectionProxy(connections, ALIAS)
        await sync_to_async(forget_django)()


async def _django_async_execute(conn: Any, sql: str, *args: Any) -> list[Any]:
    from asgiref.sync import sync_to_async

    def execute() -> list[Any]:
        with conn.cursor() as cursor:
            cursor.execute(sql, args)
            return list(cursor.fetchall()) if cursor.description else []

    return await sync_to_async(execute)()


WAYS = [
    Way("psycopg", _psycopg, _sync_execute, True),
    Way("psycopg_autocommit", _autocommit, _sync_execute, True),
    Way("psycopg_async", _psycopg_async, _async_execute, False),
    Way("asyncpg", _asyncpg, _asyncpg_execute, False),
    Way("session", _session, _sqlalchemy_execute, True),
    Way("connection", _connection, _sqlalchemy_execute, True),
    Way(
        "session_psycopg", _async_engine("psycopg", "session"), _sqlalchemy_async_execute, False
    ),
    Way(
        "session_asyncpg", _async_engine("asyncpg", "session"), _sqlalchemy_async_execute, False
    ),
    Way(
        "connection_asyncpg",
        _async_engine("asyncpg", "connection"),
        _sqlalchemy_async_execute,
        False,
    ),
    Way("django", _django, _django_execute, True),
    Way("django_async", _django_async, _django_async_execute, False),
]
