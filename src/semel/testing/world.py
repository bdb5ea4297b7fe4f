"""
World: an application, a database and a clock, in the hands of one test.

    async with World(app, dsn) as world:
        run = await world.start("triage", {"host": "web-1"})
        await world.drain()                          # until nothing is ready
        await world.decide(run, "approve", voter="alice")
        world.clock.advance(minutes=5)
        await world.drain()
        assert (await world.run(run)).status == "COMPLETED"

The SQL and the runtime are the real ones; only time stands still, and whoever works does so when
the test says it, one attempt at a time. The methods of a world, `drain` apart, may also be called
while a handler is at work: at a point (`at`), or in a step.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from semel.core import runs, transitions, waits
from semel.core.approvals import Link, approval_decide
from semel.core.tools import tool_answer
from semel.db import stops
from semel.db.execute import run
from semel.db.pool import connect
from semel.errors import (
    ApprovalDecided,
    ApprovalExpired,
    CallEnded,
    Forbidden,
    KeyConflict,
    NoSuchApproval,
    NoSuchCall,
    NoSuchRun,
    RunRefused,
)
from semel.runtime.desk import APPROVAL_TTL
from semel.testing.clock import NO_TIME, Clock
from semel.testing.points import Points
from semel.testing.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta
    from types import TracebackType
    from typing import LiteralString
    from uuid import UUID

    from semel.core.approvals import Decided, Decision
    from semel.core.call import Call
    from semel.runtime.app import App
    from semel.runtime.tools import Tool
    from semel.testing.letter import Letter

T = TypeVar("T")


class World:
    """
    Works for *app* on the database at *dsn*, when told to.

    Args:
        dsn: A migrated database that nobody else works on.
        clock: Stands still at 2026-01-01 09:00 UTC unless you bring another.
        recipients: Who is told of approvals; `letters` has what they were told.
        ttl: How long there is to decide where `run.approval` does not say.
        tools: Stand-ins for servers, as {"cluster": {"list_pods": function}}, for `run.tool`.
    """

    def __init__(
        self,
        app: App,
        dsn: str,
        *,
        project: str = "test",
        clock: Clock | None = None,
        recipients: Sequence[str] = ("oncall",),
        ttl: timedelta = APPROVAL_TTL,
        tools: Mapping[str, Mapping[str, Callable[..., Any] | Tool]] | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self.project = project
        self._app = app
        self._dsn = dsn
        self._recipients = recipients
        self._ttl = ttl
        self._tools = tools or {}
        self._points = Points()
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._conn = self._exit.enter_context(connect(self._dsn, name="semel-testing"))
        self._work = Work(
            self._app,
            self._conn,
            self._dsn,
            self.clock,
            project=self.project,
            recipients=self._recipients,
            ttl=self._ttl,
            tools=self._tools,
        )
        self._exit.push_async_callback(self._work.close)
        self._exit.callback(stops.watch, None)
        stops.watch(self._passed)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._exit.aclose()

    # -- time and work ----------------------------------------------------------------------

    def advance(self, by: timedelta = NO_TIME, /, **parts: float) -> None:
        """Let time go by, as in `advance(minutes=15)`; what that makes due, `drain` does."""
        self.clock.advance(by, **parts)

    async def drain(self) -> int:
        """
        Work until nothing is ready at this moment; answers how many attempts it took.

        Ticks of schedules, sleeps, retries, deadlines and approvals that are over, the runs of a
        worker that was silent for 30 seconds, notifications and compensations are all among it.
        Every pause before a retry, a step's own too, is one of the clock's: `advance` over it.

        Raises:
            Exception: what was to happen at a point raised it, such as an assertion.
        """
        count = await self._work.drain()
        self._points.settle()
        return count

    @property
    def letters(self) -> list[Letter]:
        """What people would have been sent, oldest first."""
        return self._work.letters

    # -- runs -------------------------------------------------------------------------------

    async def start(
        self,
        agent: str,
        input: Any = None,  # noqa: A002 - the contract's word
        *,
        key: str | None = None,
        priority: int = 5,
        max_attempts: int | None = None,
        unique: str | None = None,
    ) -> UUID:
        """Start a run of *agent*, ready now, or find the one that the key stands for."""
        if agent not in self._app.agents:
            raise ValueError(f"the app has no agent {agent!r}; it has {[*self._app.agents]}")
        started = self._run(
            runs.run_start(
                self.project,
                agent,
                input,
                key=key,
                priority=priority,
                max_attempts=max_attempts,
                unique=unique,
                now=self.clock.now,
            )
        )
        if started.outcome == "conflict":
            raise KeyConflict(f"key {key!r} was used with another agent or input")
        return started.run_id

    async def run(self, run_id: UUID) -> SimpleNamespace:
        """A run as the view `semel.runs` has it: its status, result, failure_code and so on."""
        found = self._rows("select * from semel.runs where run_id = %s", run_id)
        if not found:
            raise NoSuchRun(f"no run {run_id} in this world")
        return found[0]

    async def runs(self, *, parent: UUID | None = None) -> list[SimpleNamespace]:
        """All runs, or those of *parent*: children, notifications, its compensation; in order."""
        if parent is None:
            return self._rows("select * from semel.runs order by created_at, run_id")
        return self._rows(
            "select * from semel.runs where parent_run_id = %s order by created_at, run_id",
            parent,
        )

    async def attempts(self, run_id: UUID) -> list[SimpleNamespace]:
        """A run's attempts, as the view `semel.attempts` has them: outcome, code and reason."""
        return self._rows(
            "select * from semel.attempts where run_id = %s order by fence", run_id
        )

    async def undo(self, run_id: UUID) -> SimpleNamespace | None:
        """The run that compensates *run_id*, if there is one."""
        return next((one for one in await self.runs(parent=run_id) if one.kind == "undo"), None)

    async def cancel(self, run_id: UUID, reason: str = "cancelled by a test") -> None:
        """Cancel a run, as an operator does."""
        outcome, status = self._run(
            transitions.run_cancel(self.project, run_id, reason=reason, now=self.clock.now)
        )
        if outcome not in {"won", "already"}:
            raise RunRefused(f"run {run_id} cannot be cancelled: it is {status or outcome}")

    async def retry(self, run_id: UUID) -> UUID:
        """Let a run that failed or was cancelled start again; answers which one starts."""
        outcome, status, starts = self._run(
            transitions.run_retry(self.project, run_id, now=self.clock.now)
        )
        if outcome not in {"won", "new"}:
            raise RunRefused(f"run {run_id} cannot be retried: it is {status or outcome}")
        return starts

    async def signal(
        self, run_id: UUID, name: str, content: Any = None, *, key: str | None = None
    ) -> None:
        """Say *name* to a live run."""
        outcome, status = self._run(
            waits.signal_send(
                self.project, run_id, name, content, key=key, sender="test", now=self.clock.now
            )
        )
        if outcome not in {"won", "duplicate"}:
            raise RunRefused(f"run {run_id} hears nothing: it is {status or outcome}")

    async def answer(self, callback: str, answer: Any) -> None:
        """
        Post to a *callback* that a tool was given: {"result": ...} or {"error": {"message": ...}}.

        Raises:
            NoSuchCall, CallEnded.
        """
        link = Link.read(callback.rpartition("/")[2])
        if link is None:
            raise NoSuchCall("that is no token")
        told = self._run(tool_answer(link.project, link, answer, now=self.clock.now))
        if told.outcome == "unknown":
            raise NoSuchCall("no call has this token")
        if told.outcome == "already":
            raise CallEnded("the call has its answer, or nobody waits for one any more")

    async def approvals(self, run_id: UUID) -> list[SimpleNamespace]:
        """What a run has asked people, as the view `semel.approvals` has it; the newest last."""
        return self._rows(
            "select * from semel.approvals where run_id = %s order by created_at, approval_id",
            run_id,
        )

    async def decide(
        self,
        run_id: UUID,
        decision: Decision,
        *,
        voter: str = "tester",
        reason: str | None = None,
        step: str | None = None,
    ) -> Decided:
        """
        Decide what a run asks: `approve` or `reject`.

        Args:
            step: Of several questions, the one of this step.

        Raises:
            NoSuchApproval, ApprovalExpired, ApprovalDecided, Forbidden: as a person is told.
        """
        asked = [one for one in await self.approvals(run_id) if step in {None, one.step_key}]
        open_ = [one for one in asked if one.state == "PENDING"] or asked[-1:]
        if len(open_) != 1:
            keys = [one.step_key for one in open_]
            raise NoSuchApproval(f"run {run_id} asks {len(open_)} questions; say step=: {keys}")
        decided = self._run(
            approval_decide(
                self.project,
                decision,
                via="api",
                approval_id=open_[0].approval_id,
                voter=voter,
                reason=reason,
                now=self.clock.now,
            )
        )
        match decided.outcome:
            case "won" | "voted":
                return decided
            case "expired":
                raise ApprovalExpired(f"{open_[0].title!r} was not decided in time")
            case "already":
                raise ApprovalDecided(f"{open_[0].title!r} was {str(decided.state).lower()}")
            case "refused":
                raise Forbidden(f"{voter} may not decide {open_[0].title!r}")
            case "void" | "unknown":
                raise NoSuchApproval(f"{open_[0].title!r} is asked no more")

    # -- faults -----------------------------------------------------------------------------

    def at(self, point: str, act: Callable[[], Any], *, nth: int = 1) -> None:
        """
        Have *act* called when the worker passes *point*, once, in the middle of its work.

        Args:
            point: One of `semel.testing.POINTS`.
            act: May call this world's methods: `lambda: world.cancel(run)`.
            nth: At which passage from now.
        """
        self._points.add(point, act, nth)

    def crash_at(self, point: str, *, nth: int = 1) -> None:
        """Have the worker die there; see `crash`."""
        self.at(point, self.crash, nth=nth)

    def lose_at(self, point: str, *, nth: int = 1) -> None:
        """Have the worker lose its lease there; see `lose`."""
        self.at(point, self.lose, nth=nth)

    def crash(self) -> None:
        """
        Die as a worker process dies: the attempt writes nothing more, whatever it had begun.

        In a step, nothing behind this is executed. The run is RUNNING until somebody finds its
        worker dead: `advance(seconds=31)`, then `drain`.
        """
        self._work.crash()

    def lose(self) -> None:
        """
        Take the lease from the run that is being executed, as when its worker was thought dead.

        The handler goes on and learns of it when it next writes; the run is ready for another
        worker, or FAILED if this was its last attempt.
        """
        self._work.lose()

    @property
    def points(self) -> list[str]:
        """The points that were named and have not been passed: a test may ask that none is left."""
        return self._points.waiting

    def _passed(self, name: str) -> None:
        if self._work.crashed:
            self._work.crash()  # the dead pass nothing
        self._points.passed(name)

    # -- reading ----------------------------------------------------------------------------

    def _run(self, call: Call[T]) -> T:
        return run(self._conn, call)

    def _rows(self, sql: LiteralString, *args: Any) -> list[SimpleNamespace]:
        cursor = self._conn.execute(sql, args)
        names = [column.name for column in cursor.description or ()]
        return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in cursor]
