"""
The acceptor: the one step of an ingress that writes.

What it returns is committed: delivery, dedupe row and run are one statement, one transaction.
It sets no session state, so it works behind a transaction pooler. A transaction that lost a
race is sent again whole; what PostgreSQL cannot keep is the request's fault, anything else is
an outage, and both are said in our errors.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from semel import log
from semel.core import inbox
from semel.db.execute import arun
from semel.db.stops import stop_here
from semel.errors import BadRequest, DatabaseUnreachable, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from psycopg_pool import AsyncConnectionPool

    from semel.config import Source
    from semel.core.call import Call
    from semel.edges.channel import Notification
    from semel.errors import SemelError
    from semel.model import Accepted, Offer

T = TypeVar("T")

#: How often a transaction is sent in all, and the longest pause before the next time.
TRIES_MAX = 4
PAUSE_SECONDS_MAX = 0.05

_LOST_A_RACE = frozenset({"40001", "40P01", "55P03"})


class Acceptor:
    """Accepts events through a pool of connections, one transaction for each request."""

    def __init__(
        self,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        *,
        memory: timedelta = inbox.MEMORY,
    ) -> None:
        self._pool = pool
        self._memory = memory

    async def accept(
        self, project: str, offers: Sequence[Offer], *, now: datetime | None = None
    ) -> list[Accepted]:
        """
        Accept *offers* of one project; answered in their order, committed.

        Raises:
            BadRequest: PostgreSQL cannot keep it. Nothing was kept.
            DatabaseUnreachable: no answer. Nothing was kept, or the answer was lost.
            SchemaMismatch: the schema is missing, or another one.
        """
        return await self._commit(
            project, inbox.event_accept(project, offers, memory=self._memory, now=now)
        )

    async def accept_alerts(
        self,
        source: Source,
        notification: Notification,
        *,
        body: bytes,
        headers: Mapping[str, str],
        now: datetime | None = None,
    ) -> list[Accepted]:
        """Fold one Alertmanager notification; errors as `accept`."""
        call = inbox.alert_accept(
            source.project,
            source.name,
            source.agent,
            notification.envelope,
            notification.alerts,
            body=body,
            headers=headers,
            grace=source.resolved_grace,
            run_on=source.run_on,
            unit=source.unit,
            priority=source.priority,
            now=now,
        )
        return await self._commit(source.project, call)

    async def _commit(self, project: str, call: Call[T]) -> T:
        stop_here("ingress.accept.before")
        for tried in range(1, TRIES_MAX + 1):
            try:
                async with self._pool.connection() as conn:
                    accepted = await arun(conn, call)
            except psycopg.Error as error:
                if error.sqlstate not in _LOST_A_RACE or tried == TRIES_MAX:
                    raise ours(error) from error
                log.event(
                    "acceptor.retried", project=project, sqlstate=error.sqlstate, tried=tried
                )
                await asyncio.sleep(PAUSE_SECONDS_MAX * random.random())  # noqa: S311 - jitter
            else:
                stop_here("ingress.accept.after")
                return accepted
        raise AssertionError("the last try returns or raises")


def ours(error: psycopg.Error) -> SemelError:
    """What *error* means to a sender: mend it, or come back."""
    state = error.sqlstate or ""
    said = error.diag.message_primary or str(error).partition("\n")[0] or type(error).__name__
    if state.startswith(("22", "54")):
        return BadRequest(f"PostgreSQL cannot keep it: {said}")
    if state.startswith(("3F", "42")):
        return SchemaMismatch(said)
    return DatabaseUnreachable(said)
