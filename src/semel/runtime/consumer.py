"""
Consumer: one reader of a project's journal, of which any number of instances may run.

    look ──something is there──> number what is committed ──> take or lease ──> a batch
      ^──nothing── wait for a ring, a second at most ──┘

Two ways to read. A batch moves the cursor in the transaction of its own connection: what the reader
writes there is written once. What he does elsewhere is done at least once: read, do it, commit. An
entry is never passed over; the instances of one name never work on the same one at a time, as long
as a lease lasts longer than the work on it.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self
from uuid import uuid4

from semel.core import consumers
from semel.db.execute import arun, retryable, translated
from semel.db.pool import aconnect
from semel.db.stops import stop_here
from semel.errors import BadRequest, CursorLost, JournalPassed, NoSuchConsumer
from semel.runtime.lookout import Lookout

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence

    import psycopg

    from semel.core.consumers import Entry, Page


class Batch:
    """
    Entries, and the connection whose transaction moves the cursor; iterate over it.

    Empty when `batch(wait=...)` waited in vain: nothing is to be written then. Leave commit and
    rollback to the block.
    """

    def __init__(self, entries: Sequence[Entry], connection: Any) -> None:
        self.entries = list(entries)
        self.connection: Any = connection  # psycopg.AsyncConnection; None where it is empty

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


class Consumer:
    """
    Reads *project*'s journal as *name*; open it with `async with`.

    Args:
        dsn: Of the database.
        name: 1 to 128 of A-Z, a-z, 0-9, _, ., : and -. Its cursor is kept under it.
        topics: Only these; None: all.
        start: Where a name that is new begins.
        limit: Entries of a batch at most, 1 to 1000.
        poll: How long it waits when nobody wakes it.
        lease: How long what it has read is its own; 100 ms to 1 h.
        listen: Whether it can be woken; False behind a pooler in transaction mode.
    """

    def __init__(
        self,
        dsn: str,
        *,
        project: str,
        name: str,
        topics: Sequence[str] | None = None,
        start: Literal["oldest", "newest"] = "oldest",
        limit: int = 100,
        poll: timedelta = timedelta(seconds=1),
        lease: timedelta = timedelta(minutes=1),
        listen: bool = True,
    ) -> None:
        self.project = project
        self.name = name
        self._dsn = dsn
        self._which: dict[str, Any] = {"topics": topics, "limit": limit}
        self._start = start
        self._lease = lease
        self._prepare = listen
        self.place = 0  # the seq that it stood at as it opened
        self._holder = uuid4()
        self._lookout = Lookout(dsn, project=project, name=name, poll=poll, listen=listen)
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._taking = False
        self._leased: Page | None = None  # until it is committed

    async def __aenter__(self) -> Self:
        try:
            self.place = await self._lookout.insist(
                consumers.journal_join(self.project, self.name, start=self._start)
            )
        except BaseException:
            await self._lookout.close()
            raise
        self._lookout.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        try:
            with suppress(Exception):  # the lease ends by itself
                await self.release()
        finally:
            await self._lookout.close()
            if self._conn is not None:
                await self._conn.close()

    # -- exactly once ------------------------------------------------------------------------

    @asynccontextmanager
    async def batch(self, *, wait: timedelta | None = None) -> AsyncGenerator[Batch, None]:
        """
        The next entries, in a transaction that moves the cursor; what it writes is written once.

        It commits on leaving the block. An error rolls back, and the next batch has the same
        entries again; after a COMMIT whose answer was lost the next batch knows what became of it.

        Args:
            wait: How long to wait for entries; then the batch is empty. None: for ever.

        Raises:
            JournalPassed: entries that this consumer has not read are gone.
            NoSuchConsumer: somebody forgot it.
            BadRequest: what was read before is not done with.
            DatabaseUnreachable: the server went away in the middle of the block.
        """
        self._alone()
        until = _deadline(wait)
        self._taking = True
        given = False
        try:
            while await self._lookout.look(until):
                busy = False
                try:
                    conn = await self._connection()
                    async with conn.transaction():
                        page = self._judged(
                            await arun(
                                conn,
                                consumers.journal_take(self.project, self.name, **self._which),
                            )
                        )
                        if page.entries:
                            given = True
                            yield Batch(page.entries, conn)
                            stop_here("journal.batch.before")
                except Exception as error:
                    if given or not retryable(error):
                        raise translated(error) from error
                    busy = True
                else:
                    if given:
                        stop_here("journal.batch.after")
                        return
                    busy = page.outcome == "busy"
                if not await self._lookout.rest(until, busy=busy):
                    break
            yield Batch((), None)
        finally:
            self._taking = False

    # -- at least once -----------------------------------------------------------------------

    async def read(self, *, wait: timedelta | None = None) -> list[Entry]:
        """
        The next entries, this instance's until `commit`, `release` or the end of its lease.

        Args:
            wait: How long to wait for entries; then there are none. None: for ever.

        Raises:
            JournalPassed, NoSuchConsumer, BadRequest: as `batch`.
        """
        self._alone()
        until = _deadline(wait)
        while await self._lookout.look(until):
            call = consumers.journal_lease(
                self.project, self.name, self._holder, self._lease, **self._which
            )
            page = self._judged(await self._lookout.insist(call))
            if page.entries:
                self._leased = page
                return page.entries
            if not await self._lookout.rest(until, busy=page.outcome == "busy"):
                break
        return []

    async def commit(self, upto: int | None = None) -> None:
        """
        Done with what was read, all of it or up to the seq *upto*: it is not read again.

        Raises:
            CursorLost: the lease ended, and another instance has gone on.
            BadRequest: nothing was read.
        """
        page, self._leased = self._leased, None
        if page is None:
            raise BadRequest(f"consumer {self.name} has nothing to commit: read first")
        stop_here("journal.commit.before")
        await self._commit(page.upto if upto is None else upto)
        stop_here("journal.commit.after")

    async def release(self) -> None:
        """Give back what was read: this instance or another reads it again at once."""
        page, self._leased = self._leased, None
        if page is not None:
            await self._commit(page.after)

    async def seek(self, to: int) -> int | None:
        """
        Go on behind the seq *to*, or as near as entries are kept; answers where it is.

        None where another instance is just taking a batch. Who has a lease has lost it.
        """
        self._alone()
        call = consumers.journal_seek(self.project, self.name, to)
        return (await self._lookout.insist(call))[1]

    async def __aiter__(self) -> AsyncIterator[list[Entry]]:
        """Entries for ever, committed when the loop comes back for the next."""
        while True:
            yield await self.read()
            await self.commit()

    async def _commit(self, upto: int) -> None:
        call = consumers.journal_commit(self.project, self.name, self._holder, upto)
        outcome, at = await self._lookout.insist(call)
        if outcome == "unknown":
            raise NoSuchConsumer(f"consumer {self.name} was forgotten")
        if outcome == "lost":
            raise CursorLost(
                f"the cursor of {self.name} is at {at}, and this instance's no more"
            )

    # -- both --------------------------------------------------------------------------------

    def _alone(self) -> None:
        if self._taking or self._leased is not None:
            raise BadRequest(
                f"consumer {self.name} has entries already: end the batch, commit or release them"
            )

    async def _connection(self) -> psycopg.AsyncConnection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = await aconnect(self._dsn, name="semel-consumer", prepare=self._prepare)
        return self._conn

    def _judged(self, page: Page) -> Page:
        if page.outcome == "unknown":
            raise NoSuchConsumer(f"consumer {self.name} was forgotten")
        if page.outcome == "passed":
            raise JournalPassed(
                f"consumer {self.name} stands at {page.after}, and the journal of {self.project}"
                f" begins behind {page.upto}"
            )
        return page


def _deadline(wait: timedelta | None) -> float:
    return float("inf") if wait is None else time.monotonic() + wait.total_seconds()
