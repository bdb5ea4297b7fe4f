"""Two workers, a reaper and an operator at the same run, in every order of their transactions.

A call's transaction stays open until its actor's next move, so each call meets every other one
before it began, while it is uncommitted, and after it.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from fix_world import DEAD, LEASE, NOW, Conn, one, second, start_run
from modelling import TIMEOUT
from schedules import Calls, Did, Scene, Schedule, Work, every_schedule
from semel.core import claims, recovery, runs, steps, transitions, workers
from semel.core.call import Call
from semel.db.execute import run
from semel.model import Claim

FINAL = {"COMPLETED", "FAILED", "CANCELLED"}
EVERYWHERE = (*range(11), *range(100, 111))
LATER = second(40)  # when a worker of the scene has been silent for too long

pytestmark = pytest.mark.timeout(TIMEOUT)


def call(name: str, made: Call[Any]) -> tuple[str, Work]:
    return name, lambda conn: run(conn, made)


class Worker:
    """Claims, and then works with what it got, which only the schedule decides."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.held: list[Claim] = []

    def claim(self, limit: int = 1, at: Any = LATER) -> tuple[str, Work]:
        def go(conn: Conn) -> list[Claim]:
            claim = claims.run_claim(
                "p", "a", self.name, limit=limit, lease=LEASE, lanes=EVERYWHERE, now=at
            )
            self.held = run(conn, claim)
            return self.held

        return "claim", go

    def complete(self, at: Any = LATER) -> tuple[str, Work]:
        def go(conn: Conn) -> Any:
            ended = [(held.run_id, held.fence, "1") for held in self.held]
            return run(conn, runs.run_complete("p", self.name, ended, now=at))

        return "complete", go

    def beat(self, at: Any = LATER) -> tuple[str, Work]:
        def go(conn: Conn) -> Any:
            held = [(held.run_id, held.fence) for held in self.held]
            return run(conn, workers.run_beat("p", self.name, held, lease=LEASE, now=at))

        return "beat", go

    def release(self) -> tuple[str, Work]:
        def go(conn: Conn) -> Any:
            held = [(held.run_id, held.fence) for held in self.held]
            return run(conn, runs.run_release("p", self.name, held, now=LATER))

        return "release", go

    def fail(self) -> tuple[str, Work]:
        def go(conn: Conn) -> Any:
            [held] = self.held
            return run(conn, runs.run_fail(held, "E-RUN-006", "boom", now=LATER))

        return "fail", go

    def record(self) -> tuple[str, Work]:
        def go(conn: Conn) -> Any:
            [held] = self.held
            entry = steps.Entry("s", "result", content=f'"{self.name}"')
            return run(
                conn, steps.step_record("p", self.name, [(held.run_id, held.fence, entry)])
            )

        return "record", go


def holder(conn: Conn, name: str = "w1", limit: int = 1) -> Worker:
    """A worker that claimed at NOW."""
    worker = Worker(name)
    worker.claim(limit, NOW)[1](conn)
    assert len(worker.held) == limit
    return worker


def reap() -> tuple[str, Work]:
    return call("reap", recovery.run_reap("p", dead_after=DEAD, trust=True, now=LATER))


def cancel(run_id: UUID) -> tuple[str, Work]:
    return call("cancel", transitions.run_cancel("p", run_id, now=LATER))


def retry(run_id: UUID) -> tuple[str, Work]:
    return call("retry", transitions.run_retry("p", run_id, now=LATER))


# -- scenes: what is there, and who does what ------------------------------------------------


def completing_reaping_and_cancelling(conn: Conn) -> dict[str, Calls]:
    run_id = start_run(conn)
    worker = holder(conn)
    return {"w1": [worker.complete()], "reaper": [reap()], "operator": [cancel(run_id)]}


def two_claimers_and_a_reaper(conn: Conn) -> dict[str, Calls]:
    for _ in range(2):
        start_run(conn)
    holder(conn)
    one_, two = Worker("w2"), Worker("w3")
    return {"w2": [one_.claim(2), one_.complete()], "w3": [two.claim()], "reaper": [reap()]}


def a_zombie_and_the_next_owner(conn: Conn) -> dict[str, Calls]:
    start_run(conn)
    zombie, owner = holder(conn), Worker("w2")
    return {
        "w1": [zombie.complete()],
        "w2": [owner.claim(), owner.complete()],
        "reaper": [reap()],
    }


def releasing_beating_and_retrying(conn: Conn) -> dict[str, Calls]:
    run_id = start_run(conn)
    worker, other = holder(conn), Worker("w2")
    return {
        "w1": [worker.release()],
        "heart": [worker.beat()],
        "operator": [retry(run_id)],
        "w2": [other.claim()],
    }


def failing_cancelling_and_overdue(conn: Conn) -> dict[str, Calls]:
    run_id = start_run(conn, deadline=timedelta(minutes=1))
    worker = holder(conn)
    passed = one(conn, "select max(deadline_at) from semel.run")
    overdue = call("overdue", transitions.run_overdue("p", now=passed))
    return {"w1": [worker.fail()], "operator": [cancel(run_id)], "upkeep": [overdue]}


def two_retries_and_a_cancel(conn: Conn) -> dict[str, Calls]:
    run_id = start_run(conn)
    run(conn, transitions.run_cancel("p", run_id, now=NOW))
    return {
        "one": [retry(run_id)],
        "two": [retry(run_id)],
        "three": [cancel(run_id)],
    }


def a_retry_and_a_start_of_one_unique_key(conn: Conn) -> dict[str, Calls]:
    first = start_run(conn, unique="u")
    run(conn, transitions.run_cancel("p", first, now=NOW))
    start = call("start", runs.run_start("p", "a", None, unique="u"))
    return {"operator": [retry(first)], "one": [start], "two": [start]}


def the_last_slot_of_a_limit(conn: Conn) -> dict[str, Calls]:
    for _ in range(3):
        start_run(conn)
    run(
        conn,
        workers.worker_register(
            "p", "w", host="h", pid=1, slots=1, agents=[("a", 3, 2, "async")]
        ),
    )
    first = holder(conn)
    return {
        "w1": [first.complete()],
        "w2": [Worker("w2").claim(2)],
        "w3": [Worker("w3").claim(2)],
    }


def journaling_reaping_and_beating(conn: Conn) -> dict[str, Calls]:
    start_run(conn)
    worker, other = holder(conn), Worker("w2")
    return {
        "w1": [worker.record(), worker.complete()],
        "reaper": [reap()],
        "w2": [other.claim()],
    }


SCENES = [
    completing_reaping_and_cancelling,
    two_claimers_and_a_reaper,
    a_zombie_and_the_next_owner,
    releasing_beating_and_retrying,
    failing_cancelling_and_overdue,
    two_retries_and_a_cancel,
    a_retry_and_a_start_of_one_unique_key,
    the_last_slot_of_a_limit,
    journaling_reaping_and_beating,
]


# -- what holds in each ----------------------------------------------------------------------


def endings(done: Sequence[Did]) -> Counter[UUID]:
    """How often each run was told to be over."""
    over: Counter[UUID] = Counter()
    for did in done:
        match did.name:
            case "complete" | "fail":
                over.update(e.run_id for e in did.answer if e.outcome in {"won", "failed"})
            case "reap":
                over.update(r.run_id for r in did.answer if r.outcome == "failed")
            case "overdue":
                over.update(did.answer)
            case _:
                pass
    return over


def check(conn: Conn, schedule: Schedule, done: Sequence[Did], ended_before: int) -> None:
    told = [(did.actor, did.name, did.answer) for did in done]
    rows = conn.execute(
        "select run_id, status, attempt_count, fence, worker_id from semel.runs"
    ).fetchall()
    assert len(rows) == len({row[0] for row in rows}), (schedule, "a run is there twice", told)

    claims = [claim for did in done if did.name == "claim" for claim in did.answer]
    fences = [(claim.run_id, claim.fence) for claim in claims]
    assert len(set(fences)) == len(fences), (schedule, "one fence, two owners", told)

    over = endings(done)
    words = [did.answer[0] for did in done if did.name in {"cancel", "retry"}]
    ends = sum(over.values()) + sum(d.name == "cancel" and d.answer[0] == "won" for d in done)
    begins = sum(d.name == "retry" and d.answer[:2] == ("won", "CANCELLED") for d in done)
    assert "unknown" not in words, (schedule, "a run was lost from sight", told)

    final = [row for row in rows if row[1] in FINAL]
    assert ends - begins == len(final) - ended_before, (schedule, told, rows)

    completed = {
        e.run_id for d in done if d.name == "complete" for e in d.answer if e.outcome == "won"
    }
    for run_id, status, attempts, fence, worker in rows:
        own = [claim for claim in claims if claim.run_id == run_id]
        assert fence >= max((claim.fence for claim in own), default=0), (schedule, told)
        assert attempts >= max((claim.attempt for claim in own), default=0), (schedule, told)
        assert attempts <= 1 + len(own), (schedule, "an attempt nobody made", told)
        assert (status == "COMPLETED") == (run_id in completed), (schedule, told)
        assert (status == "RUNNING") == (worker is not None and status not in FINAL), schedule
    running = sum(row[1] == "RUNNING" for row in rows)
    limit = one(conn, "select coalesce(min(max_running), 99) from semel.agent")
    assert running <= limit, (schedule, "beyond the limit", told)
    twice = conn.execute(
        "select run_id, fence from semel.attempts group by 1, 2 having count(*) > 1"
    ).fetchall()
    assert [] == twice, (schedule, "one attempt ended twice", told)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_exactly_one_transition_wins_in_every_order(dsn: str, conn: Conn, scene: Scene) -> None:
    count = 0
    for schedule, done, ended_before in every_schedule(dsn, conn, scene, _ended):
        check(conn, schedule, done, ended_before)
        count += 1
    assert count >= 20


def _ended(conn: Conn) -> int:
    return int(one(conn, "select count(*) from semel.run_history"))
