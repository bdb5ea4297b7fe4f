"""
The poll: a source that says `reconcile` asks its Alertmanager now and then what fires there.

A notification may never have come, or never will: its receiver was down for longer than it is
retried, or the firing was never logged as sent and so its end is not told. What fires there and is
unknown here, and what is open here and over there, is accepted as the notification would have been,
by the same fold; whichever of the two comes second changes nothing.

Of all the servers of a database one polls a source; a lease says which, and saves work only.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg

from semel import log
from semel.core import alert_polls, reads
from semel.db.execute import arun
from semel.edges import routing
from semel.edges.alert_poll import api, differences
from semel.errors import SemelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from psycopg_pool import AsyncConnectionPool

    from semel.config import Settings, Source
    from semel.core.alert_polls import Difference
    from semel.edges.acceptor import Acceptor
    from semel.edges.ingress import Observe

#: Kept with the deliveries that a poll makes.
HEADERS = {"user-agent": "semel-reconcile"}
#: A holder that did not poll for so many intervals, and so many seconds, has lost it.
LEASE_TIMES = 2
LEASE_SECONDS = 30.0


async def poll_all(
    settings: Settings,
    pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
    acceptor: Acceptor,
    observe: Observe,
) -> None:
    """Poll for every source that says so, until cancelled."""
    polls = [
        Poll(source, pool, acceptor, observe)
        for source in settings.sources.values()
        if source.reconcile is not None
    ]
    async with asyncio.TaskGroup() as group:
        for poll in polls:
            group.create_task(poll.run())


class Poll:
    """Of one source, by this process."""

    def __init__(
        self,
        source: Source,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        acceptor: Acceptor,
        observe: Observe,
    ) -> None:
        if source.reconcile is None:
            raise ValueError(f"source {source.name} has no reconcile")
        self._source = source
        self._settings = source.reconcile
        self._pool = pool
        self._acceptor = acceptor
        self._observe = observe
        self._holder = uuid4()
        self._fault: str | None = None

    async def run(self) -> None:
        """Poll until cancelled; whatever fails is said, and tried again."""
        try:
            while True:
                try:
                    await self.once()
                except Exception as error:  # noqa: BLE001 - it outlives whatever is answered
                    await self._failed(f"{type(error).__name__} in the middle of a poll")
                every = self._settings.every.total_seconds()
                await asyncio.sleep(every * random.uniform(0.9, 1.1))  # noqa: S311 - jitter
        finally:
            await self.leave()

    async def once(self) -> bool:
        """One poll; False where another process does it."""
        source, settings = self._source, self._settings
        lease = settings.every * LEASE_TIMES
        asked = await self._ask(
            alert_polls.alert_poll_take(
                source.project,
                source.name,
                self._holder,
                lease + type(lease)(seconds=LEASE_SECONDS),
            )
        )
        if asked is None:
            return False
        try:
            began = await api.status(settings)
            groups = await api.groups(settings)
        except api.NoAnswer as bad:
            await self._failed(str(bad))
            return True
        self._say(None)
        await self._make_good(groups, asked, began)
        return True

    async def _make_good(
        self, groups: list[dict[str, Any]], asked: datetime, began: str
    ) -> None:
        source, settings = self._source, self._settings
        there = differences.standings(source, groups)
        told = await self._ask(
            alert_polls.alert_poll_compare(
                source.project,
                source.name,
                there,
                asked=asked,
                settle=settings.settle,
                gone_after=settings.gone_after,
                began=began,
            )
        )
        found = 0
        for body in differences.found(source, groups, told):
            found += await self._accept(body)
        ended = 0
        gone = [one for one in told if one.what == "gone"]
        if gone:
            ended = await self._accept(differences.gone(source, await self._known(gone)))
        await self._report(None, firing=len(there), found=found, ended=ended)

    async def _known(
        self, gone: Iterable[Difference]
    ) -> list[tuple[Difference, Mapping[str, Any]]]:
        """Each of *gone* with its alert as the run of its episode was told of it, or nothing."""
        known: list[tuple[Difference, Mapping[str, Any]]] = []
        for one in gone:
            work = await self._ask(reads.work_of(self._source.project, one.run_id))
            alerts = work.input.get("alerts") if work and isinstance(work.input, dict) else None
            same: Mapping[str, Any] = next(
                (
                    alert
                    for alert in (alerts if isinstance(alerts, list) else ())
                    if isinstance(alert, dict) and alert.get("fingerprint") == one.fingerprint
                ),
                {},
            )
            known.append((one, same))
        return known

    async def _accept(self, body: bytes) -> int:
        """Tell the fold, as the ingress does; how many events that made."""
        began = time.perf_counter()
        notification = differences.read(self._source, body)
        if notification is None:
            return 0
        new = 0
        parts, _ = routing.parted(notification, self._source)
        for own, part in parts:
            for one in await self._acceptor.accept_alerts(
                own, part, body=body, headers=HEADERS
            ):
                self._observe(self._source, one.verdict, time.perf_counter() - began)
                new += one.verdict == "new"
        return new

    async def _report(self, fault: str | None, **came_to: int) -> None:
        await self._ask(
            alert_polls.alert_poll_report(
                self._source.project, self._source.name, self._holder, fault, **came_to
            )
        )

    async def _failed(self, fault: str) -> None:
        self._say(fault)
        with contextlib.suppress(psycopg.Error, SemelError):  # the database may be what failed
            await self._report(fault)

    async def leave(self) -> None:
        """Leave the poll to another process, if the database hears of it."""
        source = self._source
        try:
            async with asyncio.timeout(1):
                await self._ask(
                    alert_polls.alert_poll_leave(source.project, source.name, self._holder)
                )
        except (psycopg.Error, SemelError, TimeoutError):
            pass  # its lease ends by itself

    async def _ask(self, call: Any) -> Any:
        async with self._pool.connection() as conn:
            return await arun(conn, call)

    def _say(self, fault: str | None) -> None:
        """Log a fault when it begins, and not again while it lasts."""
        if fault is not None and fault != self._fault:
            log.event(
                "alert_poll.failed",
                project=self._source.project,
                source=self._source.name,
                reason=fault,
            )
        self._fault = fault
