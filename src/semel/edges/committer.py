"""
The committer: sends an ingress's calls through a pool of connections, each a transaction.

It sets no session state, so it works behind a transaction pooler. A transaction that lost a race
is sent again whole; what PostgreSQL cannot keep is the request's fault, anything else is an
outage, and both are said in our errors.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from semel import log
from semel.core.agents import agent_wake
from semel.db.execute import arun
from semel.db.stops import stop_here
from semel.db.wake import Bell
from semel.errors import BadRequest, DatabaseUnreachable, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from psycopg_pool import AsyncConnectionPool

    from semel.core.call import Call
    from semel.errors import SemelError

T = TypeVar("T")

#: How often a transaction is sent in all, and the longest pause before the next time.
TRIES_MAX = 4
PAUSE_SECONDS_MAX = 0.05

_LOST_A_RACE = frozenset({"40001", "40P01", "55P03"})


class Committer:
    """
    Commits calls, and wakes workers afterwards.

    Args:
        wait: Seconds that a call waits for a connection; None: as long as the pool says.
    """

    def __init__(
        self,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        *,
        wait: float | None = None,
    ) -> None:
        self.pool = pool
        self._wait = wait
        self._bell = Bell()
        self._ringing: set[asyncio.Task[None]] = set()

    def connection(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """A connection of the pool, lent."""
        return self.pool.connection(self._wait)

    async def once(self, call: Call[T]) -> T:
        """
        Commit *call*.

        Raises:
            psycopg.Error: it lost a race; nothing was kept.
            BadRequest: PostgreSQL cannot keep it; nothing was kept.
            DatabaseUnreachable: nothing was kept, or the answer was lost.
            SchemaMismatch: the schema is missing, or another one.
        """
        try:
            stop_here("ingress.accept.before")
            async with self.connection() as conn:
                answer = await arun(conn, call)
            stop_here("ingress.accept.after")
        except psycopg.Error as error:
            if lost_a_race(error):
                raise
            raise ours(error) from error
        return answer

    async def together(self, calls: Sequence[Call[list[T]]]) -> list[T]:
        """Commit *calls* in one transaction; their answers, one after the other. As `once`."""
        if len(calls) == 1:
            return await self.once(calls[0])
        answers: list[T] = []
        try:
            stop_here("ingress.accept.before")
            async with self.connection() as conn, conn.transaction():
                for call in calls:
                    answers += await arun(conn, call)
            stop_here("ingress.accept.after")
        except psycopg.Error as error:
            if lost_a_race(error):
                raise
            raise ours(error) from error
        return answers

    async def insist(self, project: str, send: Callable[[], Awaitable[T]]) -> T:
        """
        Commit what *send* sends, again while it loses races.

        Raises:
            SemelError: as `once`; DatabaseUnreachable for one that lost every race.
        """
        for tried in range(1, TRIES_MAX + 1):
            try:
                return await send()
            except psycopg.Error as error:
                if not lost_a_race(error) or tried == TRIES_MAX:
                    raise ours(error) from error
                log.event(
                    "acceptor.retried", project=project, sqlstate=error.sqlstate, tried=tried
                )
                await asyncio.sleep(PAUSE_SECONDS_MAX * random.random())  # noqa: S311 - jitter
        raise AssertionError("the last try returns or raises")

    def wake(self, agents: Iterable[str]) -> None:
        """Tell idle workers of what is committed; nobody waits for it."""
        due = self._bell.due(agents)
        if due:
            task = asyncio.create_task(self._ring(due))
            self._ringing.add(task)
            task.add_done_callback(self._ringing.discard)

    async def _ring(self, agents: list[str]) -> None:
        try:
            async with self.pool.connection() as conn:
                await arun(conn, agent_wake(agents))
        except (psycopg.Error, DatabaseUnreachable) as error:
            log.event("workers.unwoken", reason=type(error).__name__)


def lost_a_race(error: BaseException) -> bool:
    """Whether the transaction was undone only because of others: it may be sent again whole."""
    return isinstance(error, psycopg.Error) and error.sqlstate in _LOST_A_RACE


def ours(error: psycopg.Error) -> SemelError:
    """What *error* means to a sender: mend it, or come back."""
    state = error.sqlstate or ""
    said = error.diag.message_primary or str(error).partition("\n")[0] or type(error).__name__
    if state.startswith(("22", "54")):
        return BadRequest(f"PostgreSQL cannot keep it: {said}")
    if state.startswith(("3F", "42")):
        return SchemaMismatch(said)
    return DatabaseUnreachable(said)
