"""
Group commit: what arrives while one batch is on its way makes the next.

Alone, an item waits for nobody; under load one transaction carries hundreds. Each caller is
answered after the commit of its batch. Two batches may be on their way side by side: while one
commits, the other is executed. Items that share a name go in successive batches, in their
order. A batch that fails is sent again one by one, side by side and out of the next batch's way,
so that a bad or slow item costs only itself. An item whose caller has gone is not sent any more,
unless it is on its way already.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence

I = TypeVar("I")  # noqa: E741 - an item
O = TypeVar("O")  # noqa: E741 - its outcome


#: Turns of the loop that those who were answered have before the next batch is taken.
TURNS = 3
#: Fewer are not parted, though two ways are free: a transaction costs as much as some ten items.
PART_MIN = 4
#: Items of failed batches that are sent at the same time.
STRAYS_MAX = 4


def _expire(future: asyncio.Future[O]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())


class Gather(Generic[I, O]):
    """
    Sends items in batches.

    Args:
        send: Takes a batch and answers one outcome for each item, in order.
        alone: Sends one item of a batch that failed; `send` if None.
        again: Whether an item that failed in a batch of its own is sent alone too.
        names: What of an item may be in a batch only once.
        batch_max: Items of one batch.
        ways: Batches on their way at the same time.
    """

    def __init__(
        self,
        send: Callable[[Sequence[I]], Awaitable[Sequence[O]]],
        *,
        alone: Callable[[I], Awaitable[O]] | None = None,
        again: Callable[[Exception], bool] = lambda _error: False,
        names: Callable[[I], Collection[Hashable]] = lambda _item: (),
        batch_max: int = 256,
        ways: int = 1,
    ) -> None:
        self._send = send
        self._alone = alone
        self._again = again
        self._names = names
        self._batch_max = batch_max
        self._waiting: dict[asyncio.Future[O], I] = {}  # in the order of their arrival
        self._ways = ways
        self._tasks: dict[asyncio.Task[None], Collection[Hashable]] = {}  # the names each has
        self._sending = 0
        self._strays: dict[asyncio.Task[None], Collection[Hashable]] = {}
        self._few = asyncio.Semaphore(STRAYS_MAX)

    async def add(self, item: I, *, within: float = math.inf) -> O:
        """
        Send *item* with whatever else there is; answers its outcome.

        Cancelled, or late, before it is sent, it never is.

        Raises:
            TimeoutError: no outcome *within* so many seconds.
            Exception: what sending it alone raised.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[O] = loop.create_future()
        self._waiting[future] = item
        if len(self._tasks) < self._ways:
            self._tasks[loop.create_task(self._send_on())] = ()
        end = loop.call_later(within, _expire, future) if within < math.inf else None
        try:
            return await future
        finally:
            self._waiting.pop(future, None)
            if end is not None:
                end.cancel()

    async def close(self) -> None:
        """Stop. What was not sent is cancelled; its callers are."""
        tasks = [*self._tasks, *self._strays]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_on(self) -> None:
        way = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            while batch := self._take():
                self._tasks[way] = {name for item, _ in batch for name in self._names(item)}
                self._sending += 1
                try:
                    await self._settle(batch)
                finally:
                    self._sending -= 1
                    self._tasks[way] = ()
                # Those just answered may have more to send: one batch of all, not two in turn.
                for _ in range(TURNS):
                    await asyncio.sleep(0)
        finally:
            del self._tasks[way]
            if not self._tasks:
                for future in self._waiting:
                    future.cancel()

    def _take(self) -> list[tuple[I, asyncio.Future[O]]]:
        """
        The next batch, a fair share of what waits.

        What shares a name with a batch on its way waits for that; with one that is sent alone,
        goes behind it.
        """
        batch: list[tuple[I, asyncio.Future[O]]] = []
        astray = {name for names in self._strays.values() for name in names}
        taken: set[Hashable] = {name for names in self._tasks.values() for name in names}
        share = math.ceil(len(self._waiting) / (self._ways - self._sending))
        room = min(self._batch_max, max(PART_MIN, share))
        for future, item in list(self._waiting.items()):
            if len(batch) == room:
                break
            if future.done():  # who waited has gone
                del self._waiting[future]
                continue
            names = self._names(item)
            if not astray.isdisjoint(names):
                del self._waiting[future]
                self._stray((item, future))
                continue
            if taken.isdisjoint(names):
                del self._waiting[future]
                batch.append((item, future))
            taken.update(names)
        return batch

    async def _settle(self, batch: Sequence[tuple[I, asyncio.Future[O]]]) -> None:
        try:
            outcomes = await self._send([item for item, _ in batch])
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to who waits, one by one
            if len(batch) > 1 or self._again(error):
                for entry in batch:
                    self._stray(entry)
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if not future.done():  # who waited may have gone
                future.set_result(outcome)

    def _stray(self, entry: tuple[I, asyncio.Future[O]]) -> None:
        task = asyncio.create_task(self._settle_alone(entry))
        self._strays[task] = self._names(entry[0])
        task.add_done_callback(self._strays.pop)

    async def _settle_alone(self, entry: tuple[I, asyncio.Future[O]]) -> None:
        item, future = entry
        try:
            async with self._few:
                if future.done():
                    return
                if self._alone is None:
                    [outcome] = await self._send([item])
                else:
                    outcome = await self._alone(item)
        except asyncio.CancelledError:
            future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to who waits
            if not future.done():
                future.set_exception(error)
            return
        if not future.done():
            future.set_result(outcome)
