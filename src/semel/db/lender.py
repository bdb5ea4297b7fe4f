"""
Lender: connections for the transactions of handlers, opened when the first one asks.

Autocommit; the borrower begins and ends his transaction himself. One that comes back in the
middle of a transaction is committed by the pool, unless an error takes it back.
"""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from semel.db.pool import REST_SECONDS, SETTINGS, pool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    import psycopg
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

#: How long a transaction waits for a connection that others have.
WAIT_SECONDS = 60.0


class Lender:
    """
    Lends connections to *dsn*, to tasks and to threads.

    Args:
        size: How many are lent at once, of each kind.
    """

    def __init__(self, dsn: str, *, size: int, prepare: bool = True) -> None:
        self._dsn = dsn
        self._size = size
        self._prepare = prepare
        self._making = threading.Lock()
        self._tasks: AsyncConnectionPool[psycopg.AsyncConnection[Any]] | None = None
        self._threads: ConnectionPool[psycopg.Connection[Any]] | None = None

    def resize(self, size: int) -> None:
        """Lend *size* at once from now on; those beyond it that are lent come back first."""
        with self._making:
            self._size = size
            if self._threads is not None:
                self._threads.resize(0, size)

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[psycopg.AsyncConnection[Any], None]:
        """One for a task."""
        if self._tasks is None:
            self._tasks = pool(
                self._dsn, size=self._size, name="semel-transaction", prepare=self._prepare
            )
            await self._tasks.open()
        elif self._tasks.max_size != self._size:
            await self._tasks.resize(1, self._size)
        async with self._tasks.connection(WAIT_SECONDS) as conn:
            yield conn

    @contextmanager
    def lend_sync(self) -> Generator[psycopg.Connection[Any], None, None]:
        """One for a thread."""
        with self._making:
            threads = self._threads or self._pool_of_threads()
            self._threads = threads
        with threads.connection(WAIT_SECONDS) as conn:
            yield conn

    def _pool_of_threads(self) -> ConnectionPool[psycopg.Connection[Any]]:
        from psycopg_pool import ConnectionPool  # noqa: PLC0415 - the server extra brings it

        return ConnectionPool(
            self._dsn,
            kwargs={
                "application_name": "semel-transaction",
                "prepare_threshold": 5 if self._prepare else None,
                **SETTINGS,
            },
            min_size=0,
            max_size=self._size,
            max_idle=60 * REST_SECONDS,
            check=ConnectionPool.check_connection,
            open=True,
        )

    async def close(self) -> None:
        """Close those that are at home."""
        if self._tasks is not None:
            await self._tasks.close(0.5)
        if self._threads is not None:
            self._threads.close(0.5)
