"""Letter: what a person would have been sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One notification of an approval."""

    recipient: str
    title: str
    action: Any  # JSON
    run_id: UUID
    approval_id: UUID
    token: str  # of its link, /approve/{token}
