"""The run functions against a model of them: every answer predicted, every row compared.

Holds are kept for ever, so that zombies of every age write; the clock goes forwards and backwards
and stops exactly at every boundary, a microsecond before it and a microsecond after it.
"""

import json
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from fix_world import DEAD, LEASE, NOW, Conn
from modelling import LONG_AGO, TIMEOUT, Tally, empty, parts, rows, walk
from run_model import Hold, ModelRun, RunModel
from semel.core import agents, claims, recovery, runs, steps, transitions, workers
from semel.core.call import Call
from semel.db.execute import run
from semel.model import Claim

AGENTS = st.sampled_from(["a"] * 6 + ["b"])
WORKERS = st.sampled_from(["w1", "w2", "w3"])
SECONDS = st.sampled_from([0.05, 1, 1.000001, 10, 15, 15.000001, 30, 60, 150, 300, 7 * 86400.0])
ORDINARY, ALONE = tuple(range(11)), tuple(range(100, 111))
LANES = st.sampled_from([ORDINARY, ORDINARY, ORDINARY + ALONE, ORDINARY + ALONE, ALONE, (5, 1)])
#: What may happen, as often as it is named.
ACTS = {
    "start": 2,
    "claim": 7,
    "complete": 3,
    "fail": 4,
    "release": 2,
    "beat": 2,
    "journal": 1,
    "wait": 1,
    "reap": 3,
    "worker_lost": 1,
    "stop_worker": 1,
    "due": 2,
    "overdue": 1,
    "cancel": 1,
    "retry": 2,
    "pause": 1,
    "limit": 1,
    "time_passes": 1,
    "to_a_boundary": 4,
}
#: Just before a moment, at it, just after it.
EDGE = st.sampled_from([timedelta(microseconds=n) for n in (-1, 0, 1)])
WRITES = {"complete", "fail", "release", "beat", "journal", "wait"}
STRANGER = UUID(int=2**64)
SOME_MINUTE = st.sampled_from([None] * 5 + [timedelta(minutes=1)])


def named(claim: Claim) -> Hold:
    return claim.run_id, claim.fence


class RunMachine(RuleBasedStateMachine):
    def __init__(self, conn: Conn) -> None:
        super().__init__()
        self.conn = conn
        self.model = RunModel()
        self.now = NOW
        self.holds: list[Claim] = []  # every claim ever answered: zombies write too
        self.fences: dict[UUID, int] = {}
        empty(conn)

    def ask(self, call: Call[Any]) -> Any:
        return run(self.conn, call)

    def some_holds(self, data: st.DataObject, most: int) -> list[Claim]:
        """Holds of any age, the youngest first among equals."""
        lately = st.sampled_from(self.holds[:-6:-1])
        return data.draw(
            st.lists(
                lately | st.sampled_from(self.holds), max_size=most, min_size=1, unique_by=named
            )
        )

    @rule(
        data=st.data(),
        what=st.sampled_from([name for name, n in ACTS.items() for _ in range(n)]),
    )
    def act(self, data: st.DataObject, what: str) -> None:
        """One rule, so that no schedule goes without claims, or without its clock."""
        if self.holds or what not in WRITES:
            getattr(self, what)(data)

    # -- starting --------------------------------------------------------------------------

    @initialize()
    def a_bystander_in_another_project(self) -> None:
        """A run of another project, which nothing here may touch."""
        self.ask(runs.run_start("q", "a", None, unique="u"))
        self.conn.execute("update semel.run set ready_at = %s where project_id = 'q'", (NOW,))

    @initialize(data=st.data())
    def a_few_runs(self, data: st.DataObject) -> None:
        for _ in range(3):
            self.start(data)

    def start(self, data: st.DataObject) -> None:
        agent, value = data.draw(AGENTS), data.draw(st.sampled_from([1, 1, 2]))
        priority = data.draw(st.sampled_from([5, 5, 9, 0]))
        max_attempts = data.draw(st.sampled_from([None, None, 1, 2]))
        delay, deadline = data.draw(SOME_MINUTE), data.draw(SOME_MINUTE)
        key = data.draw(st.sampled_from([None, None, None, None, "k1", "k2"]))
        unique = data.draw(st.sampled_from([None, None, None, "u"]))
        outcome, expected = self.model.start_outcome(agent, value, key, unique, self.now)
        options: Any = {"priority": priority, "max_attempts": max_attempts, "key": key}
        options |= {"delay": delay, "deadline": deadline, "unique": unique, "now": self.now}
        started = self.ask(runs.run_start("p", agent, value, **options))
        assert outcome == started.outcome
        if outcome != "new":
            assert expected == started.run_id
            return
        # Its times and its id are always the server's; here they become the model's, so that
        # each schedule is the same each time.
        one = ModelRun(UUID(int=len(self.model.runs) + 1), agent, priority, lane=10 - priority)
        one.max_attempts, one.unique_key = max_attempts, unique
        one.ready_at = None if delay else self.now
        one.due_at = self.now + delay if delay else None
        one.deadline_at = self.now + deadline if deadline else None
        self.conn.execute(
            "update semel.run set run_id = %s, ready_at = %s, due_at = %s, deadline_at = %s"
            " where run_id = %s",
            (one.run_id, one.ready_at, one.due_at, one.deadline_at, started.run_id),
        )
        self.conn.execute(
            "update semel.dedupe set run_id = %s where run_id = %s",
            (one.run_id, started.run_id),
        )
        self.model.runs[one.run_id] = one
        if key:
            self.model.remember(key, one, value, self.now)

    # -- workers ---------------------------------------------------------------------------

    def claim(self, data: st.DataObject) -> None:
        agent, worker = data.draw(AGENTS), data.draw(WORKERS)
        limit, oldest = data.draw(st.integers(1, 3)), data.draw(st.booleans())
        lanes = data.draw(LANES)
        marked = data.draw(st.sampled_from([None] * 6 + [0, 0.1, 0.100001, 30]))
        marks = [] if marked is None else [self.first_ready(marked)] * len(lanes)
        waiting = self.model.claimable(agent, lanes, marks, oldest=oldest)
        expected = waiting[: max(0, self.model.allowance(agent, limit))]
        taken = self.ask(
            claims.run_claim(
                "p", agent, worker, limit=limit, lease=LEASE, lanes=lanes, marks=marks,
                oldest=oldest, now=self.now,
            )
        )  # fmt: skip
        assert [one.run_id for one in expected] == [claim.run_id for claim in taken]
        if taken:
            self.model.touch(worker, agent, self.now)
        for one, claim in zip(expected, taken, strict=True):
            self.model.claim(one, worker, self.now)
            counted = (claim.fence, claim.attempt, claim.max_attempts)
            assert (one.fence, one.attempt_count, one.max_attempts) == counted
            assert claim.fence > self.fences.get(claim.run_id, 0), "one fence, two owners"
            self.fences[claim.run_id] = claim.fence
        self.holds += taken

    def first_ready(self, ahead: float) -> datetime:
        ready = [one.ready_at for one in self.model.runs.values() if one.ready_at]
        return min(ready, default=self.now) + timedelta(seconds=ahead)

    def complete(self, data: st.DataObject) -> None:
        held = self.some_holds(data, 3)
        worker = data.draw(st.sampled_from([held[0].worker] * 3 + ["w1"]))
        expected = [self.model.complete(worker, named(claim)) for claim in held]
        ended = [(*named(claim), json.dumps("done")) for claim in held]
        answers = self.ask(runs.run_complete("p", worker, ended, now=self.now))
        assert expected == [answer.outcome for answer in answers]

    def fail(self, data: st.DataObject) -> None:
        [held] = self.some_holds(data, 1)
        delay, retryable = data.draw(
            st.sampled_from([(0, True), (0, True), (10, True), (0, False)])
        )
        how: Any = {"delay": timedelta(seconds=delay), "retryable": retryable}
        expected = self.model.fail(held.worker, named(held), self.now, **how)
        [answer] = self.ask(runs.run_fail(held, "E-RUN-006", "boom", now=self.now, **how))
        assert expected == answer.outcome

    def release(self, data: st.DataObject) -> None:
        held = self.some_holds(data, 3)
        worker = held[0].worker
        expected = [self.model.release(worker, named(claim), self.now) for claim in held]
        pairs = [named(claim) for claim in held]
        answers = self.ask(runs.run_release("p", worker, pairs, now=self.now))
        assert expected == [answer.outcome for answer in answers]

    def beat(self, data: st.DataObject) -> None:
        held = self.some_holds(data, 4)
        worker = data.draw(st.sampled_from([held[0].worker] * 3 + ["w1"]))
        pairs = [named(claim) for claim in held]
        expected = self.model.beat(worker, pairs, self.now)
        lost = self.ask(workers.run_beat("p", worker, pairs, lease=LEASE, now=self.now))
        assert sorted(expected) == sorted(lost)

    def journal(self, data: st.DataObject) -> None:
        [held] = self.some_holds(data, 1)
        owned = self.model.owned(held.worker, named(held))
        entry = steps.Entry("s", "error", content="1")
        record = steps.step_record("p", held.worker, [(*named(held), entry)])
        assert [("won" if owned else "lost", None)] == self.ask(record)

    def wait(self, data: st.DataObject) -> None:
        """A wait that was answered at once, which makes a run RESUMED."""
        [held] = self.some_holds(data, 1)
        one = self.model.owned(held.worker, named(held))
        if one is None:
            return
        one.back(self.now)
        one.status, one.lane = "RESUMED", 0
        self.conn.execute(
            "update semel.run set status = 'RESUMED', lane = 0, fence = fence + 1, ready_at = %s,"
            " worker_id = null, lease_until = null where run_id = %s",
            (self.now, held.run_id),
        )

    # -- recovery and upkeep ---------------------------------------------------------------

    def reap(self, data: st.DataObject) -> None:
        """Often just when a silent worker's time is up."""
        silent = [w.beat_at + DEAD for w in self.model.workers.values() if w.beat_at > LONG_AGO]
        chosen = data.draw(st.sampled_from([None, *silent]))
        if chosen:
            self.now = chosen + data.draw(EDGE)
        trust = data.draw(st.sampled_from([True, True, False]))
        expected = self.model.reap(self.now, trust=trust)
        found = self.ask(recovery.run_reap("p", dead_after=DEAD, trust=trust, now=self.now))
        assert expected == {(one.run_id, one.outcome) for one in found}

    def worker_lost(self, data: st.DataObject) -> None:
        worker = data.draw(WORKERS)
        expected = self.model.worker_lost(worker, self.now)
        found = self.ask(recovery.worker_lost("p", worker, now=self.now))
        assert expected == {(one.run_id, one.outcome) for one in found}

    def stop_worker(self, data: st.DataObject) -> None:
        worker = data.draw(WORKERS)
        self.conn.execute("select semel.worker_stop('p', %s, %s)", (worker, self.now))
        self.model.worker_stop(worker, self.now)

    def due(self, data: st.DataObject) -> None:
        agent = data.draw(st.none() | AGENTS)
        expected = self.model.due(self.now, agent)
        assert expected == self.ask(claims.run_due("p", agent, now=self.now))

    def overdue(self, data: st.DataObject) -> None:
        expected = self.model.overdue(self.now)
        assert expected == set(self.ask(transitions.run_overdue("p", now=self.now)))

    # -- operators -------------------------------------------------------------------------

    def some_run(self, data: st.DataObject) -> UUID:
        known = list(self.model.runs)
        return data.draw(st.sampled_from([*known, *known, STRANGER]))

    def cancel(self, data: st.DataObject) -> None:
        run_id = self.some_run(data)
        expected = self.model.cancel(run_id)
        assert expected == self.ask(transitions.run_cancel("p", run_id, now=self.now))

    def retry(self, data: st.DataObject) -> None:
        run_id = self.some_run(data)
        expected = self.model.retry(run_id, self.now)
        assert expected == self.ask(transitions.run_retry("p", run_id, now=self.now))[:2]

    def pause(self, data: st.DataObject) -> None:
        """Or resume, when it is paused already or so it falls."""
        agent = data.draw(AGENTS)
        known = agent in self.model.paused
        if known or data.draw(st.booleans()):
            self.model.paused.discard(agent)
            assert ("won" if known else "already") == self.ask(agents.agent_resume("p", agent))
        else:
            self.model.paused.add(agent)
            assert "won" == self.ask(agents.agent_pause("p", agent))
            assert "already" == self.ask(agents.agent_pause("p", agent))

    def limit(self, data: st.DataObject) -> None:
        agent, most = data.draw(AGENTS), data.draw(st.sampled_from([None, None, None, 1, 2]))
        project = data.draw(st.sampled_from([None] * 5 + [2]))
        self.conn.execute("select semel.project_limit('p', %s, %s)", (project, self.now))
        self.conn.execute(
            "insert into semel.agent (project_id, agent, max_attempts, executor, max_running)"
            " values ('p', %s, 3, 'async', %s)"
            " on conflict (project_id, agent) do update set max_running = excluded.max_running",
            (agent, most),
        )
        self.model.project_limit = project
        self.model.agent_limit.pop(agent, None)
        if most:
            self.model.agent_limit[agent] = most

    # -- the clock -------------------------------------------------------------------------

    def time_passes(self, data: st.DataObject) -> None:
        forth = data.draw(st.sampled_from([True, True, True, False]))
        seconds = data.draw(SECONDS)
        self.now += timedelta(seconds=seconds if forth else -seconds)

    def to_a_boundary(self, data: st.DataObject) -> None:
        """Exactly there, or a microsecond beside it."""
        edge = data.draw(EDGE)
        model = self.model
        moments: list[datetime | None] = [model.blind_until]
        for one in model.runs.values():
            if one.live:
                half = one.lease_until and one.lease_until - LEASE / 2
                moments += [one.due_at, one.deadline_at, one.lease_until, half]
        moments += [w.beat_at + DEAD for w in model.workers.values() if w.beat_at > LONG_AGO]
        moments += [model.swept_at and model.swept_at + timedelta(seconds=15)]
        moments += [key.seen + timedelta(days=7) for key in model.keys.values()]
        if known := [moment for moment in moments if moment]:
            self.now = data.draw(st.sampled_from(known)) + edge

    # -- what always holds -----------------------------------------------------------------

    @invariant()
    def the_database_agrees_with_the_model(self) -> None:
        found = rows(self.conn, _LIVE) + rows(self.conn, _ENDED)
        attempts = self.conn.execute(
            "select run_id, fence, worker_id, attempt, outcome from semel.attempt"
            " where project_id = 'p'"
        ).fetchall()
        workers = self.conn.execute(
            "select worker_id, greatest(beat_at, %s), agents, stopped_at from semel.worker",
            (LONG_AGO,),
        ).fetchall()
        project = self.conn.execute(
            "select swept_at, blind_until, leases_at from semel.project where project_id = 'p'"
        ).fetchone()
        assert len(found) == len(self.model.runs), "a run was lost, or is there twice"
        for row in found:
            one = self.model.runs[row["run_id"]]
            assert {name: getattr(one, name) for name in row} == row
        assert self.model.attempts == {(i, f): (w, n, o) for i, f, w, n, o in attempts}
        assert len(self.model.attempts) == len(attempts)
        assert {
            n: (w.beat_at, w.agents, w.stopped_at) for n, w in self.model.workers.items()
        } == {name: (beat, set(agents), stopped) for name, beat, agents, stopped in workers}
        swept = (self.model.swept_at, self.model.blind_until, self.model.leases_at)
        assert swept == (project or (None, None, None))

    @invariant()
    def the_other_project_is_untouched(self) -> None:
        other = "select ready_at from semel.run where project_id = 'q' and status = 'PENDING'"
        assert [(NOW,)] == self.conn.execute(other).fetchall()


_LIVE = """
select run_id, agent, status, attempt_count, max_attempts, release_count, fence, worker_id,
    failure_code, unique_key, deadline_at, lane, attempt_floor, released, lease_until, ready_at, due_at
from semel.run where project_id = 'p'
"""
_ENDED = """
select run_id, agent, status, attempt_count, max_attempts, release_count, fence, worker_id,
    failure_code, unique_key, deadline_at from semel.run_history where project_id = 'p'
"""


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("part", parts(2000))
def test_runs_do_what_the_model_says(conn: Conn, part: int, record_property: Tally) -> None:
    record_property("schedules", walk(partial(RunMachine, conn)))
