"""
Life: one worker process as a test's world imagines it, from its start to its end.

    born ──executes handlers──> over (crashed): what it has under way stops, and nothing that it
                                still sends arrives

It has the identity and the connections of a worker. The process it lives in is the test's own and
goes on; the next life begins with nothing of this one but what the database has.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from semel.db.lender import Lender
from semel.db.link import Link
from semel.runtime.desk import Desk
from semel.runtime.outcome import Stopped
from semel.runtime.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from semel.core.call import Call
    from semel.runtime.execution import Execution
    from semel.runtime.outcome import Outcome
    from semel.runtime.tools import Toolbox
    from semel.testing.clock import Clock

T = TypeVar("T")

#: Transactions of handlers at a time, of one run's parallel steps.
LENT_MAX = 4


class Crashed(asyncio.CancelledError):
    """This life is over. To the code under test it is what a cancellation is."""


class Life:
    """
    A worker that is not a process.

    Args:
        worker: Its identity.
        recipients: Who is told of approvals.
        undos: The compensations it knows.
        tools: What its handlers may call.
    """

    def __init__(
        self,
        worker: str,
        dsn: str,
        clock: Clock,
        *,
        recipients: Sequence[str],
        undos: Mapping[str, Callable[..., Any]],
        ttl: timedelta,
        tools: Toolbox,
    ) -> None:
        self.worker = worker
        self.over = False
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._link = Wire(dsn, self)
        self._recorder = Recorder(self._link, clock)
        self._lender = Lender(dsn, size=LENT_MAX)
        self.desk = Desk(
            link=self._link,
            recorder=self._recorder,
            notifiers=recipients,
            notify=recipients,
            ttl=ttl,
            undos=undos,
            lend=self._lender.lend,
            lend_sync=self._lender.lend_sync,
            clock=clock,
            tools=tools,
            patience=timedelta(0),  # whoever waits is parked: time stands still here
        )

    def end(self) -> None:
        """Crash; from any thread, more than once."""
        self.over = True
        self._loop.call_soon_threadsafe(self._ended.set)

    async def execute(self, execution: Execution, stops: list[bool]) -> Outcome:
        """
        Execute a handler to its end, or to that of this life.

        Args:
            stops: The same that *execution* was given.
        """
        work = asyncio.create_task(execution.run())
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({work, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not self.over:
                return work.result()
        finally:
            ended.cancel()
            if not work.done():
                stops.append(True)
                execution.close()
                work.cancel()
                await asyncio.wait({work})
        return Stopped()

    async def close(self) -> None:
        """Give its connections back."""
        await self._recorder.close()
        await self._link.close()
        await self._lender.close()


class Wire(Link):
    """A link on which nothing goes out once its life is over."""

    def __init__(self, dsn: str, life: Life) -> None:
        super().__init__(dsn, name="semel-testing")
        self._life = life

    async def run(self, call: Call[T]) -> T:
        """
        Run *call* once.

        Raises:
            Crashed: there is nobody to ask, or to be answered.
        """
        if self._life.over:
            raise Crashed
        answer = await super().run(call)
        if self._life.over:
            raise Crashed
        return answer
