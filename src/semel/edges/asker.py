"""
Asker: one question to the database, answered in time or refused in our errors.

For whoever asks one thing at a time: the API and the approval links. A call that lost a race is
sent again whole. Waking comes after the commit, and its failure is nobody's.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from semel import log
from semel.core.agents import agent_wake
from semel.db.execute import arun
from semel.db.wake import Bell
from semel.edges.committer import ours
from semel.edges.in_time import ANSWER_SECONDS_MAX, InTime

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from semel.core.call import Call

T = TypeVar("T")

#: How often a call is sent in all, and the longest pause before the next time.
TRIES_MAX = 4
PAUSE_SECONDS_MAX = 0.05

_LOST_A_RACE = frozenset({"40001", "40P01", "55P03"})


class Asker:
    """Runs calls through a pool of connections in autocommit."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool
        self._in_time = InTime()
        self._bell = Bell()

    async def ask(self, call: Call[T], *, within: float = ANSWER_SECONDS_MAX) -> T:
        """
        What *call* answers, committed.

        Raises:
            SemelError: what the SQL refused; DatabaseUnreachable: no answer *within* so many
                seconds. A decision may stand all the same: asked again, its outcome is told.
        """
        return await self._in_time.wait(self._ask(call), within)

    async def wake(self, agent: str | None) -> None:
        """Tell idle workers that a run of *agent* goes on; they find it without, only later."""
        due = self._bell.due([agent] if agent else [])
        if not due:
            return
        try:
            await self.ask(agent_wake(due))
        except Exception as error:  # noqa: BLE001 - what this says is committed
            log.event("workers.unwoken", reason=type(error).__name__)

    async def _ask(self, call: Call[T]) -> T:
        for tried in range(1, TRIES_MAX + 1):
            try:
                async with self._pool.connection() as conn:
                    return await arun(conn, call)
            except psycopg.Error as error:
                if error.sqlstate not in _LOST_A_RACE or tried == TRIES_MAX:
                    raise ours(error) from error
                await asyncio.sleep(PAUSE_SECONDS_MAX * random.random())  # noqa: S311 - jitter
        raise AssertionError("the last try returns or raises")
