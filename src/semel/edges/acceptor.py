"""
The acceptor: the one step of an ingress that writes.

What it returns is committed: delivery, dedupe row and run are one statement, one transaction.
Events that arrive while a transaction of their project is on its way share the next one, and
each sender is answered after its commit. It sets no session state, so it works behind a
transaction pooler. A transaction that lost a race is sent again whole; what PostgreSQL cannot
keep is the request's fault, anything else is an outage, and both are said in our errors. No one
waits long: for another's lock half a second, for an answer of any kind a few.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from semel import log
from semel.core import inbox
from semel.core.agents import agent_wake
from semel.db.execute import arun
from semel.db.gather import Gather
from semel.db.stops import stop_here
from semel.db.wake import Bell
from semel.edges.channel import REASON_CHARS_MAX
from semel.edges.in_time import ANSWER_SECONDS_MAX, InTime
from semel.errors import BadRequest, DatabaseUnreachable, SchemaMismatch
from semel.model import Offer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from psycopg_pool import AsyncConnectionPool

    from semel.config import Source
    from semel.core.call import Call
    from semel.edges.channel import Notification
    from semel.errors import SemelError
    from semel.model import Accepted, Alert

T = TypeVar("T")

#: How often a transaction is sent in all, and the longest pause before the next time.
TRIES_MAX = 4
PAUSE_SECONDS_MAX = 0.05
#: Events of one transaction.
BATCH_MAX = 256
#: Projects whose gatherers are kept; one more starts anew.
PROJECTS_MAX = 1000

_LOST_A_RACE = frozenset({"40001", "40P01", "55P03"})


class Acceptor:
    """Accepts events through a pool of connections, many to a transaction under load."""

    def __init__(
        self,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        *,
        memory: timedelta = inbox.MEMORY,
    ) -> None:
        self._pool = pool
        self._memory = memory
        self._gathers: dict[str, Gather[Offer, Accepted]] = {}
        self._bell = Bell()
        self._in_time = InTime()
        self._turns: dict[tuple[str, str], asyncio.Semaphore] = {}

    async def accept(
        self,
        project: str,
        offers: Sequence[Offer],
        *,
        now: datetime | None = None,
        within: float = ANSWER_SECONDS_MAX,
    ) -> list[Accepted]:
        """
        Accept *offers* of one project; answered in their order, committed.

        The events of one request are one transaction; a single one shares it with others.

        Raises:
            BadRequest: PostgreSQL cannot keep it. Nothing was kept.
            DatabaseUnreachable: no answer *within* so many seconds. Nothing was kept, or the
                answer was lost.
            SchemaMismatch: the schema is missing, or another one.
        """
        return await self._in_time.wait(self._accept(project, offers, now), within)

    async def _accept(
        self, project: str, offers: Sequence[Offer], now: datetime | None
    ) -> list[Accepted]:
        if len(offers) == 1 and now is None:
            return [await self._gather(project).add(offers[0])]
        call = inbox.event_accept(project, offers, memory=self._memory, patient=False, now=now)
        accepted = await self._commit(project, lambda: self._once(call))
        await self._wake(_agents(offers, accepted))
        return accepted

    async def accept_alerts(
        self,
        source: Source,
        notification: Notification,
        *,
        body: bytes,
        headers: Mapping[str, str],
        now: datetime | None = None,
    ) -> list[Accepted]:
        """
        Fold one Alertmanager notification, in one transaction; errors as `accept`.

        What is unusable of it is kept as a quarantined delivery, answered last.
        """

        def fold(alerts: Sequence[Alert]) -> Call[list[Accepted]]:
            return inbox.alert_accept(
                source.project,
                source.name,
                source.agent,
                notification.envelope,
                alerts,
                body=body,
                headers=headers,
                grace=source.resolved_grace,
                run_on=source.run_on,
                unit=source.unit,
                priority=source.priority,
                patient=False,
                now=now,
            )

        rest = []
        if notification.unusable:
            offer = Offer(
                source=source.name,
                channel=source.channel,
                body=body,
                headers=dict(headers),
                verdict="quarantined",
                reason=notification.unusable[:REASON_CHARS_MAX],
            )
            rest = [inbox.event_accept(source.project, [offer], patient=False, now=now)]

        async def send() -> list[Accepted]:
            # Who waits for the same alert waits with a connection: half of them stay free of it.
            name = (source.project, source.name)
            turn = self._turns.setdefault(
                name, asyncio.Semaphore(max(1, self._pool.max_size // 2))
            )

            async def in_turn() -> list[Accepted]:
                async with turn:
                    return await self._fold(fold, notification.alerts, rest)

            accepted = await self._commit(source.project, in_turn)
            if any(one.verdict == "new" and one.run_id for one in accepted):
                await self._wake([source.agent])
            return accepted

        return await self._in_time.wait(send(), ANSWER_SECONDS_MAX)

    async def _fold(
        self,
        fold: Callable[[Sequence[Alert]], Call[list[Accepted]]],
        alerts: Sequence[Alert],
        rest: Sequence[Call[list[Accepted]]],
    ) -> list[Accepted]:
        """Fold *alerts*; where one has two states, the earlier state first."""
        first, then = in_order(alerts)
        if not then and not rest:
            return await self._once(fold(first))
        stop_here("ingress.accept.before")
        accepted: list[Accepted] = []
        async with self._pool.connection() as conn, conn.transaction():
            if then:
                # Had it come before, the earlier states would be news again once they are folded.
                async with conn.transaction(force_rollback=True):
                    known = await arun(conn, fold(then))
                if all(one.verdict != "new" for one in known):
                    last = {alert.fingerprint for alert in then}
                    first = [*(a for a in first if a.fingerprint not in last), *then]
                    then = []
            for call in (fold(first), *([fold(then)] if then else []), *rest):
                accepted += await arun(conn, call)
        stop_here("ingress.accept.after")
        return accepted

    def _gather(self, project: str) -> Gather[Offer, Accepted]:
        if project not in self._gathers:
            if len(self._gathers) >= PROJECTS_MAX:
                self._gathers.clear()  # those under way finish by themselves

            async def send(offers: Sequence[Offer]) -> list[Accepted]:
                call = inbox.event_accept(project, offers, memory=self._memory, patient=False)
                if len(offers) > 1:
                    accepted = await self._once(call)
                else:
                    accepted = await self._commit(project, lambda: self._once(call))
                await self._wake(_agents(offers, accepted))
                return accepted

            self._gathers[project] = Gather(send, batch_max=BATCH_MAX)
        return self._gathers[project]

    async def _commit(self, project: str, send: Callable[[], Awaitable[T]]) -> T:
        for tried in range(1, TRIES_MAX + 1):
            try:
                return await send()
            except psycopg.Error as error:
                if error.sqlstate not in _LOST_A_RACE or tried == TRIES_MAX:
                    raise ours(error) from error
                log.event(
                    "acceptor.retried", project=project, sqlstate=error.sqlstate, tried=tried
                )
                await asyncio.sleep(PAUSE_SECONDS_MAX * random.random())  # noqa: S311 - jitter
        raise AssertionError("the last try returns or raises")

    async def _once(self, call: Call[T]) -> T:
        stop_here("ingress.accept.before")
        async with self._pool.connection() as conn:
            answer = await arun(conn, call)
        stop_here("ingress.accept.after")
        return answer

    async def _wake(self, agents: Iterable[str]) -> None:
        """Tell idle workers; what this says is committed, so its failure is nobody's."""
        due = self._bell.due(agents)
        if not due:
            return
        try:
            async with self._pool.connection() as conn:
                await arun(conn, agent_wake(due))
        except psycopg.Error as error:
            log.event("workers.unwoken", reason=type(error).__name__)


def in_order(alerts: Sequence[Alert]) -> tuple[list[Alert], list[Alert]]:
    """
    *alerts* as they are to be folded: one of each fingerprint, then what is later.

    An alert fires before it is resolved, unless it fires anew after its end.
    """
    first: dict[str, Alert] = {}
    then = []
    for alert in sorted(alerts, key=lambda one: one.status):
        other = first.setdefault(alert.fingerprint, alert)
        if other is alert:
            continue
        is_anew = other.starts_ns > max(alert.starts_ns, alert.ends_ns)
        if is_anew:
            first[alert.fingerprint] = alert
        then.append(other if is_anew else alert)
    return list(first.values()), then


def _agents(offers: Sequence[Offer], accepted: Sequence[Accepted]) -> list[str]:
    """The agents that got a new run."""
    return [
        offer.agent
        for offer, one in zip(offers, accepted, strict=True)
        if offer.agent and one.verdict == "new"
    ]


def ours(error: psycopg.Error) -> SemelError:
    """What *error* means to a sender: mend it, or come back."""
    state = error.sqlstate or ""
    said = error.diag.message_primary or str(error).partition("\n")[0] or type(error).__name__
    if state.startswith(("22", "54")):
        return BadRequest(f"PostgreSQL cannot keep it: {said}")
    if state.startswith(("3F", "42")):
        return SchemaMismatch(said)
    return DatabaseUnreachable(said)
