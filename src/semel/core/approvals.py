"""
Approvals: mint a link, show what it asks, decide.

One function here per function in sql/functions/approvals.sql that is called from outside. A link's
secret is 256 random bits; the database keeps its SHA-256 only.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from semel.core.call import Call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

Decision = Literal["approve", "reject"]

#: The columns of approval_read behind its first six.
_REST = (
    "digest",
    "state",
    "need",
    "approvals",
    "approvers",
    "requester",
    "recipient",
    "created_at",
    "expires_at",
    "decided_at",
    "decided_by",
    "reason",
    "seconds_left",
)

_TOKEN = re.compile(r"([a-z0-9][a-z0-9_-]{0,63})\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link's token: it names its project and carries a secret."""

    project: str
    secret: str

    @property
    def token(self) -> str:
        """What stands in the link. Never log it."""
        return f"{self.project}.{self.secret}"

    @property
    def hash(self) -> bytes:
        """What the database knows it by."""
        return hashlib.sha256(self.token.encode()).digest()

    @classmethod
    def mint(cls, project: str) -> Link:
        """A new one."""
        return cls(project=project, secret=secrets.token_urlsafe(32))

    @classmethod
    def read(cls, token: str) -> Link | None:
        """The link that *token* says, or None for what is no token."""
        found = _TOKEN.fullmatch(token)
        return cls(project=found[1], secret=found[2]) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A question, and what became of it so far."""

    project: str
    approval_id: UUID
    run_id: UUID
    agent: str | None
    step_key: str
    title: str
    action: Any
    digest: str
    state: Literal["PENDING", "APPROVED", "REJECTED", "EXPIRED", "VOID"]
    need: int
    approvals: int  # given so far
    approvers: list[str] | None
    requester: str | None
    recipient: str | None  # of the link it was read by
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    decided_by: list[str]
    reason: str | None
    seconds_left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What became of a decision."""

    approval_id: UUID | None
    run_id: UUID | None
    outcome: Literal["won", "voted", "already", "expired", "void", "refused", "unknown"]
    state: str | None
    decided_at: datetime | None
    agent: str | None


def approval_mint(
    project: str,
    worker: str,
    run_id: UUID,
    fence: int,
    *,
    approval_id: UUID,
    recipient: str,
    link: Link,
    now: datetime | None = None,
) -> Call[str]:
    """
    Keep a link's hash before it is sent; for the notification run that *worker* holds.

    Returns:
        won; gone (the question is decided, expired or void: send nothing); or lost.

    Source: sql/functions/approvals.sql, approval_mint.
    """
    return Call(
        "select semel.approval_mint(%s, %s, %s, %s, %s, %s, %s, %s)",
        (project, worker, run_id, fence, approval_id, recipient, link.hash, now),
        lambda rows: str(rows[0][0]),
    )


def approval_read(
    project: str,
    *,
    link: Link | None = None,
    approval_id: UUID | None = None,
    now: datetime | None = None,
) -> Call[Approval | None]:
    """
    What a link, or an id, asks; None when there is no such one.

    Source: sql/functions/approvals.sql, approval_read.
    """

    def read(rows: Sequence[Any]) -> Approval | None:
        if not rows:
            return None
        (id_, run_id, agent, key, title, action, *rest) = rows[0]
        return Approval(
            project=project,
            approval_id=id_,
            run_id=run_id,
            agent=agent,
            step_key=key,
            title=title,
            action=json.loads(action),
            **dict(zip(_REST, rest, strict=True)),
        )

    return Call(
        "select approval_id, run_id, agent, step_key, title, action, digest, state, need,"
        " approvals,"
        " approvers, requester, recipient, created_at, expires_at, decided_at, decided_by, reason,"
        " seconds_left from semel.approval_read(%s, %s, %s, %s)",
        (project, link.hash if link else None, approval_id, now),
        read,
    )


def approval_decide(
    project: str,
    decision: Decision,
    *,
    via: Literal["link", "api", "cli", "console"],
    link: Link | None = None,
    approval_id: UUID | None = None,
    voter: str | None = None,
    reason: str | None = None,
    address: str | None = None,
    user_agent: str | None = None,
    digest: str | None = None,
    now: datetime | None = None,
) -> Call[Decided]:
    """
    Decide, by a link or by an id.

    Args:
        voter: Who decides by the id; a link speaks for whom it was sent to.
        digest: What the voter saw; None decides on whatever is asked.

    Returns:
        Its outcome: won (decided, the run goes on), voted (more are needed), already (with the
        recorded state), expired, void, refused (may not decide it) or unknown.

    Source: sql/functions/approvals.sql, approval_decide.
    """
    return Call(
        "select approval_id, run_id, outcome, state, decided_at, agent"
        " from semel.approval_decide(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            project,
            link.hash if link else None,
            approval_id,
            decision,
            voter,
            via,
            reason,
            address,
            user_agent,
            digest,
            now,
        ),
        lambda rows: Decided(
            approval_id=rows[0][0],
            run_id=rows[0][1],
            outcome=rows[0][2],
            state=rows[0][3],
            decided_at=rows[0][4],
            agent=rows[0][5],
        ),
    )
