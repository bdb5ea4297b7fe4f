"""
In time: whoever asks gets an answer, also while the database gives none.

A statement that hangs cannot be taken back: its session may be frozen, and so may the server's
way to cancel it. So the work goes on by itself, its connection stays with it and is lent to
nobody, and only the one who asked stops waiting. What it still commits was not answered: its
sender comes again, and is told what became of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from semel.errors import DatabaseUnreachable

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

#: An event is answered within this, a read within this.
ANSWER_SECONDS_MAX = 4.5
READ_SECONDS_MAX = 2.0
#: Pieces of work that nobody waits for any more; beyond, nothing new is begun. They hold bodies.
LEFT_MAX = 256


class InTime:
    """Waits for work, and no longer than it may take."""

    def __init__(self) -> None:
        self._left: set[asyncio.Task[Any]] = set()

    async def wait(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """
        What *work* answers.

        Raises:
            DatabaseUnreachable: not within *seconds*, or too much of it is still under way.
        """
        if len(self._left) >= LEFT_MAX:
            work.close()
            raise DatabaseUnreachable("the database does not answer; nothing was begun")
        task = asyncio.create_task(work)
        done = False
        try:
            await asyncio.wait({task}, timeout=seconds)
            done = task.done()
        finally:
            if not done:
                self._left.add(task)
                task.add_done_callback(self._forget)
        if not done:
            raise DatabaseUnreachable(f"the database gave no answer within {seconds:g} s")
        return task.result()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # nobody is left to be told
