"""
Group commit: what arrives while one batch is on its way makes the next.

Alone, an item waits for nobody; under load one transaction carries hundreds. Each caller is
answered after the commit of its batch. A batch that fails is sent again one by one, side by side
and out of the next batch's way, so that a bad or slow item costs only itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

I = TypeVar("I")  # noqa: E741 - an item
O = TypeVar("O")  # noqa: E741 - its outcome


#: Items of failed batches that are sent at the same time.
STRAYS_MAX = 4


class Gather(Generic[I, O]):
    """
    Sends items in batches, one batch at a time.

    Args:
        send: Takes a batch and answers one outcome for each item, in order.
        batch_max: Items of one batch.
    """

    def __init__(
        self, send: Callable[[Sequence[I]], Awaitable[Sequence[O]]], *, batch_max: int = 256
    ) -> None:
        self._send = send
        self._batch_max = batch_max
        self._waiting: list[tuple[I, asyncio.Future[O]]] = []
        self._task: asyncio.Task[None] | None = None
        self._strays: set[asyncio.Task[None]] = set()
        self._few = asyncio.Semaphore(STRAYS_MAX)

    async def add(self, item: I) -> O:
        """
        Send *item* with whatever else there is; answers its outcome.

        Raises:
            Exception: what sending it alone raised.
        """
        future: asyncio.Future[O] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._send_on())
        return await future

    async def close(self) -> None:
        """Stop. What was not sent is cancelled; its callers are."""
        tasks = [task for task in (self._task, *self._strays) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_on(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[: self._batch_max]
                del self._waiting[: self._batch_max]
                await self._settle(batch)
        finally:
            self._task = None
            for _, future in self._waiting:
                future.cancel()

    async def _settle(self, batch: Sequence[tuple[I, asyncio.Future[O]]]) -> None:
        try:
            outcomes = await self._send([item for item, _ in batch])
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to who waits, one by one
            if len(batch) > 1:
                for entry in batch:
                    stray = asyncio.create_task(self._settle_alone(entry))
                    self._strays.add(stray)
                    stray.add_done_callback(self._strays.discard)
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if not future.done():  # who waited may have gone
                future.set_result(outcome)

    async def _settle_alone(self, entry: tuple[I, asyncio.Future[O]]) -> None:
        async with self._few:
            await self._settle([entry])
