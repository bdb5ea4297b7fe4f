"""
A connection that comes back: one async connection, opened when needed, replaced when lost.

One call at a time. A call that failed because the server was away is sent again only where the
caller says so: every write in Semel is compare-and-set, so sending it twice is harmless.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from semel.db.execute import arun, retryable, translated, unreachable
from semel.db.pool import aconnect

if TYPE_CHECKING:
    import psycopg

    from semel.core.call import Call

T = TypeVar("T")

PAUSE_SECONDS_MAX = 2.0


class Link:
    """An async connection to *dsn* that is opened again after it was lost."""

    def __init__(self, dsn: str, *, name: str, prepare: bool = True) -> None:
        self._dsn = dsn
        self._name = name
        self._prepare = prepare
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._turn = asyncio.Lock()

    def another(self) -> Link:
        """One more to the same place, for a call that may take long."""
        return Link(self._dsn, name=self._name, prepare=self._prepare)

    async def run(self, call: Call[T]) -> T:
        """
        Run *call* once.

        Raises:
            DatabaseUnreachable: the server is away; whether the call took effect is unknown.
        """
        async with self._turn:
            try:
                if self._conn is None or self._conn.closed:
                    self._conn = await aconnect(
                        self._dsn, name=self._name, prepare=self._prepare
                    )
                return await arun(self._conn, call)
            except Exception as error:
                if unreachable(error):
                    await self._drop()
                raise translated(error) from error

    async def insist(self, call: Call[T]) -> T:
        """Run *call*, again and again while the server is away or the transaction lost a race."""
        pause = 0.05
        while True:
            try:
                return await self.run(call)
            except Exception as error:
                if not retryable(error):
                    raise
                await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311 - jitter
                pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def close(self) -> None:
        """Close the connection, if there is one."""
        async with self._turn:
            await self._drop()

    async def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with suppress(Exception):
                await conn.close()
