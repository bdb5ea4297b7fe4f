"""
Queue: what waits of one source, oldest first, and what arrives behind it.

It lives in the event loop; its files belong to the spool's thread. What arrives while one write is
on its way shares the next one and its fsync. It is open while anything waits or is being written,
and until then whatever arrives goes behind: that is what keeps the order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from semel.edges.spool.files import OVERHEAD_BYTES
from semel.errors import SpoolUnfit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor
    from uuid import UUID

    from semel.edges.spool.files import Entry, Files

T = TypeVar("T")

#: Records of one write.
BATCH_MAX = 256


class Bound:
    """How many bytes all queues of a spool may take; what is about to be written counts."""

    def __init__(self, bytes_max: int, used: Callable[[], int]) -> None:
        self.bytes_max = bytes_max
        self._used = used
        self._reserved = 0

    def take(self, size: int) -> None:
        """
        Reserve *size* bytes.

        Raises:
            SpoolUnfit: there are not so many left.
        """
        if self._used() + self._reserved + size > self.bytes_max:
            raise SpoolUnfit(f"the spool is full: [spool] bytes_max is {self.bytes_max}")
        self._reserved += size

    def give(self, size: int) -> None:
        """Return what was reserved: it is written, or never will be."""
        self._reserved -= size


class Queue:
    """The records of (*project*, *source*)."""

    def __init__(
        self,
        project: str,
        source: str,
        *,
        files: Files,
        waiting: Sequence[Entry],
        bound: Bound,
        thread: Executor,
    ) -> None:
        self.project = project
        self.source = source
        self.files = files
        self.opened: Callable[[Queue], None] = lambda _queue: None  # told of each new record
        self._bound = bound
        self._thread = thread
        self._entries = deque(waiting)
        self._arriving: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._writing: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether new ones must go behind what is here."""
        return bool(self._entries or self._writing is not None)

    @property
    def count(self) -> int:
        """Records that are on the disk and not drained."""
        return len(self._entries)

    @property
    def oldest_at(self) -> float | None:
        """When the first of them came, in unix seconds."""
        return self._entries[0].at if self._entries else None

    def put(self, plain: bytes) -> asyncio.Future[None]:
        """
        Take the next place for a record; done once it is synced.

        Raises:
            SpoolUnfit: at once where the spool is full; from the future where the disk is, or
                fails. Nothing is kept then.
        """
        size = len(plain) + OVERHEAD_BYTES
        self._bound.take(size)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        future.add_done_callback(lambda _done: self._bound.give(size))
        self._arriving.append((plain, future))
        if self._writing is None:
            self._writing = loop.create_task(self._write())
        return future

    def head(self, most: int) -> list[Entry]:
        """The first records, at most so many, all of one segment."""
        first = list(islice(self._entries, most))
        return [entry for entry in first if entry.segment is first[0].segment]

    async def read(self, entries: Sequence[Entry]) -> list[bytes | None]:
        """The records of *entries*, None for one that is damaged."""
        return await self.in_thread(lambda: self.files.read(entries))

    async def drop(self, entries: Sequence[Entry]) -> list[UUID]:
        """Let go of the first *entries*, which are drained; answers the files that are gone."""
        for _ in entries:
            self._entries.popleft()
        return await self.in_thread(lambda: self.files.drop(entries))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """What *work* with the files answers."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def settle(self) -> None:
        """Wait until what arrived is written."""
        while self._writing is not None:
            await asyncio.wait({self._writing})

    async def _write(self) -> None:
        try:
            while self._arriving:
                few = min(BATCH_MAX, len(self._arriving))
                batch = [self._arriving.popleft() for _ in range(few)]
                await self._write_batch(batch)
        finally:
            self._writing = None

    async def _write_batch(self, batch: Sequence[tuple[bytes, asyncio.Future[None]]]) -> None:
        plains = [plain for plain, _ in batch]
        try:
            entries = await self.in_thread(lambda: self.files.append(plains))
        except OSError as error:
            said = f"the spool's disk does not take it: {error.strerror or error}"
            for _, future in batch:
                if not future.done():
                    future.set_exception(SpoolUnfit(said))
            return
        self._entries.extend(entries)
        for _, future in batch:
            if not future.done():
                future.set_result(None)
        self.opened(self)
