"""
Drain: what waits on the disk comes into the inbox, for each source in its order.

    read ──position moves, records are accepted──> COMMIT ──> let go, the file removed, forgotten

A record is accepted in the transaction that moves its segment's position past it, so a crash at
any moment leaves it accepted and passed over, or neither. What the database cannot keep of a record
is kept raw, as at receipt; what it does not take at all waits, and whatever is behind it too.

It has connections of its own: a pool waits the longer the longer the database was away.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from semel import log
from semel.core import spools
from semel.db.execute import arun
from semel.db.pool import aconnect
from semel.db.stops import stop_here
from semel.edges.committer import Committer, lost_a_race, ours
from semel.edges.spool.record import unpack
from semel.errors import BadRequest, SemelError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta
    from uuid import UUID

    from psycopg_pool import AsyncConnectionPool

    from semel.edges.spool.files import Entry
    from semel.edges.spool.folder import Folder
    from semel.edges.spool.queue import Queue
    from semel.edges.spool.record import Record

#: Records of one transaction.
BATCH_MAX = 64
#: After so many transactions another source has its turn.
TURN_BATCHES = 16
#: Sources that are drained at the same time; each has a connection.
DRAINS_MAX = 2
PAUSE_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 2.0
#: How often a process tells which sources its spool serves.
ANNOUNCE_SECONDS = 600.0
STOP_SECONDS_MAX = 1.0


class _Moved(Exception):
    """The segment stands elsewhere than was believed; the transaction is undone."""

    def __init__(self, position: int) -> None:
        super().__init__(f"the segment stands at {position}")
        self.position = position


class Drain:
    """
    Drains *folder* into *dsn*.

    Args:
        pool: Wakes workers afterwards.
        memory: Of ids, as for the acceptor.
        sources: Those that are spooled here, by project.
    """

    def __init__(
        self,
        folder: Folder,
        dsn: str,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        *,
        prepare: bool,
        memory: timedelta,
        sources: Mapping[str, Sequence[str]],
    ) -> None:
        self._folder = folder
        self._dsn = dsn
        self._prepare = prepare
        self._committer = Committer(pool)
        self._memory = memory
        self._sources = sources
        self._few = asyncio.Semaphore(DRAINS_MAX)
        self._draining: dict[Queue, asyncio.Task[None]] = {}
        self._announcing: asyncio.Task[None] | None = None
        self._positions: dict[UUID, int] = {}
        self.drained: Counter[tuple[str, str]] = Counter()  # by source and verdict

    def start(self) -> None:
        """Drain what is there, and from now on whatever comes."""
        self._announcing = asyncio.create_task(self._announce())
        self._folder.follow(self.follow)

    def follow(self, queue: Queue) -> None:
        """See that *queue* is drained."""
        if queue not in self._draining:
            self._draining[queue] = asyncio.create_task(self._drain(queue))

    async def stop(self) -> None:
        """Stop; what is not drained is there at the next start."""
        tasks = {*self._draining.values(), *([self._announcing] if self._announcing else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS_MAX)

    async def _drain(self, queue: Queue) -> None:
        pause, most, held = PAUSE_SECONDS_MIN, BATCH_MAX, ""
        try:
            while entries := queue.head(most):
                try:
                    async with self._few, self._connected() as conn:
                        for _ in range(TURN_BATCHES):
                            most = await self._pass(conn, queue, entries)
                            pause, held = PAUSE_SECONDS_MIN, ""
                            if not (entries := queue.head(most)):
                                break
                except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                    if (told := type(error).__name__) != held:
                        held = told
                        log.event(
                            "spool.held",
                            project=queue.project,
                            source=queue.source,
                            records=queue.count,
                            reason=f"{told}: {error}",
                        )
                    await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311 - jitter
                    pause = min(2 * pause, PAUSE_SECONDS_MAX)
            log.event("spool.drained", project=queue.project, source=queue.source)
        finally:
            self._draining.pop(queue, None)

    def _connected(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        return connected(self._dsn, prepare=self._prepare)

    async def _pass(
        self, conn: psycopg.AsyncConnection[Any], queue: Queue, entries: Sequence[Entry]
    ) -> int:
        """Have *entries*, of one segment, accepted, and let go of them; how many to take next."""
        try:
            await self._accept(conn, queue, entries)
        except _Moved as moved:
            self._positions[entries[0].segment.id] = moved.position
            return len(entries)
        except BadRequest as bad:
            if len(entries) > 1:
                return 1  # one by one: only the one at fault is kept otherwise
            await self._accept_raw(conn, queue, entries, str(bad))
        for gone in await queue.drop(entries):
            self._positions.pop(gone, None)
            await arun(conn, spools.spool_forget(queue.project, gone))
        return BATCH_MAX

    async def _accept_raw(
        self,
        conn: psycopg.AsyncConnection[Any],
        queue: Queue,
        entries: Sequence[Entry],
        reason: str,
    ) -> None:
        """Accept a record raw, or set it aside where even that cannot be kept."""
        try:
            await self._accept(conn, queue, entries, raw=reason)
        except BadRequest as bad:
            for entry in entries:
                await queue.in_thread(partial(queue.files.set_aside, entry, str(bad)))
            await self._accept(conn, queue, entries, nothing=True)

    async def _accept(
        self,
        conn: psycopg.AsyncConnection[Any],
        queue: Queue,
        entries: Sequence[Entry],
        *,
        raw: str | None = None,
        nothing: bool = False,
    ) -> None:
        """
        Accept what is in *entries*, and move the position of their segment, or neither.

        Args:
            raw: Why they are only kept raw.
            nothing: They are only passed over.

        Raises:
            _Moved: the segment stands elsewhere.
            BadRequest: the database cannot keep one of them.
            SemelError: it is away.
            psycopg.Error: it lost a race.
        """
        segment, end = entries[0].segment.id, entries[-1].seq
        counted: Counter[tuple[str, str]] = Counter()
        agents: set[str] = set()
        try:
            begin = await self._position(conn, queue.project, segment)
            if begin >= end:
                return
            records = [] if nothing else await _records(queue, entries)
            async with conn.transaction():
                advance = spools.spool_advance(queue.project, queue.source, segment, begin, end)
                if (now := await arun(conn, advance)) != end:
                    raise _Moved(now)
                for entry, record in zip(entries, records, strict=False):
                    if record is None or entry.seq <= begin:
                        continue
                    it = record if raw is None else record.quarantined(raw)
                    accepted, some = await it.on(conn, memory=self._memory)
                    counted.update((queue.source, one.verdict) for one in accepted)
                    agents |= some
                stop_here("spool.drain.before")
        except psycopg.Error as error:
            if lost_a_race(error):
                raise
            raise ours(error) from error
        stop_here("spool.drain.after")
        self._positions[segment] = end
        self.drained += counted
        self._committer.wake(agents)

    async def _position(
        self, conn: psycopg.AsyncConnection[Any], project: str, segment: UUID
    ) -> int:
        if segment not in self._positions:
            self._positions[segment] = await arun(conn, spools.spool_position(project, segment))
        return self._positions[segment]

    async def _announce(self) -> None:
        while True:
            pause = ANNOUNCE_SECONDS
            try:
                async with self._connected() as conn:
                    for project, names in self._sources.items():
                        await arun(
                            conn,
                            spools.spool_announce(
                                project, self._folder.id, self._folder.place, names
                            ),
                        )
            except (psycopg.Error, SemelError, OSError):
                pause = PAUSE_SECONDS_MAX
            await asyncio.sleep(pause)


@asynccontextmanager
async def connected(dsn: str, *, prepare: bool) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
    """A connection to *dsn* for a while."""
    conn = await aconnect(dsn, name="semel-spool", prepare=prepare)
    try:
        yield conn
    finally:
        await conn.close()


async def _records(queue: Queue, entries: Sequence[Entry]) -> list[Record | None]:
    """What *entries* are; None, and set aside, for what is damaged or of another version."""
    found: list[Record | None] = []
    for entry, plain in zip(entries, await queue.read(entries), strict=True):
        try:
            found.append(None if plain is None else unpack(plain))
        except (ValueError, SemelError) as bad:
            await queue.in_thread(partial(queue.files.set_aside, entry, str(bad)))
            found.append(None)
    return found
