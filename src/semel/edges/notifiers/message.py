"""
Message: what a person is told of an approval, in words that fit where they are read.

The link is shown once, at the end, and never cut. Whatever the program wrote is cut and made
printable, so that it can neither hide the link nor look like another line of ours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from semel.core.approvals import Approval

TITLE_CHARS_MAX = 200
ACTION_CHARS_MAX = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One question to one person."""

    project: str
    approval_id: UUID
    run_id: UUID
    agent: str
    title: str
    action: Any
    digest: str
    need: int
    recipient: str
    created_at: datetime
    expires_at: datetime
    link: str = field(repr=False)

    @classmethod
    def of(cls, approval: Approval, *, recipient: str, link: str) -> Message:
        """What *recipient* is told of *approval*."""
        return cls(
            project=approval.project,
            approval_id=approval.approval_id,
            run_id=approval.run_id,
            agent=approval.agent or "",
            title=approval.title,
            action=approval.action,
            digest=approval.digest,
            need=approval.need,
            recipient=recipient,
            created_at=approval.created_at,
            expires_at=approval.expires_at,
            link=link,
        )

    @property
    def token(self) -> str:
        """The link's secret part: never to be quoted."""
        return self.link.rpartition("/")[2]

    def text(self) -> str:
        """For people: some 2,000 characters at most, besides the link."""
        people = "" if self.need == 1 else f", {self.need} people must"
        return "\n".join(
            [
                f"Approve? {_line(self.title, TITLE_CHARS_MAX)}",
                "",
                f"Agent: {self.agent} ({self.project})",
                f"Run: {self.run_id}",
                f"Action: {self.written()}",
                f"Until: {self.expires_at:%Y-%m-%d %H:%M:%S %Z}{people}",
                "",
                self.link,
            ]
        )

    def written(self) -> str:
        """The action as one line of JSON, cut to what can be read; the link shows all of it."""
        return _line(json.dumps(self.action, ensure_ascii=False), ACTION_CHARS_MAX)


def _line(text: str, chars_max: int) -> str:
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown if len(shown) <= chars_max else f"{shown[: chars_max - 1]}…"
