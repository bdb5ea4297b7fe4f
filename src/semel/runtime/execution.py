"""
Execution: one handler at work in this process, in a worker or in its child.

On the loop for `async def`, in a thread for `def`. Its journal is opened when the handler asks for
a step, so that a run without steps pays for none.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from semel.errors import SemelError
from semel.runtime.compensation import compensate
from semel.runtime.handlers import Run
from semel.runtime.hands import LoopHands, ThreadHands
from semel.runtime.outcome import Outcome, Parked, Stopped, of_error, of_result
from semel.runtime.progress import Progress
from semel.runtime.way import Way

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from semel.model import Claim
    from semel.runtime.desk import Desk
    from semel.runtime.handlers import Agent


class Execution:
    """
    The handler of one claim.

    Args:
        stops: Filled, from any thread, when it is to stop.
    """

    __slots__ = (
        "_agent",
        "_claim",
        "_desk",
        "_loop",
        "_progress",
        "_stops",
        "_task",
        "_threads",
    )

    def __init__(
        self,
        claim: Claim,
        agent: Agent,
        desk: Desk,
        threads: ThreadPoolExecutor,
        stops: list[bool],
    ) -> None:
        self._claim = claim
        self._agent = agent
        self._desk = desk
        self._threads = threads
        self._stops = stops
        self._progress: Progress | None = None
        self._task: asyncio.Task[object] | None = None

    async def run(self) -> Outcome:
        """Call the handler to its end, whatever it raises, and end what it began beside it."""
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        if self._claim.kind == "undo":
            outcome = await self._on_loop(undo=True)
        elif self._agent.is_async:
            outcome = await self._on_loop()
        else:
            outcome = await self._in_thread(self._loop)
        if self._progress is not None:
            # A run is undone as soon as it has failed: nothing of it may be at work then.
            await self._progress.settle()
            if self._progress.parked and not isinstance(outcome, Parked | Stopped):
                await self._progress.unpark()
                return Parked()
        return outcome

    def close(self) -> None:
        """It is to stop: whoever waits for a step's turn, or for a signal, is told."""
        if self._progress is not None:
            self._progress.close()

    async def _on_loop(self, *, undo: bool = False) -> Outcome:
        try:
            hands = LoopHands(self._threads)
            run = Run.of(self._claim, self._stops, lambda: self._open(hands))
            result = await (compensate(run, self._desk) if undo else self._agent.handler(run))
            return self._ended(hands, result)
        except asyncio.CancelledError as cancelled:
            # Ours to stop, or the handler cancelled itself: only a flagged run was told to.
            return Stopped() if self._stops else self._failed(cancelled)
        except BaseException as error:  # noqa: BLE001 - SystemExit ends the attempt, not the worker
            return self._failed(error)

    async def _in_thread(self, loop: asyncio.AbstractEventLoop) -> Outcome:
        hands = ThreadHands(loop)

        def call() -> Outcome:
            try:
                run = Run.of(self._claim, self._stops, lambda: self._open(hands))
                hands.begin()
                return self._ended(hands, self._agent.handler(run))
            except BaseException as error:  # noqa: BLE001 - as above
                return self._failed(error)

        thread = loop.run_in_executor(self._threads, call)
        while True:
            # A thread cannot be interrupted, only asked: its slot is taken until it answers.
            with suppress(asyncio.CancelledError):
                outcome = await asyncio.shield(thread)
                return Stopped() if self._stops and not isinstance(outcome, Parked) else outcome

    def _open(self, hands: LoopHands | ThreadHands) -> Way:
        self._progress = Progress(self._claim, self._desk, self._loop, self._stop)
        if self._stops:
            self._progress.close()  # it was told to stop before it asked for anything
        home = self._task if isinstance(hands, LoopHands) else hands.home
        return Way(self._progress, hands, home)

    def _stop(self) -> None:
        """The run was parked, or lost: the handler has no more to do."""
        if self._task is not None and (self._agent.is_async or self._claim.kind == "undo"):
            self._task.cancel()

    def _ended(self, hands: LoopHands | ThreadHands, result: object) -> Outcome:
        if self._progress is None and self._claim.journal is not None:
            self._open(hands)  # the handler asked for nothing that its journal has
        progress = self._progress
        if progress is not None:
            if progress.left:
                return self._gone(progress)
            if self._claim.kind != "undo":
                try:
                    progress.finish()
                except SemelError as broken:
                    return of_error(broken)
        return of_result(result)

    def _failed(self, error: BaseException) -> Outcome:
        progress = self._progress
        if progress is not None and progress.left:
            return self._gone(progress)
        if progress is not None and progress.broken is not None and self._claim.kind != "undo":
            return of_error(progress.broken)  # an undo's error names what is not undone
        return of_error(error)

    def _gone(self, progress: Progress) -> Outcome:
        return Parked() if progress.parked else Stopped()
