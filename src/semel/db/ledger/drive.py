"""Drive: one text of coroutines, for connections that are awaited and those that are not."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

#: After a cancellation, for what must not be interrupted; then it is interrupted all the same.
PATIENCE_SECONDS = 5.0


def drive(work: Coroutine[Any, Any, T]) -> T:
    """The answer of a coroutine that never has to wait."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    work.close()
    raise RuntimeError("a sync connection's coroutine waited")


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """
    The answer of *work*, whoever cancels us meanwhile.

    Raises:
        CancelledError: we were cancelled; *work* is done, or was cancelled after its patience.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    ended = loop.create_future()
    task.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
    cancelled: asyncio.CancelledError | None = None
    try:
        await ended  # nearly always all of it, and for half of what asyncio.wait takes
    except asyncio.CancelledError as error:
        cancelled = error
    while not task.done():
        try:
            await asyncio.wait({task}, timeout=PATIENCE_SECONDS if cancelled else None)
        except asyncio.CancelledError as error:
            cancelled = error
        else:
            if not task.done():
                task.cancel()
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # seen: it is not what ends us
        raise cancelled
    return task.result()


async def pause(seconds: float, *, asynchronous: bool) -> None:
    """Do nothing for *seconds*."""
    if asynchronous:
        await asyncio.sleep(seconds)
    else:
        time.sleep(seconds)  # noqa: ASYNC251 - stepped through by `drive`, on no loop
