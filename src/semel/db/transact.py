"""
Commit what a function writes, on the caller's own driver.

psycopg, asyncpg, SQLAlchemy and Django each begin and commit in their own way; here it is one way.
The transaction is whole: a connection that is in one already is refused, since what we commit
would not be committed.
"""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from semel.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

T = TypeVar("T")

_IN_ONE = "the connection is in a transaction already; commit it, or pass another connection"


def is_async(conn: Any) -> bool:
    """Whether *conn* is awaited."""
    names = [base.__module__ for base in type(conn).__mro__]
    return any(name.startswith(("asyncpg", "sqlalchemy.ext.asyncio")) for name in names) or (
        hasattr(conn, "pgconn") and hasattr(conn, "__aenter__")
    )


async def atransact(conn: Any, work: Callable[[], Awaitable[T]]) -> T:
    """
    Execute *work* in a transaction of its own on an async *conn*, and commit it.

    Raises:
        BadRequest: it is in a transaction already.
    """
    if hasattr(conn, "is_in_transaction"):  # asyncpg
        if conn.is_in_transaction():
            raise BadRequest(_IN_ONE)
        async with conn.transaction():
            return await work()
    if hasattr(conn, "pgconn"):  # psycopg
        if conn.pgconn.transaction_status:
            raise BadRequest(_IN_ONE)
        async with conn.transaction():
            return await work()
    if conn.in_transaction():  # SQLAlchemy
        raise BadRequest(_IN_ONE)
    async with conn.begin():
        return await work()


def transact(conn: Any, work: Callable[[], T]) -> T:
    """Execute *work* in a transaction of its own on a sync *conn*; otherwise as `atransact`."""
    if hasattr(conn, "pgconn"):  # psycopg
        if conn.pgconn.transaction_status:
            raise BadRequest(_IN_ONE)
        with conn.transaction():
            return work()
    if hasattr(conn, "in_atomic_block"):  # Django
        from django.db import connections, transaction  # noqa: PLC0415 - the caller has it, we may not

        if conn.in_atomic_block or not conn.get_autocommit():
            raise BadRequest(_IN_ONE)
        if conn != connections[conn.alias]:  # whose transaction atomic() begins
            raise BadRequest("the connection is not this thread's; use django.db.connection")
        with transaction.atomic(using=conn.alias):
            return work()
    if conn.in_transaction():  # SQLAlchemy
        raise BadRequest(_IN_ONE)
    with conn.begin():
        return work()


@asynccontextmanager
async def whole(conn: Any) -> AsyncGenerator[None, None]:
    """
    All that the block writes on *conn*, or nothing of it, whatever its caller does with an error.

    Where *conn* is in a transaction, or its driver begins one unasked, the block is a savepoint of
    it; else a transaction of its own. A sync connection's block never waits: see `drive`.
    """
    async with AsyncExitStack() as stack:
        if hasattr(conn, "in_atomic_block"):  # Django
            stack.enter_context(_django(conn))
        elif hasattr(conn, "begin_nested"):  # SQLAlchemy
            if is_async(conn):
                await stack.enter_async_context(conn.begin_nested())
            else:
                stack.enter_context(conn.begin_nested())
        else:  # psycopg, asyncpg
            if hasattr(conn, "pgconn") and not (
                conn.autocommit or conn.pgconn.transaction_status
            ):
                await answered(
                    conn.execute("select")
                )  # begins it: it is the caller's to commit
            if is_async(conn):
                await stack.enter_async_context(conn.transaction())
            else:
                stack.enter_context(conn.transaction())
        yield


@contextmanager
def _django(conn: Any) -> Generator[None, None, None]:
    if not conn.in_atomic_block and conn.get_autocommit():
        from django.db import connections, transaction  # noqa: PLC0415 - the caller has it, we may not

        if conn != connections[conn.alias]:  # whose transaction atomic() begins
            raise BadRequest("the connection is not this thread's; use django.db.connection")
        with transaction.atomic(using=conn.alias):
            yield
        return
    savepoint = conn.savepoint()
    try:
        yield
    except BaseException:
        conn.savepoint_rollback(savepoint)
        raise
    conn.savepoint_commit(savepoint)


async def answered(value: T | Awaitable[T]) -> T:
    """*value*, awaited where it is to be."""
    return await value if inspect.isawaitable(value) else value
