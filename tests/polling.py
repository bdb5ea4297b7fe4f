"""Pollers of ours in a thread of their own, on a real database and a Bot API of our tests."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bot_api import TOKEN, BotApi
from fix_world import until
from semel.config import Secret, Settings, Source
from semel.config.poll import PollSettings
from semel.db.pool import pool
from semel.edges.poller.pace import Pace
from semel.edges.poller.pollers import Pollers
from semel.edges.poller.status import Status

FAST = Pace(scale=0.01)


def bot(api: BotApi, *tokens: str, name: str = "bot", **more: Any) -> Source:
    """A source that polls *api*; what of *more* is of the poll's settings goes there."""
    kept = {key: more.pop(key) for key in list(more) if key in PollSettings.__slots__}
    secrets = tuple(
        Secret(reference=f"env:T{n}", environ={f"T{n}": token})
        for n, token in enumerate(tokens or (TOKEN,))
    )
    poll = PollSettings(source=name, api=api.url, **kept)
    told = {"agent": "chat", **more}
    return Source(name=name, channel="telegram-poll", secrets=secrets, poll=poll, **told)


class Polling:
    """One process's pollers, and what they count."""

    def __init__(self, dsn: str, *sources: Source, pace: Pace = FAST) -> None:
        self.observed: Counter[str] = Counter()
        self._settings = Settings(
            dsn=dsn, home=Path("/"), sources={(one.project, one.name): one for one in sources}
        )
        self._dsn = dsn
        self._pace = pace
        self.statuses: list[Status] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        until(lambda: self.statuses)

    @property
    def status(self) -> Status:
        return self.statuses[0]

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        async with pool(self._dsn, size=4) as conns:
            pollers = Pollers(
                self._settings,
                conns,
                lambda _source, outcome, _seconds: self.observed.update([outcome]),
                pace=self._pace,
            )
            pollers.start()
            self.statuses = pollers.statuses
            await self._stopping.wait()
            await pollers.stop()

    def stop(self) -> None:
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(20)


@contextmanager
def polling(dsn: str, *sources: Source, pace: Pace = FAST) -> Iterator[Polling]:
    running = Polling(dsn, *sources, pace=pace)
    try:
        yield running
    finally:
        running.stop()
