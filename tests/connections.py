"""Connections as users have them: every driver that Semel works on, opened on a test's database."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict


def url(dsn: str, driver: str) -> str:
    """*dsn* as SQLAlchemy spells it."""
    parts = conninfo_to_dict(dsn)
    return f"postgresql+{driver}://{parts['user']}@/{parts['dbname']}?host={parts['host']}"


@contextmanager
def psycopg_(dsn: str) -> Iterator[Any]:
    with psycopg.connect(dsn) as mine:
        yield mine


@contextmanager
def session(dsn: str) -> Iterator[Any]:
    from sqlalchemy.orm import Session

    with engine(dsn) as made, Session(made) as mine:
        yield mine


@contextmanager
def connection(dsn: str) -> Iterator[Any]:
    with engine(dsn) as made, made.connect() as mine:
        yield mine


@contextmanager
def engine(dsn: str) -> Iterator[Any]:
    from sqlalchemy import create_engine

    made = create_engine(url(dsn, "psycopg"))
    try:
        yield made
    finally:
        made.dispose()


@contextmanager
def django(dsn: str) -> Iterator[Any]:
    import django
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    parts = conninfo_to_dict(dsn)
    connections.databases["mine"] = {
        **connections.databases["default"],
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "HOST": parts["host"],
    }
    mine = connections["mine"]
    try:
        yield mine
    finally:
        mine.close()
        del connections["mine"]
        del connections.databases["mine"]


@asynccontextmanager
async def psycopg_async(dsn: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(dsn) as mine:
        yield mine


@asynccontextmanager
async def asyncpg(dsn: str) -> AsyncIterator[Any]:
    import asyncpg

    parts = conninfo_to_dict(dsn)
    mine = await asyncpg.connect(
        host=parts["host"], user=parts["user"], database=parts["dbname"]
    )
    try:
        yield mine
    finally:
        await mine.close()


def async_session(driver: str) -> Any:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Any]:
        from sqlalchemy.ext.asyncio import AsyncSession

        async with async_engine(dsn, driver) as made, AsyncSession(made) as mine:
            yield mine

    return opened


@asynccontextmanager
async def async_connection(dsn: str) -> AsyncIterator[Any]:
    async with async_engine(dsn, "psycopg") as made, made.connect() as mine:
        yield mine


@asynccontextmanager
async def async_engine(dsn: str, driver: str) -> AsyncIterator[Any]:
    from sqlalchemy.ext.asyncio import create_async_engine

    made = create_async_engine(url(dsn, driver))
    try:
        yield made
    finally:
        await made.dispose()


def send(conn: Any, sql: str) -> Any:
    """Send a statement on whatever *conn* is; "begin" begins a transaction in its own way."""
    if "sqlalchemy" in type(conn).__module__:
        from sqlalchemy import text

        return conn.begin() if sql == "begin" else conn.execute(text(sql))
    if hasattr(conn, "in_atomic_block"):
        if sql == "begin":
            return conn.set_autocommit(False)
        with conn.cursor() as cursor:
            return cursor.execute(sql)
    return conn.execute(sql)


#: How each is opened.
SYNC = {
    "psycopg": psycopg_,
    "sqlalchemy-session": session,
    "sqlalchemy-connection": connection,
    "django": django,
}
ASYNC = {
    "psycopg-async": psycopg_async,
    "asyncpg": asyncpg,
    "sqlalchemy-async-session-asyncpg": async_session("asyncpg"),
    "sqlalchemy-async-session-psycopg": async_session("psycopg"),
    "sqlalchemy-async-connection": async_connection,
}
