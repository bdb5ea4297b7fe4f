"""
Semel: work that happens exactly once and survives crashes, on PostgreSQL.

What a program imports; the rest of the package is public under its own path.
"""

from semel import journal
from semel.core.digest import input_digest
from semel.edges.once import once
from semel.edges.run_once import run_once
from semel.edges.tools.functions import LATER
from semel.errors import (
    ApprovalRejected,
    BadInput,
    ChildFailed,
    DoNotRetry,
    SemelError,
    StepFailed,
    ToolError,
    ToolNotCalled,
    ToolTimedOut,
    ToolUnknown,
    WaitTimedOut,
)
from semel.runtime.app import App
from semel.runtime.handlers import Backoff, Run
from semel.runtime.retry import Retry
from semel.runtime.say import signal
from semel.runtime.start import start, wake
from semel.runtime.start_many import Batch, start_many
from semel.runtime.way import Child, idempotency_key

__all__ = [
    "LATER",
    "App",
    "ApprovalRejected",
    "Backoff",
    "BadInput",
    "Batch",
    "Child",
    "ChildFailed",
    "DoNotRetry",
    "Retry",
    "Run",
    "SemelError",
    "StepFailed",
    "ToolError",
    "ToolNotCalled",
    "ToolTimedOut",
    "ToolUnknown",
    "WaitTimedOut",
    "idempotency_key",
    "input_digest",
    "journal",
    "once",
    "run_once",
    "signal",
    "start",
    "start_many",
    "wake",
]
