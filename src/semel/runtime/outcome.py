"""
Outcome: how an attempt ended, as a value.

The same whether the handler ran on the loop, in a thread or in a child process.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.core.text import dump
from semel.errors import (
    BadResult,
    DoNotRetry,
    HandlerFailed,
    NotifyFailed,
    SemelError,
    ToolDown,
    UndoFailed,
)
from semel.runtime.retry import final

if TYPE_CHECKING:
    from datetime import timedelta

#: A larger result is refused: keep it elsewhere and return where.
RESULT_BYTES_MAX = 1024 * 1024
#: Of a reason this much is kept.
REASON_CHARS_MAX = 4000


@dataclass(frozen=True, slots=True)
class Done:
    """The handler returned; its result as JSON text."""

    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed."""

    code: str
    reason: str
    retryable: bool = True
    after: timedelta | None = None  # not tried again sooner than this


@dataclass(frozen=True, slots=True)
class Stopped:
    """The attempt was told to stop, and did. Says nothing about the run."""


@dataclass(frozen=True, slots=True)
class Parked:
    """The run waits, and is nobody's; its handler was stopped."""


@dataclass(frozen=True, slots=True)
class Crashed:
    """The child process died under the handler."""

    reason: str


Outcome = Done | Failed | Parked | Stopped | Crashed

_NOTHING = Done("null")


def of_result(result: Any) -> Done | Failed:
    """The outcome of a handler that returned *result*."""
    if result is None:
        return _NOTHING
    try:
        text = dump(result)
    except (TypeError, ValueError, RecursionError) as bad:
        return Failed(
            BadResult.code, f"the result is no JSON: {bad}"[:REASON_CHARS_MAX], retryable=False
        )
    size = len(text.encode())
    if size > RESULT_BYTES_MAX:
        return Failed(
            BadResult.code,
            f"the result has {size} bytes; at most {RESULT_BYTES_MAX} can be stored",
            retryable=False,
        )
    return Done(text)


def of_error(error: BaseException) -> Failed:
    """The outcome of a handler that raised *error*: its type, message and last frames."""
    frames = "".join(traceback.format_tb(error.__traceback__)[-3:])
    said = "".join(traceback.format_exception_only(error)).strip()
    reason = f"{said}\n{frames}".strip().replace("\0", "\\0")
    clean = reason.encode("utf-8", "backslashreplace").decode()
    if final(error):
        code = error.code if isinstance(error, SemelError) else HandlerFailed.code
        return Failed(code, clean[:REASON_CHARS_MAX], retryable=False)
    # These are told in a sentence, without frames.
    if isinstance(error, UndoFailed | NotifyFailed | ToolDown):
        after = getattr(error, "retry_after", None)
        again = not isinstance(error.__cause__, DoNotRetry)  # an undo may say so too
        return Failed(error.code, str(error)[:REASON_CHARS_MAX], retryable=again, after=after)
    return Failed(HandlerFailed.code, clean[:REASON_CHARS_MAX])
