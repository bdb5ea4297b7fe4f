"""
Work: what a worker and upkeep do, one thing at a time, at the moment that the clock shows.

    ticks, deadlines, what is due, who is lost ──> the run that waits longest ──claim──> its handler
        ^                                                                            │
        └──────────────── complete, fail, or nothing if it was parked or lost <──────┘

The SQL and the handlers' runtime are the real ones. Not here: heartbeats, slots, child processes
and wake-ups, which only make sense where time goes on by itself.
"""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from semel.core import batches, claims, recovery, runs, transitions, undo, workers
from semel.core.approvals import Link, approval_mint, approval_read
from semel.core.inbox import MEMORY
from semel.core.schedules import schedule_seed
from semel.core.tools import AGENT as TOOL
from semel.core.tools import APP
from semel.db.execute import run
from semel.db.stops import stop_here
from semel.edges.tools.agent import Caller
from semel.edges.tools.functions import Functions
from semel.runtime.execution import Execution
from semel.runtime.handlers import Agent, Backoff
from semel.runtime.outcome import Done, Failed, Outcome, Stopped
from semel.runtime.ticker import ROUNDS_MAX, Ticker
from semel.runtime.tools import ATTEMPTS, TIMEOUT, Tool, Toolbox
from semel.testing.letter import Letter
from semel.testing.life import Crashed, Life

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import psycopg

    from semel.core.call import Call
    from semel.edges.tools.server import Server
    from semel.model import Claim, Hint
    from semel.runtime.app import App
    from semel.testing.clock import Clock

T = TypeVar("T")

LEASE = timedelta(minutes=5)
#: A worker that was silent for longer is dead.
DEAD_AFTER = timedelta(seconds=30)
NOTIFY = "semel.notify"
#: A stub of a server is not retried later than this.
BACKOFF = Backoff(cap=timedelta(seconds=30))
#: For `def` handlers, and the plain functions that an `async def` one has for steps.
THREADS = 16
#: So many attempts at one moment are a run that is ready again and again.
ATTEMPTS_MAX = 10_000


class Work:
    """
    The worker of one world, and its upkeep.

    Args:
        conn: In autocommit; what is not a handler's goes over it, and never waits.
        recipients: Who is told of approvals; `letters` has what they were told.
        tools: By server, functions that stand for its tools.
    """

    def __init__(
        self,
        app: App,
        conn: psycopg.Connection[Any],
        dsn: str,
        clock: Clock,
        *,
        project: str,
        recipients: Sequence[str],
        ttl: timedelta,
        tools: Mapping[str, Mapping[str, Callable[..., Any] | Tool]],
    ) -> None:
        self._tools = tools
        self.letters: list[Letter] = []
        self.busy = False
        self._app = app
        self._conn = conn
        self._dsn = dsn
        self._clock = clock
        self._project = project
        self._recipients = tuple(recipients)
        self._ttl = ttl
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="semel-run")
        self._births = itertools.count(1)
        self._lives: list[Life] = []
        self._stopped = False  # somebody took the run away
        self._ticker = Ticker(lambda: conn, memory=MEMORY, wake=False)
        self._run(schedule_seed(project, app.name or "app", app.schedules, now=clock.now))
        self._begin()

    async def drain(self) -> int:
        """
        Work until nothing is ready; answers how many attempts it took.

        Raises:
            RuntimeError: it is called from within, or comes to no end.
        """
        if self.busy:
            raise RuntimeError("drain() is at work already: no handler or action may call it")
        self.busy = True
        try:
            for count in range(ATTEMPTS_MAX):
                if not await self._next():
                    return count
        finally:
            self.busy = False
        raise RuntimeError(
            f"{ATTEMPTS_MAX} attempts, and the clock has not moved: a run is ready again and again"
        )

    def crash(self) -> None:
        """
        End this life. The run it holds, if any, stays its own until somebody finds it dead.

        Raises:
            Crashed: whatever was under way goes no further.
        """
        self._life.end()
        if self.busy:
            raise Crashed
        self._begin()

    def lose(self) -> None:
        """Take what this life holds from it, as the reaper does; it learns of it when it writes."""
        self._stopped = True
        self._run(recovery.worker_lost(self._project, self._life.worker, now=self._clock.now))

    @property
    def crashed(self) -> bool:
        """Whether this life is over."""
        return self._life.over

    async def close(self) -> None:
        """Give connections and threads back."""
        for life in self._lives:
            await life.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, call: Call[T]) -> T:
        return run(self._conn, call)

    def _begin(self) -> None:
        """A new life."""
        self._stopped = False
        self._life = Life(
            f"world-{next(self._births)}",
            self._dsn,
            self._clock,
            recipients=self._recipients,
            undos=self._app.compensations,
            ttl=self._ttl,
            tools=Toolbox.of(
                self._app.tools, dict.fromkeys(self._tools, (TIMEOUT.total_seconds(), ATTEMPTS))
            ),
        )
        self._lives.append(self._life)
        agents = [
            *self._app.agents.values(),
            *(self._agent(name) for name in self._tool_agents),
        ]
        self._run(
            workers.worker_register(
                self._project,
                self._life.worker,
                host="world",
                pid=0,
                slots=1,
                agents=[(a.name, a.max_attempts, a.concurrency, a.executor) for a in agents],
                versions=[a.version for a in agents],
                joins=[a.joins for a in agents],
                flows=[a.flow for a in agents],
                now=self._clock.now,
            )
        )

    async def _next(self) -> bool:
        """Do the next thing, if there is one."""
        try:
            for lane, hint in self._waiting():
                stop_here("worker.claim.before")
                for claim in self._claim(lane, hint):
                    stop_here("worker.claim.after")
                    self._finish(claim, await self._execute(claim))
                    return True
        except Crashed:
            return True
        finally:
            if self._life.over or self._stopped:
                self._begin()
        return False

    def _waiting(self) -> list[tuple[int, Hint]]:
        """Lanes where runs wait, once what is due has happened; first things first."""
        now = self._clock.now
        self._ticker.fire(self._conn, now=now, rounds=ROUNDS_MAX)
        self._run(transitions.run_overdue(self._project, now=now))
        self._run(batches.batch_settle(self._project, now=now))
        self._run(claims.run_due(self._project, now=now))
        self._run(recovery.run_reap(self._project, dead_after=DEAD_AFTER, trust=True, now=now))
        versions = [agent.version for agent in self._app.agents.values()]
        builtin = [NOTIFY, *self._tool_agents]
        hints = self._run(
            claims.run_hint(
                [*self._app.agents, *builtin],
                versions=[*versions, *("" for _ in builtin)],
                now=now,
            )
        )
        ours = [
            (hint.lane, hint)
            for hint in hints
            if hint.project == self._project and hint.lane is not None and not hint.rate_wait
        ]
        return sorted(ours, key=lambda one: (one[0], one[1].ready_at, one[1].agent))

    def _claim(self, lane: int, hint: Hint) -> list[Claim]:
        agent = self._app.agents.get(hint.agent)
        return self._run(
            claims.run_claim(
                self._project,
                hint.agent,
                self._life.worker,
                limit=1,
                lease=LEASE,
                max_attempts=agent.max_attempts if agent else ATTEMPTS_MAX,
                lanes=[lane],
                version=agent.version if agent else "",
                own=[bool(hint.version)],
                now=self._clock.now,
            )
        )

    async def _execute(self, claim: Claim) -> Outcome:
        if claim.agent == NOTIFY:
            return self._tell(claim)
        stops: list[bool] = []
        execution = Execution(
            claim, self._agent(claim.agent), self._life.desk, self._threads, stops
        )
        return await self._life.execute(execution, stops)

    @property
    def _tool_agents(self) -> list[str]:
        """Semel's own, that make calls."""
        return [TOOL, *(f"{TOOL}.{name}" for name in self._app.tools)]

    def _agent(self, name: str) -> Agent:
        if name in self._app.agents:
            return self._app.agents[name]
        servers: dict[str, Server] = {
            server: Functions(
                {
                    tool: fn
                    if isinstance(fn, Tool)
                    else Tool(name=tool, fn=fn, idempotent=False)
                    for tool, fn in stubs.items()
                }
            )
            for server, stubs in {**self._tools, APP: self._app.tools}.items()
        }
        caller = Caller(servers, self._life.desk.link, links="http://world", clock=self._clock)
        return Agent(
            name=name,
            handler=caller.__call__,
            max_attempts=ATTEMPTS,
            concurrency=None,
            executor="async",
            backoff=BACKOFF,
            builtin=True,
        )

    def _finish(self, claim: Claim, outcome: Outcome) -> None:
        if self._life.over:
            raise Crashed
        now = self._clock.now
        match outcome:
            case Done(text):
                stop_here("worker.complete.before")
                ended = [(claim.run_id, claim.fence, text)]
                self._run(runs.run_complete(claim.project, claim.worker, ended, now=now))
                stop_here("worker.complete.after")
            case Failed(code, reason, retryable):
                delay = self._agent(claim.agent).backoff.delay(claim.attempt)
                self._run(
                    runs.run_fail(
                        claim, code, reason, delay=delay, retryable=retryable, now=now
                    )
                )
            case Stopped():
                ids = [claim.run_id]
                self._run(undo.run_stopped(claim.project, claim.worker, ids, now=now))
            case _:
                pass  # parked: it is nobody's

    def _tell(self, claim: Claim) -> Outcome:
        """Write a letter instead of sending one."""
        told = json.loads(claim.text)
        project, now = claim.project, self._clock.now
        approval_id = UUID(told["approval_id"])
        asked = self._run(approval_read(project, approval_id=approval_id, now=now))
        link = Link.mint(project)
        minted = self._run(
            approval_mint(
                project,
                claim.worker,
                claim.run_id,
                claim.fence,
                approval_id=approval_id,
                recipient=told["recipient"],
                link=link,
                now=now,
            )
        )
        if asked is None or minted != "won":
            return Done('{"sent": false}')
        self.letters.append(
            Letter(
                recipient=told["recipient"],
                title=asked.title,
                action=asked.action,
                run_id=asked.run_id,
                approval_id=approval_id,
                token=link.token,
            )
        )
        return Done('{"sent": true}')
