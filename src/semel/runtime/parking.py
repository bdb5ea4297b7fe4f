"""
Parking: when a handler only waits, its run leaves the worker.

    a step waits ──others are at work──> until they are done
         └──────── nothing else is ────> run_park ──there already──> the step goes on
                                            └──────parked──────────> the handler is stopped

All that a handler waits for is parked together; the first of them to be over resumes the run.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from semel.core.waits import Wait


#: Others share the loop, and may never all be at rest: a handler is given so many turns.
TURNS_MAX = 100


class Parking:
    """
    What the handler of one attempt waits for.

    Args:
        park: Parks the run, and answers for each wait as `run_park` does.
        left: Called once the run is ours no longer, with whether it was parked.
    """

    def __init__(
        self,
        park: Callable[[Sequence[Wait]], Awaitable[list[tuple[str, str, str | None]]]],
        left: Callable[[bool], None],
    ) -> None:
        self._park = park
        self._left = left
        self._busy = 0  # steps at work
        self._turns = 0  # of the loop since the last of them
        self._closed = False
        self._waits: dict[str, tuple[Wait, asyncio.Future[str | None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._given_up: dict[str, Wait] = {}  # waits that the handler has cancelled
        self._done: asyncio.Future[None] | None = None  # somebody asks when no step is at work

    async def begin(self) -> None:
        """A step goes to work, unless the run is just being parked."""
        await self._open.wait()
        self._busy += 1
        self._turns = 0

    def end(self) -> None:
        """It is done."""
        self._busy -= 1
        if self._done is not None and not self._busy and not self._done.done():
            self._done.set_result(None)
        self._consider()

    @property
    def busy(self) -> bool:
        """Whether a step is at work."""
        return self._busy > 0

    async def idle(self) -> None:
        """Return when no step is at work."""
        while self._busy:
            self._done = asyncio.get_running_loop().create_future()
            await self._done

    async def wait(self, wait: Wait) -> str | None:
        """
        Wait for *wait*; answers its result as JSON text, None for a retry whose time has come.

        Does not return when the run is parked: the handler is stopped then.
        """
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waits[wait.key] = (wait, future)
        self._consider()
        self._given_up.pop(wait.key, None)
        try:
            return await future
        except asyncio.CancelledError:
            if not self._closed:
                self._given_up[wait.key] = replace(wait, dropped=True, question=None, ask=None)
            raise
        finally:
            self._waits.pop(wait.key, None)

    def close(self, error: BaseException) -> None:
        """Nothing is waited for any more: whoever does is told *error*."""
        self._closed = True
        self._tell(error)

    async def settled(self) -> None:
        """Return when no parking is on its way."""
        while self._task is not None:
            with suppress(asyncio.CancelledError):
                await asyncio.shield(self._task)

    def _tell(self, error: BaseException) -> None:
        for _, future in self._waits.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # that nobody is left to ask for it is no fault

    async def _at_rest(self) -> bool:
        """
        Whether nothing but waits is left.

        What has just gone on may ask for another step before it waits again, some turns of the
        loop later where tasks wait for tasks; so it is asked when nobody on the loop has a turn.
        """
        ready: Any = getattr(asyncio.get_running_loop(), "_ready", True)
        self._turns = 0
        while self._turns < TURNS_MAX:
            await asyncio.sleep(0)
            if self._busy or not self._waits:
                return False
            if not ready:
                break
            self._turns += 1
        return True

    def _consider(self) -> None:
        if self._waits and self._task is None:
            self._task = asyncio.create_task(self._settle())

    async def _settle(self) -> None:
        try:
            if not await self._at_rest():
                return
            self._open.clear()
            waits = [*self._given_up.values(), *(wait for wait, _ in self._waits.values())]
            try:
                answers = await self._park(waits)
            except BaseException as error:  # noqa: BLE001 - theirs to handle who wait
                self._tell(error)
                return
            outcomes = {outcome for _, outcome, _ in answers}
            if outcomes & {"parked", "lost"}:
                self._left("parked" in outcomes)
                return
            for key, outcome, content in answers:
                if outcome == "ready" and key in self._waits:
                    future = self._waits[key][1]
                    if not future.done():  # given up in this very turn
                        future.set_result(content)
        finally:
            self._task = None
            self._open.set()
        self._consider()
