"""
Taking: what came is committed with the id to ask from next, and nothing is lost over one update.

A batch is one transaction. Where the database cannot keep it, each of its updates is one, and the
one that it cannot keep is quarantined. Nothing here asks the server.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import psycopg

from semel import log
from semel.core import polls
from semel.db.execute import arun
from semel.db.stops import stop_here
from semel.edges.poller import batch as batches
from semel.edges.poller.answer import Unanswered
from semel.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from semel.config import Source
    from semel.core.call import Call
    from semel.core.polls import Committed, Queue
    from semel.edges.committer import Committer
    from semel.edges.poller.answer import Update
    from semel.edges.poller.batch import Batch
    from semel.edges.poller.status import Status
    from semel.model import Accepted, Offer

T = TypeVar("T")


class Lost(Exception):
    """The lease is another's, or may be."""


@dataclass(slots=True)
class Held:
    """A lease, and what is committed."""

    fence: int
    next_id: int | None
    ask_id: int | None
    failures: int
    until: float  # by time.monotonic(): believed in no longer


class Taking:
    """Commits the batches of one source."""

    def __init__(
        self,
        source: Source,
        queue: Queue,
        committer: Committer,
        status: Status,
        *,
        memory: timedelta,
        observe: Callable[[str, float], None],
    ) -> None:
        self._source = source
        self._queue = queue
        self._committer = committer
        self._status = status
        self._memory = memory
        self._observe = observe
        self.barren = 0  # batches in a row that led nowhere

    async def take(self, held: Held, updates: list[Update], came: float) -> None:
        """Commit *updates*, and what of them the database cannot keep as quarantined."""
        batch = batches.planned(updates, held.next_id)
        if batch is None:
            self.barren += 1
            raise Unanswered("failing", "its updates have no update_id")
        before = held.next_id
        try:
            accepted = await self._commit(held, batch, batches.offers(self._source, batch))
        except BadRequest:
            accepted = []
            for part in batch.parts():
                try:
                    accepted += await self._commit(
                        held, part, batches.offers(self._source, part)
                    )
                except BadRequest as bad:
                    accepted += await self._commit(
                        held, part, batches.unkept(self._source, part, str(bad))
                    )
        seconds = time.monotonic() - came
        for one in accepted:
            self._observe(one.verdict, seconds)
        self._status.updates += len(accepted)
        if held.next_id != before and batch.named:
            self.barren = 0
            return
        self.barren += 1
        if not batch.named:
            raise Unanswered("failing", "its updates have no update_id; they are quarantined")
        raise Unanswered("failing", "it sends again what it was told to forget")

    async def _commit(self, held: Held, batch: Batch, offers: list[Offer]) -> list[Accepted]:
        try:
            call = polls.poll_commit(
                self._queue,
                held.fence,
                offers,
                ids=batch.ids,
                next_id=batch.next_id,
                seen=held.next_id,
                memory=self._memory,
            )
        except ValueError as bad:  # no JSON that PostgreSQL could keep
            raise BadRequest(str(bad)) from None

        async def send() -> Committed:
            stop_here("poller.batch.before")
            committed = await self._commit_once(call)
            stop_here("poller.batch.after")
            return committed

        began = time.monotonic()
        committed = await self._committer.insist(self._queue.project, send)
        if committed.outcome != "committed":
            raise Lost(
                "another process has taken it"
                if committed.outcome == "lost"
                else "an earlier commit was not answered"
            )
        held.next_id = held.ask_id = batch.next_id
        held.until = max(held.until, began + self._queue.lease.total_seconds())
        if self._status.missing is not None and committed.missing > self._status.missing:
            log.event(
                "poller.missed",
                project=self._queue.project,
                source=self._source.name,
                count=committed.missing - self._status.missing,
            )
        self._status.missing, self._status.restarts = committed.missing, committed.restarts
        self._status.next_id = held.next_id
        self._committer.wake(
            offer.agent
            for offer, one in zip(offers, committed.accepted, strict=True)
            if offer.agent and one.verdict == "new"
        )
        return committed.accepted

    async def _commit_once(self, call: Call[T]) -> T:
        async with self._committer.pool.connection() as conn:
            try:
                return await arun(conn, call)
            except psycopg.Error as error:
                state = error.sqlstate or ""
                if isinstance(error, psycopg.DataError) or state.startswith("54"):
                    raise BadRequest(
                        f"PostgreSQL cannot keep it: {type(error).__name__}"
                    ) from error
                raise
