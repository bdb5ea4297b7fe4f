"""Pollers: those of one process, one for each source that polls."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from semel.config.poll import PollSettings, bot
from semel.core.polls import Queue
from semel.edges.poller.poller import Poller
from semel.edges.poller.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg
    from psycopg_pool import AsyncConnectionPool

    from semel.config import Settings, Source
    from semel.edges.poller.pace import Pace

CHANNEL = "telegram-poll"
#: A stop waits so long for what they still write.
STOP_SECONDS_MAX = 1.0


class Pollers:
    """
    Started and stopped together.

    Args:
        observe: Told of each event: source, outcome, seconds from its answer to its commit.
    """

    def __init__(
        self,
        settings: Settings,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        observe: Callable[[Source, str, float], None],
        *,
        pace: Pace | None = None,
    ) -> None:
        self._pool = pool
        self._observe = observe
        self._pace = pace
        self._memory = settings.retention.dedupe
        self._sources = [one for one in settings.sources.values() if one.channel == CHANNEL]
        self.statuses = [
            Status(project=source.project, source=source.name) for source in self._sources
        ]
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to poll; in a running loop."""
        place = f"{socket.gethostname()[:200]}, pid {os.getpid()}"
        for source, status in zip(self._sources, self.statuses, strict=True):
            poller = self._poller(source, status, place)
            self._tasks.add(asyncio.create_task(poller.run(), name=f"poll {source.name}"))

    async def stop(self) -> None:
        """Ask no more, and give the leases back."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS_MAX)

    def _poller(self, source: Source, status: Status, place: str) -> Poller:
        from semel.edges.poller.api import Api  # noqa: PLC0415 - the notify extra; only who polls needs it

        settings = source.poll or PollSettings(source=source.name)
        queue = Queue(
            project=source.project,
            bot=bot(source),
            source=source.name,
            holder=uuid4(),
            place=place,
            lease=settings.lease,
        )
        return Poller(
            source,
            queue,
            Api(source),
            self._pool,
            status,
            memory=self._memory,
            observe=lambda outcome, seconds: self._observe(source, outcome, seconds),
            pace=self._pace,
        )
