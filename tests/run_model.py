"""What the run functions must do, told a second time: in Python, on dicts, without a database.

It is written from SPEC B and the states' diagram, not from the SQL. Times are passed in; nothing
here opens a connection. `tests/model/test_run_machine.py` compares the two after every step.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fix_world import DEAD, LEASE
from modelling import LONG_AGO

MEMORY = timedelta(days=7)
DEFAULT_ATTEMPTS = 3
FREE_RELEASES = 10
SECOND = timedelta(seconds=1)
MARGIN = timedelta(milliseconds=100)
FINAL = ("COMPLETED", "FAILED", "CANCELLED")

Hold = tuple[UUID, int]  # a run and a fence


@dataclass
class ModelRun:
    """One run, live or finished."""

    run_id: UUID
    agent: str
    priority: int
    status: str = "PENDING"
    lane: int = 5
    attempt_count: int = 0
    attempt_floor: int = 0
    max_attempts: int | None = None
    release_count: int = 0
    released: bool = False
    fence: int = 0
    worker_id: str | None = None
    lease_until: datetime | None = None
    ready_at: datetime | None = None
    due_at: datetime | None = None
    deadline_at: datetime | None = None
    unique_key: str | None = None
    failure_code: str | None = None

    @property
    def live(self) -> bool:
        return self.status not in FINAL

    @property
    def tired(self) -> bool:
        assert self.max_attempts is not None
        return self.attempt_count - self.attempt_floor >= self.max_attempts

    def back(
        self, now: datetime, *, suspect: bool = False, delay: timedelta | None = None
    ) -> None:
        """To PENDING, out of reach of whoever held it."""
        self.status = "PENDING"
        self.lane = 10 - self.priority + (100 if suspect else 0)
        self.fence += 1
        self.worker_id = self.lease_until = None
        self.ready_at = None if delay else now
        self.due_at = now + delay if delay else None

    def end(self, status: str, code: str | None) -> None:
        self.status = status
        self.failure_code = code
        self.lease_until = self.ready_at = self.due_at = None


@dataclass
class ModelWorker:
    beat_at: datetime
    agents: set[str] = field(default_factory=set)
    stopped_at: datetime | None = None


@dataclass
class ModelKey:
    run_id: UUID
    value: tuple[str, Any]
    seen: datetime


class RunModel:
    """One project with its runs, workers, agents and keys."""

    def __init__(self) -> None:
        self.runs: dict[UUID, ModelRun] = {}
        self.workers: dict[str, ModelWorker] = {}
        self.attempts: dict[tuple[UUID, int], tuple[str, int, str]] = {}
        self.keys: dict[str, ModelKey] = {}
        self.paused: set[str] = set()
        self.agent_limit: dict[str, int] = {}
        self.project_limit: int | None = None
        self.swept_at: datetime | None = None
        self.blind_until: datetime | None = None
        self.leases_at: datetime | None = None

    # -- starting --------------------------------------------------------------------------

    def start_outcome(
        self, agent: str, value: Any, key: str | None, unique: str | None, now: datetime
    ) -> tuple[str, UUID | None]:
        """What a start must answer; None for a run of its own. A forgotten key is taken over."""
        known = self.keys.get(key) if key else None
        if known and known.seen + MEMORY > now:
            if known.value != (agent, value):
                return "conflict", known.run_id
            known.seen = max(known.seen, now)
            return "duplicate", known.run_id
        for one in self.runs.values():
            if unique and one.live and (one.agent, one.unique_key) == (agent, unique):
                if key:
                    self.keys.pop(key, None)
                return "exists", one.run_id
        return "new", None

    def remember(self, key: str, one: ModelRun, value: Any, now: datetime) -> None:
        self.keys[key] = ModelKey(one.run_id, (one.agent, value), now)

    # -- the worker's side -----------------------------------------------------------------

    def held(self, agent: str | None = None) -> list[ModelRun]:
        return [
            r for r in self.runs.values() if r.worker_id and r.live and agent in (None, r.agent)
        ]

    def allowance(self, agent: str, limit: int) -> int:
        if agent in self.paused:
            return 0
        if self.project_limit is not None:
            limit = min(limit, self.project_limit - len(self.held()))
        if agent in self.agent_limit:
            limit = min(limit, self.agent_limit[agent] - len(self.held(agent)))
        return limit

    def claimable(
        self,
        agent: str,
        lanes: Sequence[int],
        marks: Sequence[datetime | None],
        *,
        oldest: bool,
    ) -> list[ModelRun]:
        """Who is next, in order."""
        from_marks = [*marks, *[None] * (len(lanes) - len(marks))]
        queues = []
        for place, (lane, mark) in enumerate(zip(lanes, from_marks, strict=True)):
            waiting = sorted(
                (one.ready_at, one.run_id)
                for one in self.runs.values()
                if one.ready_at
                and (one.agent, one.lane) == (agent, lane)
                and (mark is None or one.ready_at >= mark - MARGIN)
            )
            if waiting:
                queues.append((waiting[0][0] if oldest else None, place, waiting))
        if oldest:
            queues.sort(key=lambda queue: (queue[0], queue[1]))
        return [self.runs[run_id] for _, _, waiting in queues for _, run_id in waiting]

    def claim(self, one: ModelRun, worker: str, now: datetime) -> None:
        free = one.status == "RESUMED" or (one.released and one.release_count <= FREE_RELEASES)
        one.attempt_count += not free
        one.max_attempts = one.max_attempts or DEFAULT_ATTEMPTS
        one.status, one.released, one.worker_id = "RUNNING", False, worker
        one.fence += 1
        one.lease_until = now + LEASE
        one.ready_at = one.due_at = None

    def touch(self, worker: str, agent: str | None, now: datetime) -> None:
        seen = self.workers.get(worker)
        fresh = seen and not seen.stopped_at and now - SECOND <= seen.beat_at <= now
        if seen and fresh and agent in seen.agents:
            return  # a claim's alone: a beat, which names no agent, is always written
        seen = self.workers.setdefault(worker, ModelWorker(now))
        seen.beat_at, seen.stopped_at = now, None
        seen.agents |= {agent} if agent else set()

    def owned(self, worker: str, hold: Hold) -> ModelRun | None:
        """The run of *hold* if *worker* may still write to it."""
        one = self.runs[hold[0]]
        owns = one.live and (one.fence, one.worker_id) == (hold[1], worker)
        return one if owns else None

    def complete(self, worker: str, hold: Hold) -> str:
        one = self.runs[hold[0]]
        if self.owned(worker, hold):
            one.end("COMPLETED", None)
            return "won"
        sent_again = one.status == "COMPLETED" and (one.fence, one.worker_id) == (
            hold[1],
            worker,
        )
        return "already" if sent_again else "lost"

    def fail(
        self, worker: str, hold: Hold, now: datetime, *, delay: timedelta, retryable: bool
    ) -> str:
        one = self.owned(worker, hold)
        if not one:
            mine = self.attempts.get(hold, ("", 0, ""))
            return "already" if (mine[0], mine[2]) == (worker, "failed") else "lost"
        self.note(one, "failed")
        if not retryable or one.tired:
            one.end("FAILED", "E-RUN-003" if retryable else "E-RUN-006")
            return "failed"
        one.back(now, delay=delay)
        one.failure_code = "E-RUN-006"
        return "retry"

    def release(self, worker: str, hold: Hold, now: datetime) -> str:
        one = self.owned(worker, hold)
        if not one:
            return "lost"
        self.note(one, "released")
        one.back(now, suspect=one.lane >= 100)
        one.released = True
        one.release_count += 1
        return "won"

    def beat(self, worker: str, holds: Iterable[Hold], now: datetime) -> list[Hold]:
        self.touch(worker, None, now)
        lost = []
        for hold in holds:
            one = self.owned(worker, hold)
            if not one:
                lost.append(hold)
            elif one.lease_until and one.lease_until < now + LEASE / 2:
                one.lease_until = now + LEASE
        return lost

    def note(self, one: ModelRun, outcome: str) -> None:
        """An attempt ends without completing its run; each fence can do so once."""
        assert (one.run_id, one.fence) not in self.attempts
        assert one.worker_id
        self.attempts[one.run_id, one.fence] = (one.worker_id, one.attempt_count, outcome)

    # -- recovery --------------------------------------------------------------------------

    def lose(
        self, suspects: Iterable[ModelRun], now: datetime, dead_after: timedelta
    ) -> set[tuple[UUID, str]]:
        found = set()
        for one in list(suspects):
            worker = self.workers.get(one.worker_id or "")
            silent = worker is not None and worker.beat_at < now - dead_after
            if not (silent or (one.lease_until and one.lease_until < now)):
                continue
            self.note(one, "lost")
            if one.tired:
                one.end("FAILED", "E-RUN-003")
            else:
                one.back(now, suspect=True)
                one.failure_code = "E-LEASE-001"
            found.add((one.run_id, "pending" if one.live else "failed"))
        return found

    def reap(self, now: datetime, *, trust: bool) -> set[tuple[UUID, str]]:
        late = self.swept_at is None or not now - 15 * SECOND <= self.swept_at <= now
        if late and not trust:
            self.blind_until = now + DEAD
            for worker in self.workers.values():
                worker.beat_at = min(worker.beat_at, now)
        elif self.blind_until:
            self.blind_until = min(self.blind_until, now + DEAD)
        self.swept_at = now
        if not trust and self.blind_until and self.blind_until > now:
            return set()
        dead = {
            name: worker
            for name, worker in self.workers.items()
            if not worker.stopped_at and worker.beat_at < now - DEAD
        }
        suspects = [r for r in self.held() if r.worker_id in dead]
        looked = self.leases_at and now - 60 * SECOND <= self.leases_at <= now
        if trust or not looked:
            self.leases_at = now
            suspects += [r for r in self.held() if r not in suspects]
        found = self.lose(suspects, now, DEAD)
        for worker in dead.values():
            worker.stopped_at = now
        return found

    def worker_stop(self, name: str, now: datetime) -> None:
        """What it still holds is given back."""
        if name in self.workers:
            for one in [r for r in self.held() if r.worker_id == name]:
                self.release(name, (one.run_id, one.fence), now)
            self.workers[name].stopped_at = now

    def worker_lost(self, name: str, now: datetime) -> set[tuple[UUID, str]]:
        worker = self.workers.get(name)
        if not worker:
            return set()
        worker.beat_at, worker.stopped_at = LONG_AGO, now
        return self.lose([r for r in self.held() if r.worker_id == name], now, timedelta(0))

    # -- the operator's side ---------------------------------------------------------------

    def cancel(self, run_id: UUID) -> tuple[str, str | None]:
        one = self.runs.get(run_id)
        if not one:
            return "unknown", None
        was = one.status
        if not one.live:
            return ("already" if was == "CANCELLED" else "refused"), was
        if one.worker_id:
            self.note(one, "ended")
        one.fence += 1
        one.end("CANCELLED", "E-RUN-005")
        return "won", was

    def retry(self, run_id: UUID, now: datetime) -> tuple[str, str | None]:
        one = self.runs.get(run_id)
        if not one:
            return "unknown", None
        was = one.status
        if one.status == "PENDING" and one.due_at:
            one.ready_at, one.due_at = now, None
            one.fence += 1
            return "won", was
        taken = one.unique_key and any(
            r.live and (r.agent, r.unique_key) == (one.agent, one.unique_key)
            for r in self.runs.values()
        )
        if one.live or was == "COMPLETED" or taken:
            return "refused", was
        one.back(now)
        one.attempt_floor = one.attempt_count
        one.released = False
        one.deadline_at = None
        return "won", was

    def due(self, now: datetime, agent: str | None) -> int:
        ready = [
            one
            for one in self.runs.values()
            if one.due_at and one.due_at <= now and agent in (None, one.agent)
        ]
        for one in ready:
            one.ready_at, one.due_at = now, None
        return len(ready)

    def overdue(self, now: datetime) -> set[UUID]:
        late = [
            r for r in self.runs.values() if r.live and r.deadline_at and r.deadline_at <= now
        ]
        for one in late:
            if one.worker_id:
                self.note(one, "ended")
            one.end("FAILED", "E-RUN-004")
        return {one.run_id for one in late}
