"""
Retry: how often a step is tried, and how long is waited in between.

A step's tries are its own: they are not attempts of the run, whose next attempt begins them anew.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

from semel.errors import (
    ApprovalRejected,
    BadConfig,
    BadRequest,
    BadResult,
    BadStepResult,
    ChildFailed,
    DoNotRetry,
    JournalMismatch,
    NestedStep,
    SemelError,
    StepFailed,
    StepInParallel,
    ToolError,
    ToolNotCalled,
    ToolTimedOut,
    ToolUnknown,
    UnknownUndo,
    UnreadableInput,
    WaitTimedOut,
)

#: Errors that another try cannot mend: the same journal leads to the same end.
FINAL: tuple[type[SemelError], ...] = (
    ApprovalRejected,
    BadResult,
    BadStepResult,
    ChildFailed,
    DoNotRetry,
    JournalMismatch,
    NestedStep,
    StepFailed,
    StepInParallel,
    ToolError,
    ToolNotCalled,
    ToolTimedOut,
    ToolUnknown,
    UnknownUndo,
    UnreadableInput,
    WaitTimedOut,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """
    A step's own retries: the wait is base, doubled per try up to cap, of which half is chance.

    A wait longer than park_after frees the slot; a shorter one is slept in place.
    """

    attempts: int = 1
    base: timedelta = timedelta(seconds=1)
    cap: timedelta = timedelta(minutes=5)
    park_after: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int):
            raise BadConfig(f"retry: attempts is {self.attempts!r}; write a number")
        if self.attempts < 1:
            raise BadConfig(f"retry: attempts is {self.attempts}; write 1 or more")

    def delay(self, tries: int) -> timedelta:
        """The wait after *tries* have failed, the first being 1."""
        whole = min(self.cap, self.base * (1 << min(tries - 1, 30)))
        return timedelta(seconds=whole.total_seconds() * (0.5 + random.random() / 2))  # noqa: S311 - jitter

    @classmethod
    def of(cls, told: Retry | int | None) -> Retry:
        """*told*, or that many attempts, or one."""
        return told if isinstance(told, Retry) else cls(attempts=1 if told is None else told)


def final(error: BaseException) -> bool:
    """Whether no other try can help."""
    if isinstance(error, BadConfig | BadRequest):
        return not error.retryable  # a fault of the program's, unless it is said too often
    return isinstance(error, FINAL)
