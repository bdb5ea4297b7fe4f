"""
Poller: takes the lease of one bot, asks, commits what came, and only then asks from behind it.

    take the lease ──> ask ──> commit updates and next id ──> ask from that id ──> ...

Whatever is told to the server was committed before: to ask from an id makes it forget all below.
So a crash at any place, or a second poller that should not be there, repeats updates and loses
none, and what is repeated is known by its id. The lease saves the bot from two that take turns; it
is believed in only as long as the database promised when it was asked, and every write names
its fence.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from semel import log
from semel.core import polls
from semel.db.execute import arun
from semel.db.stops import stop_here
from semel.edges.committer import Committer
from semel.edges.poller.answer import Unanswered
from semel.edges.poller.pace import Pace
from semel.edges.poller.taking import Held, Lost, Taking
from semel.errors import SemelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from psycopg_pool import AsyncConnectionPool

    from semel.config import Source
    from semel.core.call import Call
    from semel.core.polls import Queue, Taken
    from semel.edges.poller.api import Api
    from semel.edges.poller.status import Status

T = TypeVar("T")

#: A question that is answered with nothing takes so long at least.
EMPTY_SECONDS_MIN = 1.0
#: Before the database is asked again that did not answer.
AWAY_SECONDS = 1.0
#: After a fault of ours.
FAULT_SECONDS = 10.0
#: A lease that is another's is looked at this often.
LOOK_SECONDS_MAX = 10.0
#: Giving the lease back is worth so much of a stop.
LEAVE_SECONDS_MAX = 0.7


class Poller:
    """
    Polls for one source, whenever no other process does.

    Args:
        queue: The bot's, as this process asks for it.
        memory: How long an id is remembered.
        observe: Told of each event: outcome, and seconds from its answer to its commit.
    """

    def __init__(
        self,
        source: Source,
        queue: Queue,
        api: Api,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        status: Status,
        *,
        memory: timedelta,
        observe: Callable[[str, float], None] = lambda _outcome, _seconds: None,
        pace: Pace | None = None,
    ) -> None:
        self._source = source
        self._queue = queue
        self._api = api
        self._pool = pool
        self._status = status
        self._taking = Taking(
            source, queue, Committer(pool), status, memory=memory, observe=observe
        )
        self._pace = pace or Pace()
        self._told: tuple[str, ...] = ()

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            while True:
                try:
                    await asyncio.sleep(await self._turn())
                except Lost as lost:
                    self._status.asked["lost"] += 1
                    log.event(
                        "poller.lost",
                        project=self._queue.project,
                        source=self._source.name,
                        reason=str(lost),
                    )
                except (SemelError, psycopg.Error):  # who serves says what the database says
                    self._status.role = "away"
                    self._status.missing = self._status.restarts = None
                    await asyncio.sleep(AWAY_SECONDS)
                except Exception as error:  # noqa: BLE001 - a fault of ours, and polling goes on
                    log.event(
                        "poller.failed",
                        project=self._queue.project,
                        source=self._source.name,
                        state="failing",
                        reason=f"a fault of Semel's own: {type(error).__name__}",
                        retry_s=FAULT_SECONDS,
                    )
                    await asyncio.sleep(FAULT_SECONDS)
        finally:
            self._status.role = "stopped"
            await self._api.close()

    async def _turn(self) -> float:
        """Hold the lease for as long as it goes; answers in how many seconds to try again."""
        began = time.monotonic()
        stop_here("poller.lease.before")
        taken = await self._send(polls.poll_take(self._queue))
        stop_here("poller.lease.after")
        if taken is None:
            return 1.0
        self._status.missing, self._status.restarts = taken.missing, taken.restarts
        self._status.next_id = taken.next_id
        if taken.outcome != "taken":
            return self._stand_by(taken)
        held = Held(
            fence=taken.fence,
            next_id=taken.next_id,
            ask_id=taken.ask_id,
            failures=taken.failures,
            until=began + self._queue.lease.total_seconds(),
        )
        try:
            try:
                await self._look_elsewhere()
                await self._hold(held)
            except Unanswered as bad:
                return await self._fail(held, bad)
        except asyncio.CancelledError:
            with suppress(TimeoutError, SemelError, psycopg.Error):
                async with asyncio.timeout(LEAVE_SECONDS_MAX):
                    await self._send(polls.poll_leave(self._queue, held.fence, "stopped"))
            log.event("poller.stopped", project=self._queue.project, source=self._source.name)
            raise
        return 0.0

    async def _look_elsewhere(self) -> None:
        """
        Look for another project that polls the bot.

        After our lease is committed: of two that take one, the later at least sees the other.
        """
        for other in await self._send(polls.polls_of(self._queue.bot)):
            if other.live and other.project != self._queue.project:
                raise Unanswered(
                    "elsewhere",
                    f"source {other.source} of project {other.project} polls this bot, on"
                    f" {other.place}",
                )

    def _stand_by(self, taken: Taken) -> float:
        if taken.outcome == "waits":
            self._status.role = "waiting"
        else:
            self._status.role = "standby"
            if taken.source != self._source.name:
                if self._is_news(taken.source, taken.place):
                    log.event(
                        "poller.stood_back",
                        project=self._queue.project,
                        source=self._source.name,
                        holder=taken.source,
                        place=taken.place,
                    )
            elif self._is_news(taken.source, taken.place):
                log.event(
                    "poller.stood_by",
                    project=self._queue.project,
                    source=self._source.name,
                    place=taken.place,
                )
        look = min(self._queue.lease.total_seconds() / 3, LOOK_SECONDS_MAX)
        return min(max(taken.remaining.total_seconds(), 0.05), look)

    async def _hold(self, held: Held) -> None:
        """
        Ask, and keep the lease meanwhile; whichever ends first ends both.

        Raises:
            Lost: the lease is another's, or could not be kept in time.
            Unanswered: as `_ask_on`.
        """
        self._told = ()
        asking = asyncio.create_task(self._ask_on(held))
        keeping = asyncio.create_task(self._keep_on(held))
        try:
            # Not left to what keeps it: cancelled, that may wait for a database that hangs.
            while not asking.done() and not keeping.done():
                left = held.until - time.monotonic()
                if left <= 0:
                    raise Lost("the database did not prolong the lease in time")
                await asyncio.wait(
                    {asking, keeping}, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
            await (asking if asking.done() else keeping)
        finally:
            for task in (asking, keeping):
                task.cancel()
            await asyncio.gather(asking, keeping, return_exceptions=True)

    async def _keep_on(self, held: Held) -> None:
        """
        Hold the lease for as long as the database lets us.

        Raises:
            Lost: it is another's.
        """
        every = self._queue.lease.total_seconds() / 3
        pause = every
        while True:
            await asyncio.sleep(pause)
            try:
                await self._keep(held)
                pause = every
            except (SemelError, psycopg.Error):
                pause = min(every / 4, AWAY_SECONDS)

    async def _keep(self, held: Held, *, answered: bool = False) -> None:
        began = time.monotonic()
        kept = await self._send(polls.poll_keep(self._queue, held.fence, answered=answered))
        if kept is None:
            raise Lost("another process has taken it")
        if kept.next_id == held.next_id:
            held.ask_id = kept.ask_id
        held.until = max(held.until, began + self._queue.lease.total_seconds())

    async def _ask_on(self, held: Held) -> None:
        """
        Ask and commit.

        Raises:
            Unanswered: the server does not answer with updates.
            Lost: nothing was committed.
        """
        is_known = False
        while True:
            began = time.monotonic()
            # Not at first: whether it answers at all is worth knowing at once.
            updates = await self._api.updates(held.ask_id, wait=is_known)
            came = time.monotonic()
            self._status.asked["updates" if updates else "empty"] += 1
            is_first = not is_known
            if is_first:
                await self._keep(held, answered=True)
                held.failures, is_known = 0, True
                self._status.role = "polling"
                log.event(
                    "poller.started",
                    project=self._queue.project,
                    source=self._source.name,
                    bot=self._queue.bot,
                    fence=held.fence,
                    next_id=held.next_id,
                )
            if updates:
                await self._taking.take(held, updates, came)
            elif came - began < EMPTY_SECONDS_MIN and not is_first:
                await asyncio.sleep(EMPTY_SECONDS_MIN - (came - began))

    async def _fail(self, held: Held, bad: Unanswered) -> float:
        """Give the lease back, for as long as nobody is to ask."""
        wait = self._pace.pause(bad.state, max(held.failures, self._taking.barren), bad.seconds)
        self._status.role = "waiting"
        if bad.state != "elsewhere":
            self._status.asked[bad.state] += 1
        log.event(
            "poller.failed",
            project=self._queue.project,
            source=self._source.name,
            state=bad.state,
            reason=str(bad),
            retry_s=round(wait.total_seconds(), 1),
        )
        leave = polls.poll_leave(self._queue, held.fence, bad.state, said=str(bad), wait=wait)
        await self._send(leave)
        # By the database's word, not by ours: others may have come first.
        return min(wait.total_seconds(), LOOK_SECONDS_MAX)

    async def _send(self, call: Call[T]) -> T:
        async with self._pool.connection() as conn:
            return await arun(conn, call)

    def _is_news(self, *told: str) -> bool:
        """Whether this was not told last."""
        before, self._told = self._told, told
        return told != before
