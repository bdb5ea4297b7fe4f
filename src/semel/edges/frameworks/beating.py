"""
Beating: the sign of life of a process while it holds recorded operations.

As a task where there is an event loop, as a thread where there is none. It begins with the first
operation and ends with the last, so an idle process writes nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import TYPE_CHECKING

from semel import log
from semel.core.operations import BEAT, operation_beat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from semel.core.call import Call


class Beats:
    """The beats of one holder; counts what it holds. Enter it for each operation."""

    def __init__(self, project: str, holder: UUID) -> None:
        self._project = project
        self._holder = holder
        self._held = 0

    def call(self) -> Call[None]:
        """One beat."""
        name = f"{socket.gethostname()}:{os.getpid()}"
        return operation_beat(self._project, self._holder, name)

    def missed(self, error: Exception) -> None:
        """The database was away, or is; the next beat is not far."""
        log.event("database.lost", reason=f"operation_beat: {type(error).__name__}")


class BeatingTask(Beats):
    """For programs with an event loop; *run* commits a call."""

    def __init__(
        self, project: str, holder: UUID, run: Callable[[Call[None]], Awaitable[None]]
    ) -> None:
        super().__init__(project, holder)
        self._run = run
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._held += 1
        if self._task is None:
            self._task = asyncio.create_task(self._beat())

    def __exit__(self, *_: object) -> None:
        self._held -= 1
        if self._held == 0 and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _beat(self) -> None:
        while True:
            try:
                await self._run(self.call())
            except Exception as error:  # noqa: BLE001 - any driver's
                self.missed(error)
            await asyncio.sleep(BEAT.total_seconds())


class BeatingThread(Beats):
    """For programs without one; *run* commits a call, *close* ends the thread's connection."""

    def __init__(
        self,
        project: str,
        holder: UUID,
        run: Callable[[Call[None]], None],
        close: Callable[[], None],
    ) -> None:
        super().__init__(project, holder)
        self._run = run
        self._close = close
        self._lock = threading.Lock()
        self._idle: threading.Event | None = None  # of the thread that beats

    def __enter__(self) -> None:
        with self._lock:
            self._held += 1
            if self._idle is None:
                self._idle = threading.Event()
                threading.Thread(
                    target=self._beat, args=(self._idle,), name="semel-beat", daemon=True
                ).start()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._held -= 1
            if self._held == 0 and self._idle is not None:
                self._idle.set()
                self._idle = None

    def _beat(self, idle: threading.Event) -> None:
        try:
            while True:
                try:
                    self._run(self.call())
                except Exception as error:  # noqa: BLE001 - any driver's
                    self.missed(error)
                if idle.wait(BEAT.total_seconds()):
                    return
        finally:
            self._close()
