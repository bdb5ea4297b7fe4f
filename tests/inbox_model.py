"""What accepting events must do, told a second time: in Python, on dicts, without a database.

Events by SPEC A1, A2 and A6; alerts by A4 and the table at the top of sql/functions/alerts.sql. An
answer is a verdict and the Known it speaks of, whose ids the test fills in when they are new.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from semel.model import Alert, Offer

MEMORY = timedelta(days=7)
STALE = timedelta(days=30)
GRACE = timedelta(seconds=120)
SAME_BYTES = timedelta(minutes=2)
SAME_START_NS = 60 * 10**9


@dataclass(eq=False)
class Known:
    """An event that is remembered."""

    digest: Any
    first_at: datetime
    last_at: datetime
    wants_run: bool
    hits: int = 1
    event_id: UUID | None = None
    run_id: UUID | None = None

    def again(self, now: datetime) -> None:
        self.hits += 1
        self.last_at = max(self.last_at, now)

    def forgotten(self, now: datetime) -> bool:
        return self.last_at + MEMORY <= now


@dataclass
class Fold:
    """What is known of one alert."""

    status: str
    starts_ns: int
    ends_ns: int
    changed_at: datetime
    seen_at: datetime
    seen_body: bytes
    late: bool = False
    event: Known | None = None
    run_of: Known | None = None  # the event whose run the episode has

    @property
    def run_id(self) -> UUID | None:
        return self.run_of.run_id if self.run_of else None


Answer = tuple[str, Known | None]
Change = tuple[str, str, str, Known | None]  # fingerprint, change, status, run of the episode


@dataclass
class InboxModel:
    events: dict[Hashable, Known] = field(default_factory=dict)
    folds: dict[str, Fold] = field(default_factory=dict)
    links: list[tuple[Known, Known]] = field(default_factory=list)
    deliveries: int = 0
    made: int = 0  # events so far, to name those without a name

    # -- events ----------------------------------------------------------------------------

    def accept(self, offers: Sequence[Offer], now: datetime) -> list[Answer]:
        self.deliveries += len(offers)
        return [self._offer(offer, now) for offer in offers]

    def _offer(self, offer: Offer, now: datetime) -> Answer:
        if offer.verdict:
            return offer.verdict, None
        key: Hashable = (offer.source, offer.id)
        if offer.id is None:
            self.made += 1
            key = self.made
        digest = (offer.agent, offer.input) if offer.compare else None
        return self._sight(key, digest, now, wants_run=offer.agent is not None)

    def start(self, key: str, agent: str, value: Any, now: datetime) -> Answer:
        return self._sight(("api", key), (agent, value), now, wants_run=True)

    def _sight(self, key: Hashable, digest: Any, now: datetime, *, wants_run: bool) -> Answer:
        known = self.events.get(key)
        if known is None or known.forgotten(now):
            self.events[key] = known = Known(digest, now, now, wants_run)
            return "new", known
        if known.digest is not None and known.digest != digest:
            return "conflict", known
        known.again(now)
        return "duplicate", known

    # -- alerts ----------------------------------------------------------------------------

    def alert(
        self, alerts: Sequence[Alert], body: bytes, now: datetime, *, both: bool, each: bool
    ) -> list[Answer]:
        changes: list[Change] = []
        still_open, late, same_bytes = False, False, True
        for alert in sorted(alerts, key=lambda a: a.fingerprint):
            fold = self.folds.get(alert.fingerprint)
            change = self._change(fold, alert, now)
            if fold:
                still_open |= fold.status == "firing"
                same_bytes &= fold.seen_body == body and now - fold.seen_at <= SAME_BYTES
            still_open |= change == "fired"
            late |= change == "late"
            if change and change != "late":
                changes.append(
                    (alert.fingerprint, change, alert.status, fold.run_of if fold else None)
                )
            self._fold(alert, change, body, now)
        if not changes:
            return [self._unchanged(alerts, now, late, still_open, same_bytes)]
        self.deliveries += len(changes) if each else 1
        groups = [[change] for change in changes] if each else [changes]
        return [("new", self._event(group, now, both=both)) for group in groups]

    @staticmethod
    def _change(  # noqa: PLR0911 - a table
        fold: Fold | None, alert: Alert, now: datetime
    ) -> str | None:
        if fold is None:
            return "fired" if alert.status == "firing" else "orphaned"
        later = alert.starts_ns - fold.starts_ns
        # A peer's copy of one episode, however its clock went.
        ended_at = max(fold.starts_ns, fold.ends_ns)
        same = abs(later) <= SAME_START_NS and alert.starts_ns <= ended_at
        match fold.status, alert.status:
            case "firing", "firing":
                return "superseded" if later > SAME_START_NS else None
            case "firing", _:
                return "resolved" if later >= -SAME_START_NS else None
            case _, "firing" if same:
                return "late" if now - fold.changed_at <= GRACE else "fired"
            case _, "firing":
                return "fired" if later > 0 else None
            case _:
                pass
        if not same:
            return "orphaned" if later > 0 else None
        if alert.ends_ns <= fold.ends_ns:
            return None
        if fold.ends_ns == 0:
            return "orphaned"
        return "confirmed" if fold.late else None

    def _fold(self, alert: Alert, change: str | None, body: bytes, now: datetime) -> None:
        fold = self.folds.get(alert.fingerprint)
        if fold is None:
            self.folds[alert.fingerprint] = Fold(
                alert.status, alert.starts_ns, alert.ends_ns, now, now, body
            )
        elif change == "late":
            fold.late |= now >= fold.changed_at or fold.run_id is None
            fold.seen_at, fold.seen_body = now, body
        elif change:
            merged = min(fold.starts_ns, alert.starts_ns)
            fold.starts_ns = merged if change == "resolved" else alert.starts_ns
            fold.status, fold.ends_ns, fold.late = alert.status, alert.ends_ns, False
            fold.changed_at = fold.seen_at = now
            fold.seen_body = body
        elif (
            fold.status == alert.status
            and abs(alert.starts_ns - fold.starts_ns) <= SAME_START_NS
        ):
            fold.seen_at, fold.seen_body = max(fold.seen_at, now), body
            fold.starts_ns = min(fold.starts_ns, alert.starts_ns)

    def _unchanged(
        self, alerts: Sequence[Alert], now: datetime, late: bool, still_open: bool, same: bool
    ) -> Answer:
        self.deliveries += 1
        names = sorted(alert.fingerprint for alert in alerts)
        names.sort(key=lambda name: self.folds[name].changed_at, reverse=True)
        last = self.folds[names[0]]
        if last.event in self.events.values() and last.event:
            last.event.again(now)
        known = Known(None, now, now, wants_run=False)
        known.event_id = last.event.event_id if last.event else None
        known.run_id = last.run_id
        if late:
            return "late", known
        return ("reminder" if still_open and not same else "duplicate"), known

    def _event(self, group: list[Change], now: datetime, *, both: bool) -> Known:
        wants_run = both or any(
            c in {"fired", "superseded", "confirmed"} for _, c, _, _ in group
        )
        self.made += 1
        event = self.events[self.made] = Known(None, now, now, wants_run)
        told = [run for _, _, _, run in group if run and run.run_id]
        if not wants_run and told:
            event.run_id = told[0].run_id
        for name, change, _, run in group:
            if change in {"resolved", "superseded"} and run and run.run_id:
                self.links.append((run, event))
            fold = self.folds[name]
            fold.event = event
            if not (change == "resolved" and not both):
                fold.run_of = event if wants_run else None
        return event

    # -- forgetting ------------------------------------------------------------------------

    def expire(self, now: datetime) -> int:
        kept_open = [fold.event for fold in self.folds.values() if fold.status == "firing"]
        gone = [
            key
            for key, known in self.events.items()
            if known.forgotten(now)
            and known.first_at + MEMORY <= now
            and known not in kept_open
        ]
        for key in gone:
            del self.events[key]
        self.folds = {
            name: fold
            for name, fold in self.folds.items()
            if fold.status == "firing" or fold.seen_at + MEMORY > now
        }
        return len(gone)

    def stale(self, now: datetime) -> int:
        closed = [
            fold
            for fold in self.folds.values()
            if fold.status == "firing" and fold.seen_at + STALE <= now
        ]
        for fold in closed:
            fold.status, fold.changed_at = "resolved", fold.seen_at
        return len(closed)
