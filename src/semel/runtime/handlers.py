"""
Handlers: which function works for which agent, and what it is handed.

A handler is `async def`, or `def` in a thread or a process of its own. It gets one Run and
returns JSON. What it raises ends the attempt, never the worker.
"""

from __future__ import annotations

import inspect
import json
import random
import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from semel import log
from semel.core.flow import Flow
from semel.errors import BadConfig, UnreadableInput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from semel.model import Claim, Json
    from semel.runtime.retry import Retry
    from semel.runtime.way import Way

Executor = Literal["async", "thread", "process"]

_VERSION = re.compile(r"[A-Za-z0-9_.-]{0,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long a failed run waits: base, doubled per attempt up to cap, of which half is chance."""

    base: timedelta = timedelta(seconds=1)
    cap: timedelta = timedelta(minutes=5)

    def delay(self, attempt: int) -> timedelta:
        """The wait after *attempt*, the first being 1."""
        doublings = min(attempt - 1, 30)  # beyond, any cap is long reached
        whole = min(self.cap, self.base * (1 << doublings))
        return timedelta(seconds=whole.total_seconds() * (0.5 + random.random() / 2))  # noqa: S311 - jitter, not a secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A handler under its name."""

    name: str
    handler: Callable[[Run], Any]
    max_attempts: int
    concurrency: int | None  # runs at once in a project, over all workers; None: no limit
    executor: Executor
    backoff: Backoff
    version: str = ""  # of its code: a run that one version began goes on with that one
    builtin: bool = False  # Semel's own: no child process has it
    joins: bool = False  # events of one correlation key are told to its live run
    flow: Flow = field(default_factory=Flow)  # its rate and its keys

    is_async: bool = field(init=False)

    def __post_init__(self) -> None:
        is_async = inspect.iscoroutinefunction(self.handler)
        object.__setattr__(self, "is_async", is_async)
        if self.max_attempts < 1:
            raise BadConfig(
                f"agent {self.name}: max_attempts is {self.max_attempts}; write 1 or more"
            )
        if self.concurrency is not None and self.concurrency < 1:
            raise BadConfig(
                f"agent {self.name}: concurrency is {self.concurrency}; write 1 or more"
            )
        if self.flow.per_limit is not None and self.flow.per_limit < 1:
            raise BadConfig(
                f"agent {self.name}: per_limit is {self.flow.per_limit}; write 1 or more"
            )
        # A program that nobody type-checks may say 2.
        is_text = isinstance(self.version, str)
        if not is_text or not _VERSION.fullmatch(self.version):
            raise BadConfig(
                f"agent {self.name}: version {self.version!r} is none;"
                " write 1 to 64 of A-Z, a-z, 0-9, _, . and -, or leave it out"
            )
        if self.executor == "async" and not is_async:
            raise BadConfig(f'agent {self.name}: executor="async" needs an `async def` handler')
        if self.executor == "thread" and is_async:
            raise BadConfig(f'agent {self.name}: executor="thread" needs a plain `def` handler')


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRef:
    """The event that made a run."""

    id: UUID
    source: str | None


@dataclass(slots=True, kw_only=True, eq=False)  # not frozen: that would double its making
class Run:
    """What a handler is handed: one attempt at one run."""

    id: UUID
    project: str
    agent: str
    input: Any  # JSON
    attempt: int  # 1 for the first start
    worker: str  # who holds it; a suspect's is its own
    fence: int  # larger at each claim: pass it on to what can refuse an older one
    event: EventRef | None = None
    parent: UUID | None = None  # the run that spawned it
    _stops: list[bool] = field(default_factory=list, repr=False)  # filled from any thread
    _open: Callable[[], Way] | None = field(default=None, repr=False)
    _way: Way | None = field(default=None, repr=False)  # to its journal, once it is open

    @property
    def cancelled(self) -> bool:
        """Whether this attempt is to stop; an async handler is cancelled as well."""
        return bool(self._stops)

    def log(self, message: str, /, **fields: Json) -> None:
        """Write one line to the worker's log, with the run and attempt beside it."""
        log.event(
            "run.logged",
            **{**fields, "run": str(self.id), "attempt": self.attempt, "message": message},
        )

    # -- steps: in an `async def` handler each of these is awaited ---------------------------

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        retry: Retry | int | None = None,
        undo: Callable[..., Any] | str | None = None,
        **kwargs: Any,
    ) -> Any:
        """
        Execute `fn(*args, **kwargs)` once in the life of this run, and answer its result.

        A later attempt, on any worker, is given the stored result. What fn does outside the
        database may happen again after a crash between doing and storing: pass its
        `idempotency_key` on (a keyword of that name is filled in, or ask semel.idempotency_key()).

        Args:
            name: 1 to 255 bytes. Asked for again it is name#2, name#3: keep the order the same.
            fn: `async def`, or `def`, which is called in a thread. Returns JSON of at most 1 MiB.
            retry: Tries within this attempt, 1 by default; see Retry.
            undo: A registered compensation (see App.compensation), or its name. It is promised
                before fn is called, and called as `undo(*args, **kwargs, result=...)` if the
                run fails or is cancelled; result is None when fn may have acted without answering.

        Raises:
            Exception: what fn raised in its last try.
            JournalMismatch, BadStepResult, UnknownUndo, StepInParallel: these end the run.
        """
        return self._steps().step(name, fn, args, kwargs, retry=retry, undo=undo)

    def transaction(
        self,
        name: str,
        fn: Callable[..., Any] | None = None,
        /,
        *args: Any,
        using: Any = None,
        **kwargs: Any,
    ) -> Any:
        """
        Commit rows of your own together with the step *name*, or with a lost lease nothing.

            async with run.transaction("record") as tx:          # `with` in a `def` handler
                await tx.execute("insert into incident values (%s)", (run.id,))
                tx.result = 1                                    # what the step answers later

            await run.transaction("record", write, using=session)  # write(session), once

        Args:
            fn: Called as `fn(connection, *args)`; its result is the step's.
            using: psycopg, asyncpg, SQLAlchemy (Session, Connection or their async forms) or
                Django connection, in no transaction; None lends one of Semel's own (psycopg).
        """
        return self._steps().transaction(name, fn, args, kwargs, using=using)

    def approval(
        self,
        title: str,
        *,
        action: Any,
        ttl: timedelta | None = None,
        approvers: Sequence[str] | None = None,
        need: int = 1,
        requester: str | None = None,
        four_eyes: bool = False,
        name: str | None = None,
    ) -> Any:
        """
        Ask people, and go on once they have approved. The slot is free meanwhile.

        Args:
            title: What is asked, in a line.
            action: JSON: exactly what would be done. A decision holds for this action only.
            ttl: Not decided by then, the run fails with E-APPROVAL-002. 15 minutes by default.
            approvers: Who may decide, and is told; None: whoever has the role, and the notifiers
                of [approvals] in semel.toml are used.
            need: How many must approve. One may reject.
            requester: Who wants it done; with four_eyes somebody else must approve.
            name: The step's name, by default the title.

        Returns:
            {"by": [names], "decided_at": …, "reason": …, "approval_id": …}.

        Raises:
            ApprovalRejected: catch it to go on otherwise.
        """
        return self._steps().approval(
            name,
            title,
            action,
            ttl,
            approvers=approvers,
            need=need,
            requester=requester,
            four_eyes=four_eyes,
        )

    def sleep(self, delay: timedelta | float, *, name: str = "sleep") -> Any:
        """Go on after *delay* (seconds, or a timedelta) of the database's clock; frees the slot."""
        return self._steps().sleep(name, delay)

    def signal(self, name: str, *, timeout: timedelta | None = None) -> Any:
        """
        Wait for somebody to say *name* to this run; answers what they said.

        One that came before is found. Each call takes one, the oldest first.

        Raises:
            WaitTimedOut: none came within *timeout*.
        """
        return self._steps().signal(name, timeout)

    def spawn(
        self,
        agent: str,
        input: Any = None,  # noqa: A002 - the contract's word
        *,
        name: str | None = None,
        priority: int = 5,
        max_attempts: int | None = None,
        delay: timedelta | None = None,
        deadline: timedelta | None = None,
    ) -> Any:
        """Start a child run, once; answers a Child, whose `result()` waits for its end."""
        return self._steps().spawn(
            name or f"spawn:{agent}",
            agent,
            input,
            {
                "priority": priority,
                "max_attempts": max_attempts,
                "delay": delay,
                "deadline": deadline,
            },
        )

    def tool(
        self,
        server: str,
        tool: str,
        args: Any = None,
        /,
        *,
        timeout: timedelta | None = None,
        callback: bool = False,
        name: str | None = None,
    ) -> Any:
        """
        Have a tool called by a run of its own; answers its result. The slot is free meanwhile.

        Args:
            server: A section of [tools] in semel.toml; `app` for a function of @app.tool; `agents`
                for a run of the agent *tool*, whose input is *args*.
            args: A dict, by name; JSON of at most 256 KiB.
            timeout: By the database's clock; by default the server's, 5 minutes if it says none.
            callback: The tool is told where to post its answer, and may do so later.
            name: The step's name, by default `server.tool`.

        Raises:
            ToolError: the tool answered an error.
            ToolTimedOut: no answer came within *timeout*.
            ToolUnknown: it was called and did not answer, and does not allow to be called again.
            ToolNotCalled: there is no such tool, or its server is not there.
            ApprovalRejected: the tool asked for a person's consent, who refused.
        """
        return self._steps().tool(name, server, tool, args, timeout, callback=callback)

    def answer(self) -> Any:
        """Wait, parked, for what ends this run from outside; for semel.tool only."""
        return self._steps().answer()

    def patched(self, name: str) -> bool:
        """
        Whether this run takes the new path at a change of the code; not awaited.

        True for runs that come here for the first time after the change, False for those that
        were past it. Ask in the handler itself, not in a task beside it.
        """
        return self._steps().patched(name)

    def undo(self, key: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Execute an undo as the step *key* of a compensating run; for the compensation only."""
        return self._steps().step(key, fn, args, kwargs, retry=None, undo=None, kind="undo")

    def _steps(self) -> Way:
        if self._way is None:
            if self._open is None:
                raise BadConfig("this run has no journal: it was not made by a worker")
            self._way = self._open()
        return self._way

    @classmethod
    def of(cls, claim: Claim, stops: list[bool], way: Callable[[], Way] | None = None) -> Run:
        """
        The run that *claim* leases, told to stop when *stops* is filled.

        Args:
            way: Opens its journal, when the handler asks for a step.

        Raises:
            UnreadableInput: Python cannot read the input, though PostgreSQL keeps it.
        """
        try:
            value = json.loads(claim.text)
        except (ValueError, RecursionError) as bad:
            raise UnreadableInput(f"the input cannot be read: {bad}"[:300]) from None
        return cls(
            id=claim.run_id,
            project=claim.project,
            agent=claim.agent,
            input=value,
            attempt=claim.attempt,
            worker=claim.worker,
            fence=claim.fence,
            event=EventRef(id=claim.event_id, source=claim.source) if claim.event_id else None,
            parent=claim.parent,
            _stops=stops,
            _open=way,
        )
