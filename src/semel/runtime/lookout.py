"""
Lookout: waits until a project's journal has something for a consumer, and has it numbered.

Looking costs one read, and writes nothing where there is nothing. Somebody who has committed may
ring; whoever is not rung, or rung in vain, looks by himself.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from semel.core import consumers, journals
from semel.db.link import Link
from semel.db.wake import JOURNAL_CHANNEL, woken

if TYPE_CHECKING:
    from datetime import timedelta

    from semel.core.call import Call

T = TypeVar("T")

#: Another instance numbers, or retention works; it takes no longer than a statement.
BUSY_SECONDS = 0.02


class Lookout:
    """
    Looks at *project*'s journal for the consumer *name*.

    Args:
        poll: How long it waits when nobody rings.
        listen: Whether it can be rung; False behind a pooler.
    """

    def __init__(
        self, dsn: str, *, project: str, name: str, poll: timedelta, listen: bool
    ) -> None:
        self.project = project
        self.name = name
        self._dsn = dsn
        self._poll = poll.total_seconds()
        self._listen = listen
        self._link = Link(dsn, name="semel-consumer", prepare=listen)
        self._bell = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._numbered = True

    def open(self) -> None:
        """Begin to listen."""
        if self._listen:
            self._listening = asyncio.create_task(self._hear())

    async def close(self) -> None:
        """Hear and ask nothing more."""
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
        await self._link.close()

    async def insist(self, call: Call[T]) -> T:
        """Run *call* in a transaction of its own, again while the server is away."""
        return await self._link.insist(call)

    async def look(self, until: float) -> bool:
        """True once there is something to look at; false when *until* has come."""
        while True:
            self._bell.clear()
            if await self.insist(consumers.journal_waits(self.project, self.name)):
                # What another is just numbering is there a moment later.
                number = journals.journal_number(self.project)
                self._numbered = await self.insist(number) is not None
                return True
            if not await self.pause(until):
                return False

    async def rest(self, until: float, *, busy: bool) -> bool:
        """
        After a look that brought nothing: true when it is time for another.

        Args:
            busy: Another instance has the cursor.
        """
        if busy:
            return await self.pause(until)
        return self._numbered or await self.pause(until, BUSY_SECONDS)

    async def pause(self, until: float, seconds: float | None = None) -> bool:
        """Wait for a ring, *seconds* or the poll; false when *until* has come."""
        left = until - time.monotonic()
        if left <= 0:
            return False
        some = (self._poll if seconds is None else seconds) * random.uniform(0.75, 1.25)  # noqa: S311 - jitter
        with suppress(TimeoutError):
            async with asyncio.timeout(min(left, some)):
                await self._bell.wait()
        return True

    async def _hear(self) -> None:
        async for project in woken(self._dsn, JOURNAL_CHANNEL):
            if project in {"", self.project}:
                self._bell.set()
