"""
Worker: one process that claims runs, executes them, and writes what became of them.

    hint ──> claim (no more than free slots) ──> handler ──> complete | fail
                  held, beaten for by a thread ──lost──> the handler is stopped, its write refused

Who decides: a claim and every write are decided by the SQL; this loop only asks. It claims
nothing while the heartbeat is paused, begins no handler whose lease it does not trust, and on a
stop gives every run back before it goes.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from semel import log
from semel.core import runs, undo, workers
from semel.db.lender import Lender
from semel.db.link import Link
from semel.db.wake import woken
from semel.runtime.attempt import Attempt, Shop
from semel.runtime.children import Children, desk_of
from semel.runtime.claimer import Claimer
from semel.runtime.desk import Desk
from semel.runtime.finisher import Finisher
from semel.runtime.heartbeat import Heartbeat
from semel.runtime.held import Held, boottime
from semel.runtime.orders import Orders
from semel.runtime.recorder import Recorder
from semel.runtime.rounds import Rounds
from semel.runtime.tools import Toolbox, told_of
from semel.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    from semel.config import Settings
    from semel.model import Claim
    from semel.runtime.app import App
    from semel.runtime.claimer import Pair

#: Suspects executed at once: each costs a process of its own.
ALONE_MAX = 4
#: As many as an operator may ask for.
SLOTS_MAX = 10_000
#: After work, the next look comes this soon; each that finds nothing doubles it up to `poll`.
POLL_SECONDS_MIN = 0.01
#: While paused, a step that would begin looks again this often.
PAUSED_SECONDS = 0.1
#: After a claim that failed, the next comes this late.
FAILED_SECONDS = 0.5
#: How long a handler that was told to stop may take to do so, before the process goes without it.
STOP_SECONDS_MAX = 1.0


class Worker:
    """
    Works for the agents of *app*, in every project.

    Args:
        target: How a child process finds the same application; see `semel.runtime.app.load`.
        dsn: Where the database is.
        signals: Those that ask it to stop, once it runs; only in a main thread.
    """

    def __init__(
        self,
        app: App,
        settings: Settings,
        *,
        target: str,
        dsn: str,
        signals: tuple[signal.Signals, ...] = (),
    ) -> None:
        self.id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._signals = signals
        self._app = app
        self._settings = settings
        self._dsn = dsn
        self._prepare = not settings.pooler
        self._held = Held()
        home = (settings.project, self.id)
        self._watchdog = Watchdog(settings, dsn, home, self._held)
        self._orders = Orders(self.id, settings.worker.slots, self._ordered)
        self._lender = Lender(dsn, size=settings.worker.slots, prepare=self._prepare)
        self._children = Children(target, desk_of(settings, dsn))
        # One is made when no other is idle: slots bound them, and those may grow.
        self._threads = ThreadPoolExecutor(SLOTS_MAX, thread_name_prefix="semel-run")
        self._tasks: dict[asyncio.Task[None], Attempt] = {}
        self._alone = 0
        self._tellings: set[asyncio.Task[Any]] = set()
        self._met: set[str] = set()
        self._stopping = asyncio.Event()
        self._hurried = asyncio.Event()
        self._freed = asyncio.Event()
        self._woken = False

    @property
    def slots(self) -> int:
        """How many runs it may hold at a time."""
        return self._orders.slots

    @property
    def free(self) -> int:
        """Slots that no run occupies; negative where an operator has taken some away."""
        return self.slots - len(self._tasks)

    def held_of(self, project: str) -> int:
        """Slots that runs of *project* occupy."""
        return sum(attempt.claim.project == project for attempt in self._tasks.values())

    def ask(self) -> None:
        """Stop, as a signal asks it: from the main thread, in the middle of anything."""
        self._watchdog.ask()
        self._loop.call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        """Drain: claim no more, let handlers finish for a moment, give the rest back."""
        if self._stopping.is_set():
            self._hurried.set()
        self._stopping.set()
        self._freed.set()

    async def run(self) -> None:
        """Work until stopped."""
        self._loop = asyncio.get_running_loop()
        for signum in self._signals:
            # Not the loop's own handler: a handler that blocks the loop must not keep us deaf.
            signal.signal(signum, lambda *_: self.ask())
        self._claims = Link(self._dsn, name="semel-claim", prepare=self._prepare)
        versions = {agent.name: agent.version for agent in self._app.agents.values()}
        self._claimer = Claimer(self._claims, versions, self._settings.worker.lease)
        self._rounds = Rounds(self._claimer, self)
        self._writes = Link(self._dsn, name="semel-finish", prepare=self._prepare)
        self._finisher = Finisher(self._writes)
        self._steps = Link(self._dsn, name="semel-step", prepare=self._prepare)
        self._waits = Link(self._dsn, name="semel-wait", prepare=self._prepare)
        self._recorder = Recorder(self._steps)
        self._shop = Shop(
            children=self._children,
            threads=self._threads,
            link=self._writes,
            finisher=self._finisher,
            desk=Desk(
                link=self._waits,
                recorder=self._recorder,
                notifiers=tuple(self._settings.notifiers),
                notify=self._settings.approvals.notify,
                ttl=self._settings.approvals.ttl,
                undos=self._app.compensations,
                lend=self._lender.lend,
                lend_sync=self._lender.lend_sync,
                gate=self._unpaused,
                tools=Toolbox.of(self._app.tools, told_of(self._settings.tools)),
            ),
            loop=self._loop,
        )
        self._heart = Heartbeat(
            self._dsn,
            (self._settings.project, self.id),
            self._held,
            self._settings.worker,
            prepare=self._prepare,
            asked=self._orders.beat,
        )
        self._heart.start()
        self._watchdog.start()
        self._ears = asyncio.create_task(self._listen())
        log.event("worker.started", worker=self.id, agents=sorted(self._app.agents))
        try:
            await self._claim_on()
        finally:
            await self._leave()

    # -- claiming ---------------------------------------------------------------------------

    @property
    def shut(self) -> bool:
        """Whether nothing is claimed now."""
        return self._stopping.is_set() or self._heart.paused or self._orders.draining

    def _ordered(self) -> None:
        """An operator asks something else: look at it at once."""
        self._lender.resize(self._orders.slots)
        self._loop.call_soon_threadsafe(self._freed.set)

    async def _claim_on(self) -> None:
        longest = self._settings.worker.poll.total_seconds()
        pause = POLL_SECONDS_MIN
        while not self._stopping.is_set():
            try:
                await self._meet(self._settings.project)
                claimed = await self._rounds.go()
                if not self._tasks:
                    await self._orders.answer(self._claims, self._met)
            except Exception as error:  # noqa: BLE001 - the loop outlives whatever the database says
                log.event(
                    "worker.failed_claim", reason=f"{type(error).__name__}: {error}"[:300]
                )
                self._woken = False  # whoever rang is heard by the next look
                await self._idle(FAILED_SECONDS)
                continue
            if claimed or self._woken:
                pause = POLL_SECONDS_MIN
                self._woken = False
            if self.free <= 0 or self.shut:
                await self._idle(1.0)
            elif not claimed:
                # Work comes in bursts: look again soon, and then less and less often.
                await self._idle(pause, sharp=self._claimer.rate_wait())
                pause = min(2 * pause, longest)

    async def _listen(self) -> None:
        """Look at once when somebody says there is work for one of our agents."""
        if self._settings.pooler:
            return  # a pooler passes no notification on; polling is enough
        async for agent in woken(self._dsn):
            if not agent or agent in self._app.agents:
                self._claimer.wake(agent)
                self._woken = True
                self._freed.set()

    async def claim(self, pair: Pair, limit: int) -> int:
        """Claim up to *limit* runs of *pair*; answers how many."""
        if limit <= 0 or self.shut:
            return 0
        await self._meet(pair.project)
        return await self._lease(pair, self.id, limit, alone=False)

    async def claim_alone(self, pair: Pair, limit: int) -> int:
        """The same for those that want a process of their own."""
        claimed = 0
        while pair.alone and claimed < limit and self.free > 0 and self._alone < ALONE_MAX:
            if self.shut:
                break
            # An identity of its own: when it dies, nobody else's lease is in doubt.
            worker = f"{self.id}~{secrets.token_hex(3)}"
            claimed += await self._lease(pair, worker, 1, alone=True)
        return claimed

    async def _lease(self, pair: Pair, worker: str, limit: int, *, alone: bool) -> int:
        began = boottime()
        most = self._app.agents[pair.agent].max_attempts
        claims = await self._claimer.claim(
            pair, worker, limit=limit, max_attempts=most, alone=alone
        )
        if boottime() - began > self._settings.worker.pause.total_seconds():
            # We, or the database, slept over the answer: others may have counted us dead.
            keys = [(claim.run_id, claim.fence) for claim in claims]
            await self._claims.run(runs.run_release(pair.project, worker, keys))
            return 0
        trusted_until = began + self._settings.worker.lease.total_seconds()
        for claim in claims:
            self._begin(claim, trusted_until, alone=alone)
        return len(claims)

    def _begin(self, claim: Claim, trusted_until: float, *, alone: bool) -> None:
        agent = self._app.agents[claim.agent]
        attempt = Attempt(claim, agent, self._shop, trusted_until=trusted_until, alone=alone)
        self._held.add(attempt)
        task = attempt.start()
        self._tasks[task] = attempt
        self._alone += alone
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        attempt = self._tasks.pop(task)
        self._alone -= attempt.alone
        if attempt.lost or not attempt.stopped:
            self._held.drop(attempt)  # a stopped one is given back when we leave
        if attempt.lost and not self._stopping.is_set():
            self._tell_stopped(attempt)
        self._freed.set()
        if not task.cancelled() and (error := task.exception()):
            log.event(
                "run.unwritten",
                run=str(attempt.claim.run_id),
                reason=f"{type(error).__name__}: {error}"[:300],
            )

    def _tell_stopped(self, attempt: Attempt) -> None:
        """A run ended under its handler, which has stopped now: it may be undone."""
        call = undo.run_stopped(
            attempt.claim.project, attempt.claim.worker, [attempt.claim.run_id]
        )
        task = self._loop.create_task(self._waits.insist(call))
        self._tellings.add(task)
        task.add_done_callback(self._tellings.discard)

    async def _unpaused(self) -> None:
        """Return when a step may begin: not while our heartbeat is not heard."""
        while self._heart.paused:  # noqa: ASYNC110 - its thread has no event of this loop
            await asyncio.sleep(PAUSED_SECONDS)

    async def _meet(self, project: str) -> None:
        """Announce ourselves in a project the first time we see it."""
        if project in self._met:
            return
        served = self._app.agents.values()
        await self._claims.run(
            workers.worker_register(
                project,
                self.id,
                host=socket.gethostname(),
                pid=os.getpid(),
                slots=self._settings.worker.slots,
                agents=[(a.name, a.max_attempts, a.concurrency, a.executor) for a in served],
                versions=[a.version for a in served],
                joins=[a.joins for a in served],
                flows=[a.flow for a in served],
            )
        )
        self._met.add(project)

    async def _idle(self, seconds: float, *, sharp: float | None = None) -> None:
        """Wait for a freed slot, a wake-up, a stop, or about *seconds*; *sharp* is not jittered."""
        if self._woken and self.free > 0:
            return
        self._freed.clear()
        jittered = seconds * (0.8 + 0.4 * random.random())  # noqa: S311 - jitter
        if sharp is not None:
            jittered = min(jittered, max(sharp, POLL_SECONDS_MIN))
        try:
            await asyncio.wait_for(self._freed.wait(), jittered)
        except TimeoutError:
            return

    # -- leaving ----------------------------------------------------------------------------

    async def _leave(self) -> None:
        self._watchdog.heard()
        log.event("worker.draining", worker=self.id, held=len(self._held))
        await self._finish_up(self._settings.worker.drain.total_seconds())
        for attempt in list(self._tasks.values()):
            attempt.stop()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=STOP_SECONDS_MAX)
        self._children.kill()
        self._ears.cancel()
        await self._give_back()
        await self._app.end()
        await self._finisher.close()
        self._heart.stop()
        self._watchdog.stop()
        await self._recorder.close()
        for link in (self._claims, self._writes, self._steps, self._waits):
            await link.close()
        await self._lender.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        log.event(
            "worker.stopped",
            worker=self.id,
            look_seconds=round(self._claimer.look_seconds, 4),
            claim_seconds_max=round(self._claimer.claim_seconds_max, 4),
        )

    async def _finish_up(self, seconds: float) -> None:
        """Let handlers end by themselves for a while, or until somebody hurries."""
        hurry = asyncio.create_task(self._hurried.wait())
        deadline = boottime() + seconds
        while self._tasks and not self._hurried.is_set() and boottime() < deadline:
            await asyncio.wait(
                [*self._tasks, hurry],
                timeout=deadline - boottime(),
                return_when=asyncio.FIRST_COMPLETED,
            )
        hurry.cancel()

    async def _give_back(self) -> None:
        """Release what is still held; what cannot be told now is found by the reaper."""
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX * 3):
                for (project, worker), attempts in self._held.by_worker().items():
                    named = [a.key for a in attempts if not a.lost]
                    await self._claims.run(runs.run_release(project, worker, named))
                    for run_id, _ in named:
                        log.event("run.released", run=str(run_id))
                for project in self._met:
                    await self._claims.run(workers.worker_stop(project, self.id))
        except Exception as error:  # noqa: BLE001 - leaving must end
            log.event("worker.failed_release", reason=type(error).__name__)
