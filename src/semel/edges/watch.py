"""
Watch: what became of the requests of each source, told to the database now and then.

A refused request leaves no row, so that nobody can fill the database by being refused. What is
left of it is a count in this process, and all counts together are written every few seconds,
however many came. Of a process that is killed the last seconds are not counted; of one that is
stopped they are.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg

from semel.core.sources import source_observe
from semel.db.execute import arun
from semel.errors import SemelError

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from semel.config import Source

#: Counts are written this often, where there are any.
TELL_SECONDS = 10.0
#: A stop waits no longer than this for the last of them.
LAST_SECONDS_MAX = 1.0


class Watch:
    """Counts of one process: as many as sources and outcomes."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool
        self._counts: dict[str, dict[tuple[str, str], int]] = {}  # by project

    def note(self, source: Source, outcome: str) -> None:
        """Count one event of *source*, or a request that brought none."""
        counts = self._counts.setdefault(source.project, {})
        name = (source.name, outcome)
        counts[name] = counts.get(name, 0) + 1

    async def keep(self) -> None:
        """Tell the database what was counted, until cancelled; then for the last time."""
        try:
            while True:
                await asyncio.sleep(TELL_SECONDS)
                await self.tell()
        finally:
            # A database that hangs still owes an answer; nobody waits for it.
            last = asyncio.create_task(self.tell())
            await asyncio.wait({last}, timeout=LAST_SECONDS_MAX)

    async def tell(self) -> None:
        """Write down what was counted since; while the database is away it is kept for later."""
        told, self._counts = self._counts, {}
        while told:
            project = next(iter(told))
            try:
                async with self._pool.connection() as conn:
                    await arun(conn, source_observe(project, told[project]))
            except (psycopg.Error, SemelError):
                break  # what was sent and not answered may count twice; that is better than not
            del told[project]
        for project, counts in told.items():
            now = self._counts.setdefault(project, {})
            for name, count in counts.items():
                now[name] = now.get(name, 0) + count
