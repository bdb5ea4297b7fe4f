"""What durable runs must do, told a second time: in Python, on dicts, without a database.

Beside `run_model`, which knows claims and attempts: journals, waits, signals, approvals, children
and compensations. It is written from SPEC B8-B12 and the states' diagram, not from the SQL.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from durable_records import ModelApproval, ModelSignal, ModelWait
from fix_world import DEAD, NOW
from run_model import Hold, ModelRun, RunModel

WAITING = ("WAITING_TOOL", "WAITING_APPROVAL")
UNDO_ATTEMPTS = 10

Line = tuple[str, str, str, Any]  # key, entry, kind, and what matters of its content


def undo_of(run_id: UUID) -> UUID:
    """As old as the run, and never another."""
    digest = sha256(b"undo" + run_id.bytes).digest()
    made = bytearray(run_id.bytes[:6] + digest[:10])
    made[6] = 0x70 | digest[0] % 16
    made[8] = 0x80 | digest[2] % 64
    return UUID(bytes=bytes(made))


@dataclass(kw_only=True)
class Life(ModelRun):
    """One run with its journal and what it waits for."""

    world: "DurableModel"
    kind: str = "work"
    parent: UUID | None = None
    journal: list[Line] = field(default_factory=list)
    waits: dict[str, ModelWait] = field(default_factory=dict)
    signals: list[ModelSignal] = field(default_factory=list)
    undo: str | None = None

    def end(self, status: str, code: str | None) -> None:
        at_work = self.status == "RUNNING"
        super().end(status, code)
        self.world.ended(self, at_work=at_work)

    @property
    def intents(self) -> list[str]:
        """The keys of what it promised to undo, in the order of the first promises."""
        return list(dict.fromkeys(key for key, entry, *_ in self.journal if entry == "intent"))

    def result(self, key: str) -> Line | None:
        return next((x for x in self.journal if x[0] == key and x[1] == "result"), None)

    def put(self, key: str, entry: str, kind: str, content: Any) -> bool:
        """Append to the journal; a second result of a step does not stand."""
        if entry == "result" and self.result(key):
            return False
        self.journal.append((key, entry, kind, content))
        return True

    def resume(self, now: datetime) -> None:
        if self.status in WAITING:
            self.status, self.lane = "RESUMED", 0
            self.fence += 1
            self.ready_at, self.due_at = now, None

    def first_due(self) -> datetime | None:
        return min((w.due_at for w in self.waits.values() if w.due_at), default=None)


class DurableModel(RunModel):
    """One project with runs that wait for each other and are undone."""

    runs: dict[UUID, Life]  # type: ignore[assignment]  # all of them are

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.approvals: dict[UUID, ModelApproval] = {}
        self.notices: list[UUID] = []  # of approvals that a notification is due for
        self._patient = False  # whether a handler may still be at work
        self._batch: list[Life] | None = None

    # -- ending ----------------------------------------------------------------------------

    def ended(self, one: Life, *, at_work: bool) -> None:
        """Its waits and questions end with it, it is undone, and its parent is told."""
        one.waits.clear()
        for approval in self.approvals.values():
            if approval.run_id == one.run_id and approval.state == "PENDING":
                approval.state = "VOID"
        if one.status != "COMPLETED" and one.intents:
            one.undo = "held" if one.failure_code == "E-STEP-001" else "started"
            if one.undo == "started":
                self._undo(one, self.now + DEAD if at_work and self._patient else self.now)
        if self._batch is None:
            self._tell_parent(one)
        else:
            self._batch.append(one)

    def _undo(self, one: Life, ready: datetime) -> None:
        later = ready > self.now
        made = Life(
            undo_of(one.run_id), one.agent, 9, world=self, kind="undo", parent=one.run_id,
            lane=1, max_attempts=UNDO_ATTEMPTS,
            ready_at=None if later else self.now, due_at=ready if later else None,
        )  # fmt: skip
        assert made.run_id not in self.runs, "two compensations of one run"
        self.runs[made.run_id] = made

    def _tell_parent(self, one: Life) -> None:
        parent = self.runs.get(one.parent) if one.parent and one.kind == "child" else None
        if parent and parent.live:
            mine = [key for key, wait in parent.waits.items() if wait.child == one.run_id]
            if self.look_all(parent, mine):
                parent.resume(self.now)

    def complete_all(self, worker: str, holds: Sequence[Hold]) -> list[str]:
        """All of them are over before any parent is told."""
        self._batch = []
        outcomes = [self.complete(worker, hold) for hold in holds]
        told, self._batch = self._batch, None
        for one in told:
            self._tell_parent(one)
        return outcomes

    def give_up(self, worker: str, hold: Hold, code: str) -> str:
        """A failure that is not tried again."""
        one = self.owned(worker, hold)
        if not one:
            mine = self.attempts.get(hold, ("", 0, ""))
            return "already" if (mine[0], mine[2]) == (worker, "failed") else "lost"
        self.note(one, "failed")
        one.end("FAILED", code)
        return "failed"

    def cancel(self, run_id: UUID) -> tuple[str, str | None]:
        self._patient = True
        told = super().cancel(run_id)
        self._patient = False
        return told

    def overdue(self, now: datetime) -> set[UUID]:
        late = [
            r for r in self.runs.values() if r.live and r.deadline_at and r.deadline_at <= now
        ]
        self._patient = True
        for one in sorted(late, key=lambda one: one.run_id):
            if one.status == "RUNNING":
                self.note(one, "ended")
            one.end("FAILED", "E-RUN-004")
        self._patient = False
        return {one.run_id for one in late}

    # -- the worker's side -----------------------------------------------------------------

    def record(self, worker: str, lines: Iterable[tuple[Hold, Line]]) -> list[str]:
        outcomes = []
        for hold, line in lines:
            one = self.owned(worker, hold)
            if not one:
                outcomes.append("lost")
            else:
                assert isinstance(one, Life)
                outcomes.append("won" if one.put(*line) else "already")
                if line[1] == "caught":
                    self._give_up(one, line[0])
        return outcomes

    def _give_up(self, one: Life, key: str) -> None:
        """What its handler went on without is waited for no more."""
        one.waits.pop(key, None)
        for approval in self.approvals.values():
            if (approval.run_id, approval.key, approval.state) == (one.run_id, key, "PENDING"):
                approval.state = "VOID"

    def spawn(self, worker: str, hold: Hold, key: str, child: UUID) -> str:
        one = self.owned(worker, hold)
        if not one:
            return "lost"
        assert isinstance(one, Life)
        if one.result(key):
            return "already"
        one.put(key, "result", "spawn", str(child))
        self.runs[child] = Life(
            child, "a", 5, world=self, kind="child", parent=one.run_id, ready_at=self.now
        )
        return "won"

    def park(
        self, worker: str, hold: Hold, waits: Sequence[tuple[str, ModelWait, Any]]
    ) -> list[tuple[str, str]]:
        """*waits*: key, wait, and for an approval its id and what it asks."""
        one = self.owned(worker, hold)
        if not one:
            return [(key, "lost") for key, _, _ in waits]
        assert isinstance(one, Life)
        ready = set()
        for key, wait, question in waits:
            if one.result(key):
                ready.add(key)  # answered while the run was back for another wait
            else:
                one.waits.setdefault(key, wait)
                if question:
                    self._ask(one, key, *question)
                self.look(one, key)
                if key not in one.waits:
                    ready.add(key)
        if ready:
            return [(key, "ready" if key in ready else "pending") for key, _, _ in waits]
        self.note(one, "parked")
        one.status = WAITING[any(wait.kind == "approval" for wait in one.waits.values())]
        one.fence += 1
        one.worker_id = one.lease_until = None
        one.due_at = one.first_due()
        return [(key, "parked") for key, _, _ in waits]

    def _ask(self, one: Life, key: str, name: UUID, asked: ModelApproval) -> None:
        for old in self.approvals.values():
            if (old.run_id, old.key, old.state) == (one.run_id, key, "PENDING"):
                if old.digest == asked.digest:
                    return
                old.state = "VOID"
                one.waits[key].due_at = asked.expires_at
        self.approvals[name] = asked
        self.notices.append(name)

    def look_all(self, one: Life, keys: Iterable[str]) -> bool:
        """Look at each of them; answers whether any is over."""
        return sum(self.look(one, key) for key in sorted(keys)) > 0

    def look(self, one: Life, key: str) -> bool:
        """Whether a wait is over; then its answer is in the journal, and the wait gone."""
        wait = one.waits[key]
        over = wait.due_at is not None and wait.due_at <= self.now
        answer: Any = "timed_out" if over else None
        heard = next((s for s in one.signals if s.name == wait.name and not s.taken_by), None)
        child = self.runs.get(wait.child) if wait.child else None
        if wait.kind == "signal" and heard:
            heard.taken_by = key
            answer = heard.content
        elif wait.kind == "child" and not (child and child.live):
            answer = child.status if child else "GONE"
        elif wait.kind == "approval" or (wait.kind in {"sleep", "retry"} and not over):
            return False
        if wait.kind in {"signal", "child"} and answer is None:
            return False
        if wait.kind != "retry":
            one.put(key, "result", wait.kind, None if wait.kind == "sleep" else answer)
        del one.waits[key]
        return True

    # -- from outside ----------------------------------------------------------------------

    def say(
        self, run_id: UUID, name: str, content: int, key: str | None
    ) -> tuple[str, str | None]:
        one = self.runs.get(run_id)
        if not one:
            return "unknown", None
        if not one.live:
            return "refused", one.status
        was = one.status
        if key and any((s.name, s.key) == (name, key) for s in one.signals):
            return "duplicate", was
        one.signals.append(ModelSignal(name, content, key))
        waiting = sorted(
            (wait.created_at, at) for at, wait in one.waits.items() if wait.name == name
        )
        if waiting and was in WAITING and self.look(one, waiting[0][1]):
            one.resume(self.now)
        return "won", was

    def decide(
        self, name: UUID, word: str, voter: str, digest: str | None
    ) -> tuple[str, str | None]:
        asked = self.approvals.get(name)
        if not asked:
            return "unknown", None
        if refusal := asked.refusal(voter, digest, self.now):
            return refusal, asked.state
        if word == "reject" or voter not in asked.votes:
            asked.votes[voter] = word
        if word == "reject":
            asked.state = "REJECTED"
        elif len(asked.votes) >= asked.need:
            asked.state = "APPROVED"
        else:
            return "voted", "PENDING"
        one = self.runs[asked.run_id]
        one.put(asked.key, "result", "approval", word)
        one.waits.pop(asked.key, None)
        one.resume(self.now)
        return "won", asked.state

    def due(self, now: datetime, agent: str | None) -> int:
        begun = [
            r for r in self.runs.values() if r.status not in WAITING and self._is_due(r, agent)
        ]
        for one in begun:
            one.ready_at, one.due_at = now, None
        waiting = [
            r for r in self.runs.values() if r.status in WAITING and self._is_due(r, agent)
        ]
        moved = 0
        for one in sorted(waiting, key=lambda one: one.run_id):
            if one.status in WAITING:  # a child's end may have resumed it
                moved += self._wake(one)
        return len(begun) + moved

    def _is_due(self, one: Life, agent: str | None) -> bool:
        return bool(one.due_at and one.due_at <= self.now and agent in (None, one.agent))

    def _wake(self, one: Life) -> bool:
        expired = [
            (asked.expires_at, approval_id)
            for approval_id, asked in self.approvals.items()
            if asked.run_id == one.run_id
            and asked.state == "PENDING"
            and asked.expires_at <= self.now
        ]
        if expired:
            self.approvals[min(expired)[1]].state = "EXPIRED"
            one.end("FAILED", "E-APPROVAL-002")  # and with it all else that it asks
            return True
        late = [k for k, w in one.waits.items() if w.due_at and w.due_at <= self.now]
        if self.look_all(one, late):
            one.resume(self.now)
            return True
        one.due_at = one.first_due()
        return False

    # -- the operator's side ---------------------------------------------------------------

    def retry(self, run_id: UUID, now: datetime) -> tuple[str, str | None]:
        one = self.runs.get(run_id)
        if one and one.undo == "started":
            return "new", one.status
        if (
            one
            and one.status == "PENDING"
            and one.kind == "undo"
            and one.due_at
            and not one.fence
        ):
            return "refused", one.status
        told = super().retry(run_id, now)
        if one and told[0] == "won":
            one.undo = None
        return told

    def anew(self, old: UUID, fresh: UUID) -> None:
        """A compensated run begins again, as another."""
        one = self.runs[old]
        self.runs[fresh] = Life(
            fresh, one.agent, one.priority, world=self, kind=one.kind, parent=one.parent,
            lane=10 - one.priority, max_attempts=one.max_attempts, ready_at=self.now,
        )  # fmt: skip

    def compensate(self, run_id: UUID) -> tuple[str, str | None]:
        one = self.runs.get(run_id)
        if not one:
            return "unknown", None
        if one.undo == "held":
            one.undo = "started"
            self._undo(one, self.now)
            return "won", one.status
        return "already" if one.undo else "refused", one.status

    def skip(self, run_id: UUID, key: str) -> str:
        undo = self.runs.get(undo_of(run_id))
        if not undo:
            return "unknown"
        if key not in self.runs[run_id].intents:
            return "refused"
        return "won" if undo.put(key, "result", "skip", "skipped") else "already"

    def stopped(self, worker: str, run_ids: Iterable[UUID]) -> set[UUID]:
        found = set()
        for run_id in run_ids:
            one, undo = self.runs.get(run_id), self.runs.get(undo_of(run_id))
            if one and undo and undo.due_at and undo.fence == 0 and one.worker_id == worker:
                undo.ready_at, undo.due_at = self.now, None
                found.add(undo.run_id)
        return found

    def plan(self, run_id: UUID) -> list[tuple[str, bool, bool]]:
        """What is to undo: key, whether its step had answered, whether it is undone."""
        one, undo = self.runs[run_id], self.runs.get(undo_of(run_id))
        return [
            (key, bool(one.result(key)), bool(undo and undo.result(key)))
            for key in reversed(one.intents)
        ]


def later(now: datetime, seconds: float | None) -> datetime | None:
    """*now* and some seconds; None stays None."""
    return None if seconds is None else now + timedelta(seconds=seconds)
