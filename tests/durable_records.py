"""What hangs on a durable run, in the model of them: waits, signals and approvals."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID


@dataclass
class ModelWait:
    kind: str
    due_at: datetime | None
    created_at: datetime
    name: str | None = None
    child: UUID | None = None


@dataclass
class ModelSignal:
    name: str
    content: int
    key: str | None
    taken_by: str | None = None


@dataclass
class ModelApproval:
    run_id: UUID
    key: str
    digest: str
    need: int
    approvers: tuple[str, ...] | None
    requester: str | None
    expires_at: datetime
    state: str = "PENDING"
    votes: dict[str, str] = field(default_factory=dict)

    def refusal(self, voter: str, digest: str | None, now: datetime) -> str | None:
        """Why this person decides nothing."""
        if self.state in {"APPROVED", "REJECTED"}:
            return "already"
        if self.state == "EXPIRED" or (self.state == "PENDING" and now >= self.expires_at):
            return "expired"
        if self.state == "VOID" or digest not in {None, self.digest}:
            return "void"
        if voter == self.requester or voter not in (self.approvers or (voter,)):
            return "refused"
        return None
