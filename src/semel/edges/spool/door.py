"""
Door: which way an arrival goes. Straight in while its source has nothing spooled, else behind that.

An arrival that the database does not take in time is spooled, and with it, in the order they came,
all others of its source that are on their way: whoever arrives later goes behind them. One of those
may still be accepted by the way it went first; its id makes the two one event.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from semel import log
from semel.edges.spool.record import pack
from semel.errors import DatabaseUnreachable, SchemaMismatch, SpoolUnfit
from semel.model import Accepted

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from semel.edges.acceptor import Acceptor
    from semel.edges.spool.folder import Folder
    from semel.edges.spool.queue import Queue
    from semel.edges.spool.record import Record

#: A refusal of the spool is logged at most this often.
TOLD_SECONDS = 10.0
_WHY = "the database is away, or others of its source wait for it; it is on this disk"


class Door:
    """
    Lets arrivals in, or has them wait in *folder*.

    Args:
        acceptor: The straight way; it waits for no connection longer than *wait*, or what it
            was given would still be accepted when others have waited on the disk.
        wait: Seconds that a straight way may take.
    """

    def __init__(self, folder: Folder, acceptor: Acceptor, *, wait: float) -> None:
        self.acceptor = acceptor
        self.wait = wait
        self._folder = folder
        self._under_way: dict[Queue, dict[asyncio.Future[asyncio.Future[None]], Record]] = {}
        self._told_at = float("-inf")

    async def enter(
        self, record: Record, straight: Coroutine[Any, Any, list[Accepted]]
    ) -> list[Accepted]:
        """
        What became of *record*: what *straight* answers, or `spooled` for each event.

        Raises:
            SpoolUnfit: neither the database nor the disk takes it. Nothing was kept.
            SemelError: as *straight*.
        """
        queue = self._folder.queue(record.project, record.source)
        if queue.is_open:
            straight.close()
            return await self._spooled(queue, record, self._put(queue, record))
        loop = asyncio.get_running_loop()
        # Done when this one is to be spooled: with that, or with why it cannot be.
        diverted: asyncio.Future[asyncio.Future[None]] = loop.create_future()
        flock = self._under_way.setdefault(queue, {})
        flock[diverted] = record
        going = loop.create_task(straight)
        try:
            first: set[asyncio.Future[Any]] = {going, diverted}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if going.done() and not _is_away(going):
                return going.result()
            if not diverted.done():
                self._divert(queue)
        finally:
            flock.pop(diverted, None)
            if not flock:
                self._under_way.pop(queue, None)
            if not going.done():
                going.cancel()  # what is not sent yet never is
            elif not going.cancelled():
                going.exception()
        return await self._spooled(queue, record, diverted.result())

    def _divert(self, queue: Queue) -> None:
        """Give all that are under way their places behind one another, before anybody else."""
        for diverted, record in list(self._under_way[queue].items()):
            if not diverted.done():
                diverted.set_result(self._put(queue, record))

    def _put(self, queue: Queue, record: Record) -> asyncio.Future[None]:
        try:
            return queue.put(pack(record))
        except SpoolUnfit as full:
            refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            refused.set_exception(full)
            return refused

    async def _spooled(
        self, queue: Queue, record: Record, written: asyncio.Future[None]
    ) -> list[Accepted]:
        try:
            await written
        except SpoolUnfit as unfit:
            self._refused(queue, unfit)
            raise
        one = Accepted(verdict="spooled", event_id=None, run_id=None, reason=_WHY)
        return [one] * record.events

    def _refused(self, queue: Queue, unfit: SpoolUnfit) -> None:
        self._folder.refused[queue.source] += 1
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= TOLD_SECONDS:
            self._told_at = now
            log.event(
                "spool.refused", project=queue.project, source=queue.source, reason=str(unfit)
            )


def _is_away(going: asyncio.Task[list[Accepted]]) -> bool:
    return not going.cancelled() and isinstance(
        going.exception(), DatabaseUnreachable | SchemaMismatch
    )
