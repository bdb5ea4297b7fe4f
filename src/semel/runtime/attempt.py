"""
Attempt: one claim, from the handler's start to the write of its outcome.

The handler runs where its agent says; a suspect runs in a child process whatever it says. An
attempt that is told to stop writes nothing: its run is released by who stopped it, or has gone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semel import log
from semel.core import recovery, runs, workers
from semel.runtime.execution import Execution
from semel.runtime.held import boottime
from semel.runtime.outcome import Crashed, Done, Failed, Outcome, Parked, Stopped, of_error

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from semel.db.link import Link
    from semel.model import Claim
    from semel.runtime.children import Children
    from semel.runtime.desk import Desk
    from semel.runtime.finisher import Finisher
    from semel.runtime.handlers import Agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """What the attempts of one worker share."""

    children: Children
    threads: ThreadPoolExecutor
    link: Link
    finisher: Finisher
    desk: Desk
    loop: asyncio.AbstractEventLoop


class Attempt:
    """
    One claim under work, and under the heartbeat's eye.

    Args:
        trusted_until: The moment, by `boottime`, until which its lease may be trusted.
        alone: In a child process of its own, with the worker identity of the claim.
    """

    __slots__ = (
        "_agent",
        "_execution",
        "_shop",
        "_stops",
        "_task",
        "_writing",
        "alone",
        "claim",
        "key",
        "lost_at",
        "stopped",
        "trusted_until",
    )

    def __init__(
        self, claim: Claim, agent: Agent, shop: Shop, *, trusted_until: float, alone: bool
    ) -> None:
        self.claim = claim
        self.key = (claim.run_id, claim.fence)  # the same run claimed again is another attempt
        self.trusted_until = trusted_until
        self.alone = alone
        self.lost_at: float | None = None  # when its lease was found lost
        self.stopped = False  # ended because it was told to, with nothing written
        self._agent = agent
        self._shop = shop
        self._stops: list[bool] = []  # filled from any thread
        self._writing = False
        self._execution: Execution | None = None  # none in a child process
        self._task: asyncio.Task[None] | None = None

    @property
    def lost(self) -> bool:
        """Whether it is ours no longer, though its handler may not have stopped yet."""
        return self.lost_at is not None

    def start(self) -> asyncio.Task[None]:
        """Begin to work."""
        self._task = self._shop.loop.create_task(self.work())
        return self._task

    def stop(self) -> None:
        """Tell the handler to stop; from any thread, more than once."""
        self._stops.append(True)
        self._shop.loop.call_soon_threadsafe(self._interrupt)

    def _interrupt(self) -> None:
        """Interrupt the handler, but never the write of an outcome."""
        if self._execution is not None:
            self._execution.close()
        if self._task is not None and not self._writing:
            self._task.cancel()

    async def work(self) -> None:
        """Execute the handler and write what became of it."""
        outcome = await self._execute()
        self._writing = True
        answer = await self._write(outcome)
        self.stopped = isinstance(outcome, Stopped)
        if answer == "lost" or (self.stopped and not self._stops):
            self.lost_at = boottime()  # a write of its own was refused: nobody told it to stop
        if self.alone and not self.stopped:
            await self._shop.link.insist(
                workers.worker_stop(self.claim.project, self.claim.worker)
            )
        if answer in {"won", "already", "parked"}:
            return  # what went well is counted, not logged: there may be thousands a second
        log.event(
            "run.ended",
            run=str(self.claim.run_id),
            agent=self.claim.agent,
            attempt=self.claim.attempt,
            fence=self.claim.fence,
            outcome=answer,
        )

    async def _execute(self) -> Outcome:
        try:
            in_child = self._agent.executor == "process" and self.claim.kind != "undo"
            if (self.alone and not self._agent.builtin) or in_child:
                return await self._shop.children.execute(self.claim, fresh=self.alone)
            self._execution = Execution(
                self.claim, self._agent, self._shop.desk, self._shop.threads, self._stops
            )
            return await self._execution.run()
        except asyncio.CancelledError:
            return Stopped()
        except Exception as error:  # noqa: BLE001 - what is not the handler's ends the attempt only
            return of_error(error)

    async def _write(self, outcome: Outcome) -> str:
        match outcome:
            case Done(text):
                return await self._shop.finisher.complete(self.claim, text)
            case Failed():
                return await self._fail(outcome)
            case Crashed(reason) if self.alone:
                # Its identity died with it: the same judgement as the reaper's, at once.
                reaped = await self._shop.link.insist(
                    recovery.worker_lost(self.claim.project, self.claim.worker)
                )
                log.event("run.crashed", run=str(self.claim.run_id), reason=reason)
                return reaped[0].outcome if reaped else "lost"
            case Crashed(reason):
                return await self._fail(Failed("E-RUN-006", reason))
            case Parked():
                return "parked"
            case Stopped():
                return "stopped"

    async def _fail(self, failed: Failed) -> str:
        delay = self._agent.backoff.delay(self.claim.attempt)
        call = runs.run_fail(
            self.claim,
            failed.code,
            failed.reason,
            delay=max(delay, failed.after) if failed.after else delay,
            retryable=failed.retryable,
        )
        [ended] = await self._shop.link.insist(call)
        return ended.outcome
