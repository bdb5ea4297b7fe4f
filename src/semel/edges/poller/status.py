"""
Status: what a poller of this process is doing, for whoever shows it.

Plain values, written by the poller and read by `semel.ops.poll_metrics`. Nothing here decides.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

#: Of this process: it polls, another does, the server or the database keeps it from it.
Role = Literal["starting", "polling", "standby", "waiting", "away", "stopped"]
ROLES: tuple[Role, ...] = ("starting", "polling", "standby", "waiting", "away", "stopped")

#: How a question ended.
Outcome = Literal[
    "updates", "empty", "webhook", "conflict", "refused", "throttled", "failing", "lost"
]
OUTCOMES: tuple[Outcome, ...] = (
    "updates",
    "empty",
    "webhook",
    "conflict",
    "refused",
    "throttled",
    "failing",
    "lost",
)


@dataclass(slots=True, kw_only=True)
class Status:
    """Of one source."""

    project: str
    source: str
    role: Role = "starting"
    asked: Counter[str] = field(default_factory=Counter)  # questions, by Outcome
    updates: int = 0  # that this process committed
    missing: int | None = None  # ids that never came, as the database knew last
    restarts: int | None = None
    next_id: int | None = None
