"""
Semel: work that happens exactly once and survives crashes, on PostgreSQL.

What a program imports; the rest of the package is public under its own path.
"""

from semel.errors import (
    ApprovalRejected,
    ChildFailed,
    DoNotRetry,
    SemelError,
    StepFailed,
    WaitTimedOut,
)
from semel.runtime.app import App
from semel.runtime.handlers import Backoff, Run
from semel.runtime.retry import Retry
from semel.runtime.say import signal
from semel.runtime.start import start, wake
from semel.runtime.way import Child, idempotency_key

__all__ = [
    "App",
    "ApprovalRejected",
    "Backoff",
    "Child",
    "ChildFailed",
    "DoNotRetry",
    "Retry",
    "Run",
    "SemelError",
    "StepFailed",
    "WaitTimedOut",
    "idempotency_key",
    "signal",
    "start",
    "wake",
]
