"""What a ledger must do, told a second time: in Python, on dicts, without a database.

Rows are what is committed; an execution that is open is kept beside them, with the row as it was
before. SPEC C1 to C6.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from semel.core.operations import Identity, Reply

SILENT = timedelta(seconds=30)


@dataclass(frozen=True)
class Row:
    """What is committed under a key."""

    status: str
    attempts: int
    what: str
    who: str | None
    payload: Any
    reply: Reply | None = None
    gone: bool = False
    error: str | None = None
    holder: Any = None  # of recorded mode
    xid: str | None = None
    target: str = "API"


@dataclass(frozen=True)
class Open:
    """An execution whose transaction is open, or whose end its caller has not heard of."""

    key: str
    request: Identity
    attempt: int
    xid: str

    def row(self, before: Row | None, **more: Any) -> Row:
        """Its row, in some state."""
        payload = before.payload if before and before.payload else self.request.envelopes[0]
        return Row(
            attempts=self.attempt,
            what=self.request.event_type,
            who=self.request.actor,
            payload=payload,
            xid=self.xid,
            **more,
        )


@dataclass
class LedgerModel:
    rows: dict[str, Row] = field(default_factory=dict)
    open: dict[str, Open] = field(default_factory=dict)  # by key
    beats: dict[Any, datetime] = field(default_factory=dict)

    def meets(self, request: Identity, now: datetime) -> str:
        """The outcome of a request that waits for nobody."""
        key = request.request_id
        row = self.rows.get(key)
        told = self.judged(row, request, now) if row else "claimed"
        return "in_flight" if told == "claimed" and key in self.open else told

    def judged(self, row: Row, request: Identity, now: datetime) -> str:
        same = [
            e
            for e in request.envelopes
            if row.payload and e["version"] == row.payload["version"]
        ]
        strange = {
            "foreign": row.target != "API",
            "procedure": row.what != request.event_type,
            "actor": row.who != request.actor,
            "version": row.payload and not same,
            "mismatch": row.payload and row.payload not in same,
        }
        return next((word for word, is_so in strange.items() if is_so), self.allows(row, now))

    def allows(self, row: Row, now: datetime) -> str:
        """What the row's state says to its own request."""
        beat = self.beats.get(row.holder)
        match row.status, row.payload:
            case "PROCESSING", _:
                return "in_flight" if beat and now - beat < SILENT else "unknown"
            case "FAILED", None:
                return "legacy" if row.reply else "claimed"
            case _, None:
                return "legacy"
            case "SUCCEEDED", _:
                return "replay" if row.reply and not row.gone else "gone"
            case _:
                return "claimed"

    def recovered(self, lost: Open, fate: str, error: str, now: datetime) -> str:
        """What a recorder answers, and writes, where no execution of the key is open."""
        row = self.rows.get(lost.key)
        if row is None:
            if fate == "committed":
                return "other"
            self.rows[lost.key] = lost.row(None, status="FAILED", error=error)
            return "recorded"
        told = self.judged(row, lost.request, now)
        if told in {"replay", "gone"}:
            return "succeeded"
        if told == "claimed":
            if row.status == "FAILED" and (row.attempts, row.xid) == (lost.attempt, lost.xid):
                return "recorded"
            if row.attempts == lost.attempt - 1 and fate != "committed":
                self.rows[lost.key] = lost.row(row, status="FAILED", error=error)
                return "recorded"
        return "in_flight" if told == "in_flight" else "other"

    def beat(self, holder: Any, now: datetime) -> None:
        known = self.beats.get(holder)
        if known is None or known < now - timedelta(seconds=5):
            self.beats[holder] = now
