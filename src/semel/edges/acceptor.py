"""
The acceptor: the one step of an ingress that writes.

What it returns is committed: delivery, dedupe row and run are one statement, one transaction.
Events that arrive while a transaction of their project is on its way share the next one, and so
do notifications, of which those that tell of one alert go one after the other; each sender is
answered after its commit. A batch that fails is sent again one by one. No one waits long: for
another's lock half a second, for an answer of any kind a few; what nobody waits for any more and
was not sent by then never is.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from semel.core import inbox
from semel.db.gather import Gather
from semel.db.stops import stop_here
from semel.edges.committer import Committer, lost_a_race
from semel.edges.folding import Folding, in_order
from semel.edges.in_time import ANSWER_SECONDS_MAX, InTime
from semel.errors import DatabaseUnreachable
from semel.model import Notice, Offer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    import psycopg
    from psycopg_pool import AsyncConnectionPool

    from semel.config import Source
    from semel.edges.channel import Notification
    from semel.model import Accepted

I = TypeVar("I")  # noqa: E741 - an item
T = TypeVar("T")
O = TypeVar("O")  # noqa: E741 - its outcome

#: Events, or notifications, of one transaction.
BATCH_MAX = 256
#: Their transactions that are on their way at the same time: one is executed while another commits.
WAYS = 2
#: Projects whose gatherers are kept; one more starts anew.
PROJECTS_MAX = 1000


class Acceptor:
    """
    Accepts events through a pool of connections, many to a transaction under load.

    Args:
        memory: Of an id, from its last sighting.
        wait: Seconds that a transaction waits for a connection; None: as long as the pool says.
    """

    def __init__(
        self,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        *,
        memory: timedelta = inbox.MEMORY,
        wait: float | None = None,
    ) -> None:
        self._committer = Committer(pool, wait=wait)
        self._memory = memory
        self._events: dict[str, Gather[Offer, Accepted]] = {}
        self._notices: dict[str, Gather[Notice, list[Accepted]]] = {}
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
        if len(offers) == 1 and now is None:
            gather = self._events.get(project) or self._gather_events(project)
            return [await _gathered(gather, offers[0], within)]
        calls = [
            inbox.event_accept(
                project, offers[n : n + BATCH_MAX], memory=self._memory, patient=False, now=now
            )
            for n in range(0, len(offers), BATCH_MAX)
        ]

        async def send() -> list[Accepted]:
            accepted = await self._committer.insist(
                project, lambda: self._committer.together(calls)
            )
            self._wake(offers, accepted)
            return accepted

        return await self._in_time.wait(send(), within)

    async def accept_alerts(
        self,
        source: Source,
        notification: Notification,
        *,
        body: bytes,
        headers: Mapping[str, str],
        now: datetime | None = None,
        within: float = ANSWER_SECONDS_MAX,
    ) -> list[Accepted]:
        """
        Fold one Alertmanager notification, in one transaction; errors as `accept`.

        It shares the transaction with others, unless an alert of it has two states or is
        unusable. What is unusable is kept as a quarantined delivery, answered last.
        """
        first, then = in_order(notification.alerts)
        if now is None and not then and not notification.unusable:
            notice = Notice(
                source=source.name,
                agent=source.agent,
                envelope=notification.envelope,
                alerts=first,
                body=body,
                headers=dict(headers),
                grace=source.resolved_grace,
                run_on=source.run_on,
                unit=source.unit,
                priority=source.priority,
                reminder=source.reminder,
            )
            gather = self._notices.get(source.project) or self._gather_notices(source.project)
            return await _gathered(gather, notice, within)

        folding = Folding(
            source=source, notification=notification, body=body, headers=headers, now=now
        )

        async def in_turn() -> list[Accepted]:
            async with self._turn(source.project, source.name):
                return await self._fold(folding, alone=not then)

        async def send() -> list[Accepted]:
            accepted = await self._committer.insist(source.project, in_turn)
            if source.agent and any(one.verdict == "new" and one.run_id for one in accepted):
                self._committer.wake([source.agent])
            return accepted

        return await self._in_time.wait(send(), within)

    async def _fold(self, folding: Folding, *, alone: bool) -> list[Accepted]:
        """Fold a notification in one transaction: in one statement where *alone* it is enough."""
        if alone and not folding.notification.unusable:
            return await self._committer.once(folding.fold(folding.notification.alerts))
        stop_here("ingress.accept.before")
        async with self._committer.connection() as conn, conn.transaction():
            accepted = await folding.on(conn)
        stop_here("ingress.accept.after")
        return accepted

    def _turn(self, project: str, source: str) -> asyncio.Semaphore:
        """Who waits for another's alert waits with a connection: half of them stay free of it."""
        half = max(1, self._committer.pool.max_size // 2)
        return self._turns.setdefault((project, source), asyncio.Semaphore(half))

    def _gather_events(self, project: str) -> Gather[Offer, Accepted]:
        async def send(offers: Sequence[Offer]) -> list[Accepted]:
            call = inbox.event_accept(project, offers, memory=self._memory, patient=False)
            accepted = await self._committer.once(call)
            self._wake(offers, accepted)
            return accepted

        async def alone(offer: Offer) -> Accepted:
            [accepted] = await self._committer.insist(project, lambda: send([offer]))
            return accepted

        gather = Gather(send, alone=alone, again=lost_a_race, batch_max=BATCH_MAX, ways=WAYS)
        _keep(self._events, project, gather)
        return gather

    def _gather_notices(self, project: str) -> Gather[Notice, list[Accepted]]:
        async def send(notices: Sequence[Notice]) -> list[list[Accepted]]:
            call = inbox.notification_fold(project, notices, patient=False)
            accepted = await self._committer.once(call)
            self._committer.wake(
                notice.agent
                for notice, each in zip(notices, accepted, strict=True)
                if notice.agent and any(one.verdict == "new" and one.run_id for one in each)
            )
            return accepted

        async def alone(notice: Notice) -> list[Accepted]:
            async def in_turn() -> list[list[Accepted]]:
                async with self._turn(project, notice.source):
                    return await send([notice])

            [accepted] = await self._committer.insist(project, in_turn)
            return accepted

        gather = Gather(
            send,
            alone=alone,
            again=lost_a_race,
            names=_alerts_of,
            batch_max=BATCH_MAX,
            ways=WAYS,
        )
        _keep(self._notices, project, gather)
        return gather

    def _wake(self, offers: Sequence[Offer], accepted: Sequence[Accepted]) -> None:
        """Wake the agents that got a new run."""
        self._committer.wake(
            offer.agent
            for offer, one in zip(offers, accepted, strict=True)
            if offer.agent and one.verdict == "new"
        )


async def _gathered(gather: Gather[I, O], item: I, within: float) -> O:
    """What became of *item*; what was not sent *within* so many seconds never is."""
    try:
        return await gather.add(item, within=within)
    except TimeoutError:
        raise DatabaseUnreachable(f"the database gave no answer within {within:g} s") from None


def _keep(kept: dict[str, T], project: str, gather: T) -> None:
    if len(kept) >= PROJECTS_MAX:
        kept.clear()  # those under way finish by themselves
    kept[project] = gather


def _alerts_of(notice: Notice) -> list[tuple[str, str]]:
    return [(notice.source, alert.fingerprint) for alert in notice.alerts]
