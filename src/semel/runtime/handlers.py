"""
Handlers: which function works for which agent, and what it is handed.

A handler is `async def`, or `def` in a thread or a process of its own. It gets one Run and
returns JSON. What it raises ends the attempt, never the worker.
"""

from __future__ import annotations

import inspect
import json
import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from semel import log
from semel.errors import BadConfig, UnreadableInput

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from semel.model import Claim, Json

Executor = Literal["async", "thread", "process"]


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
    fence: int  # larger at each claim: pass it on to what can refuse an older one
    event: EventRef | None = None
    _stops: list[bool] = field(default_factory=list, repr=False)  # filled from any thread

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

    @classmethod
    def of(cls, claim: Claim, stops: list[bool]) -> Run:
        """
        The run that *claim* leases, told to stop when *stops* is filled.

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
            fence=claim.fence,
            event=EventRef(id=claim.event_id, source=claim.source) if claim.event_id else None,
            _stops=stops,
        )
