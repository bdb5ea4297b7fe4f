"""
Vocabulary: what a run, a claim, an event and their states are called.

The same words stand in SQL, JSON, logs and docs. Everything here is a frozen value; nothing
decides, nothing opens a connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, Union

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

Json: TypeAlias = Union[bool, int, float, str, "list[Json]", "dict[str, Json]", None]

#: Every state of a run. The last three are final.
RunStatus = Literal[
    "PENDING",
    "RUNNING",
    "WAITING_TOOL",
    "WAITING_APPROVAL",
    "RESUMED",
    "COMPLETED",
    "FAILED",
    "CANCELLED",
]

#: An agent's own work, a child that a run started, a message to a person, or an undoing.
RunKind = Literal["work", "child", "notify", "undo"]

#: What became of one delivery of an event.
Verdict = Literal[
    "new",
    "duplicate",
    "late",
    "reminder",
    "redelivery",
    "ignored",
    "quarantined",
    "conflict",
    "spooled",  # on an ingress's disk; its own verdict comes when it is drained
]

#: What became of a worker's write. `already`: this very write, sent again; it counts as won.
Outcome = Literal["won", "already", "retry", "failed", "lost"]

Role = Literal["viewer", "producer", "operator", "approver", "admin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An event as an ingress offers it to `event_accept`."""

    source: str
    channel: str
    id: str | None = None  # None: no identity, so always new
    agent: str | None = None  # None: recorded, no run
    input: Json = None
    priority: int = 5  # 0 (last) to 9 (first)
    delay: timedelta | None = None  # ready only after this, from now
    deadline: timedelta | None = None  # failed when it has not ended by then, from now
    unique: str | None = None  # one live run of the agent for it; another start finds that run
    correlation: str | None = None  # of one key, and a joining agent: told to its live run
    concurrency_key: str | None = None  # no more of its runs at once than the agent allows
    compare: bool = False  # the same id with other (agent, input), and no more, is a conflict
    kind: str | None = (
        None  # the event's type, as its channel tells it: routes ask, nothing keeps
    )
    content: str | None = None  # what was said, for an id nobody signed: said again, it is this
    window: timedelta | None = None  # so long after its last sighting; None: as long as an id
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)  # secrets already taken out
    verdict: Literal["quarantined", "ignored"] | None = None  # judged before it got here
    reason: str | None = None  # why, when it was judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert of an Alertmanager notification. Times are unix nanoseconds."""

    fingerprint: str
    status: Literal["firing", "resolved"]
    starts_ns: int
    ends_ns: int  # 0 while firing
    alert: dict[str, Json]  # as it came


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An Alertmanager notification as an ingress offers it to `notification_fold`."""

    source: str
    agent: str | None  # None: folded, and no run
    envelope: dict[str, Json]  # the notification without its alerts
    alerts: list[Alert]  # of each fingerprint one
    body: bytes
    headers: dict[str, str]  # secrets already taken out
    grace: timedelta  # a firing this soon after its resolution may be a late copy
    run_on: Literal["firing", "firing+resolved"] = "firing"
    unit: Literal["notification", "alert"] = "notification"
    priority: int = 5
    reminder: timedelta | None = None  # so long after its last event it is one again


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What became of one offered event. Final: it was committed with its run."""

    verdict: Verdict
    event_id: UUID | None
    run_id: UUID | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What `semel.start` did. run_id is the first run's when the key was seen before."""

    run_id: UUID
    event_id: UUID | None
    outcome: Literal["new", "duplicate", "conflict", "exists", "replaced"]


@dataclass(slots=True, kw_only=True, eq=False)  # not frozen: that would double its making
class Claim:
    """A leased run. (project, run_id, fence, worker) is what every later write must show."""

    project: str
    worker: str
    agent: str
    run_id: UUID
    fence: int
    attempt: int  # 1 for the first start
    max_attempts: int
    text: str  # the input as JSON text: decoded where a bad one fails only its own run
    source: str | None
    event_id: UUID | None
    priority: int
    lane: int  # where it waited
    ready_at: datetime  # since when
    kind: str = "work"  # or undo, notify, child
    parent: UUID | None = None  # the run it belongs to
    journal: str | None = None  # its steps so far as JSON text, see sql/functions/claims.sql
    version: str = ""  # of the code that had begun it before this claim; '': of none


#: Lanes from here on, below the next, hold runs whose concurrency key was full: they go ahead of
#: those of their priority.
FREED_LANE = 20
#: Lanes from here on hold suspects: runs whose last worker was lost, to be executed alone.
ALONE_LANE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """Where runs waited a moment ago."""

    project: str
    agent: str
    lane: int | None  # None: due, and not yet ready
    ready_at: datetime  # of the first run there
    version: str = ""  # of the code that began them; '': of none
    rate_wait: timedelta | None = (
        None  # how long the agent's rate leaves no claim; None: it does
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What became of a worker's write on one run."""

    run_id: UUID
    outcome: Outcome

    @property
    def won(self) -> bool:
        """Whether the write stands."""
        return self.outcome != "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """One run that a sweep took from a lost worker."""

    run_id: UUID
    worker: str
    outcome: Literal["pending", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a bearer token allows."""

    token_id: UUID
    role: Role
    source: str | None


@dataclass(frozen=True, slots=True)
class DigestKey:
    """A key that digests are made with. repr never shows it."""

    kid: str  # its name, which stands in each digest
    secret: bytes = field(repr=False)
