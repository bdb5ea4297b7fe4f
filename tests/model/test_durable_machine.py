"""Durable runs against a model of them: every answer predicted, every row compared.

Holds are kept for ever, so that zombies of every age journal, park and spawn; the clock goes
forwards and backwards and stops exactly at every boundary, and a microsecond beside it.
"""

from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from durable_acts import EDGE, NAMES, SECONDS, STEPS, STRANGER, WORKERS, WorkerActs, gist
from durable_model import (
    Line,
    undo_of,
)
from fix_world import DEAD, Conn
from modelling import TIMEOUT, Tally, parts, rows, walk
from semel.core import approvals, claims, recovery, transitions, undo, waits

#: What may happen, as often as it is named; in brackets what there must be for it to matter.
ACTS = {
    "start": 1,
    "claim (ready)": 10,
    "claim_notice (notices)": 1,
    "journal (held)": 5,
    "park (held)": 9,
    "spawn (held)": 4,
    "complete (held)": 3,
    "fail (held)": 3,
    "give_up (held)": 3,
    "release (held)": 1,
    "zombie (holds)": 2,
    "say (hearing)": 6,
    "say": 1,
    "decide (asked)": 8,
    "decide": 1,
    "reap (held)": 1,
    "worker_lost (held)": 1,
    "due (timed)": 5,
    "overdue (deadlines)": 1,
    "cancel": 2,
    "retry (ended)": 4,
    "retry": 1,
    "compensate (held_back)": 4,
    "compensate": 1,
    "skip (undone)": 3,
    "stopped (undone)": 3,
    "plan (undone)": 1,
    "time_passes": 1,
    "to_a_boundary (timed)": 6,
}
WRITES = ("journal", "park", "spawn", "complete", "fail", "give_up", "release")


class DurableMachine(WorkerActs):
    def a_run(self, data: st.DataObject, *likely: UUID) -> UUID:
        anyone = st.sampled_from([*self.model.runs, STRANGER])
        wanted = st.sampled_from(likely or list(self.model.runs))
        drawn: UUID = data.draw(wanted | wanted | wanted | anyone)
        return drawn

    def there_is(self) -> dict[str, Any]:
        """What may matter now."""
        lives = self.model.runs.values()
        return {
            "held": self.at_work(),
            "holds": self.holds,
            "ready": [r for r in lives if r.ready_at and r.kind != "notify"],
            "notices": [r for r in lives if r.ready_at and r.kind == "notify"],
            "hearing": [r for r in lives if any(w.name for w in r.waits.values())],
            "asked": [i for i, a in self.model.approvals.items() if a.state == "PENDING"],
            "timed": [r for r in lives if r.due_at],
            "deadlines": [r for r in lives if r.live and r.deadline_at],
            "ended": [r for r in lives if r.status in {"FAILED", "CANCELLED"}],
            "held_back": [r for r in lives if r.undo == "held"],
            "undone": [r for r in lives if r.kind == "undo"],
        }

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """One rule, so that no schedule goes without claims, or without its clock."""
        self.model.now = self.now
        self.here = self.there_is()
        self.acting = self.here["held"]
        possible = {}
        for act, weight in ACTS.items():
            name, _, needs = act.rstrip(")").partition(" (")
            if not needs or self.here[needs]:
                possible[act] = (name, weight)
        names = [name for name, weight in possible.values() for _ in range(weight)]
        getattr(self, data.draw(st.sampled_from(names)))(data)

    def zombie(self, data: st.DataObject) -> None:
        """Whoever held a run once writes."""
        self.acting = self.holds
        getattr(self, data.draw(st.sampled_from(WRITES)))(data)

    @initialize(data=st.data())
    def runs_at_work(self, data: st.DataObject) -> None:
        for _ in range(3):
            self.start(data)
        for _ in range(2):
            self.claim(data)
        self.acting = self.at_work()
        self.journal(data)

    # -- from outside ----------------------------------------------------------------------

    def say(self, data: st.DataObject) -> None:
        run_id, name = (
            self.a_run(data, *[r.run_id for r in self.here["hearing"]]),
            data.draw(NAMES),
        )
        key = data.draw(st.sampled_from([None, None, "k"]))
        content = data.draw(st.integers(0, 9))
        expected = self.model.say(run_id, name, content, key)
        call = waits.signal_send("p", run_id, name, content, key=key, now=self.now)
        assert expected == self.ask(call)

    def decide(self, data: st.DataObject) -> None:
        about = data.draw(
            st.sampled_from(self.here["asked"] or [*self.model.approvals, STRANGER])
        )
        word: Any = data.draw(st.sampled_from(["approve", "approve", "reject"]))
        voter = data.draw(st.sampled_from(["ann", "bob", "cho"]))
        digest = data.draw(st.sampled_from([None, None, "d1"]))
        expected = self.model.decide(about, word, voter, digest)
        call = approvals.approval_decide(
            "p", word, via="cli", approval_id=about, voter=voter, digest=digest, now=self.now
        )
        decided = self.ask(call)
        assert expected == (decided.outcome, decided.state)

    # -- recovery and upkeep ---------------------------------------------------------------

    def reap(self, data: st.DataObject) -> None:
        expected = self.model.reap(self.now, trust=True)
        found = self.ask(recovery.run_reap("p", dead_after=DEAD, trust=True, now=self.now))
        assert expected == {(one.run_id, one.outcome) for one in found}

    def worker_lost(self, data: st.DataObject) -> None:
        worker = data.draw(WORKERS)
        expected = self.model.worker_lost(worker, self.now)
        found = self.ask(recovery.worker_lost("p", worker, now=self.now))
        assert expected == {(one.run_id, one.outcome) for one in found}

    def due(self, data: st.DataObject) -> None:
        agent = data.draw(st.sampled_from([None, None, "a"]))
        expected = self.model.due(self.now, agent)
        assert expected == self.ask(claims.run_due("p", agent, now=self.now))

    def overdue(self, data: st.DataObject) -> None:
        expected = self.model.overdue(self.now)
        assert expected == set(self.ask(transitions.run_overdue("p", now=self.now)))

    # -- operators -------------------------------------------------------------------------

    def cancel(self, data: st.DataObject) -> None:
        run_id = self.a_run(data)
        expected = self.model.cancel(run_id)
        assert expected == self.ask(transitions.run_cancel("p", run_id, now=self.now))

    def retry(self, data: st.DataObject) -> None:
        run_id = self.a_run(data, *[r.run_id for r in self.here["ended"]])
        expected = self.model.retry(run_id, self.now)
        outcome, status, started = self.ask(transitions.run_retry("p", run_id, now=self.now))
        assert expected == (outcome, status)
        if outcome == "new":
            fresh = self.name()
            self.rename(started, fresh)
            self.model.anew(run_id, fresh)

    def compensate(self, data: st.DataObject) -> None:
        run_id = self.a_run(data, *[r.run_id for r in self.here["held_back"]])
        expected = self.model.compensate(run_id)
        assert expected == self.ask(undo.run_compensate("p", run_id, now=self.now))[:2]

    def skip(self, data: st.DataObject) -> None:
        run_id = self.a_run(data, *[r.parent for r in self.here["undone"]])
        key = data.draw(STEPS)
        expected = self.model.skip(run_id, key)
        call = undo.undo_skip("p", run_id, key, reason="r", who="ann", now=self.now)
        assert expected == self.ask(call)[0]

    def stopped(self, data: st.DataObject) -> None:
        worker = data.draw(WORKERS)
        likely = [r.parent for r in self.here["undone"]]
        run_ids = data.draw(
            st.lists(
                st.sampled_from([*likely, *self.model.runs, STRANGER]), unique=True, min_size=1
            )
        )
        expected = self.model.stopped(worker, run_ids)
        assert expected == set(self.ask(undo.run_stopped("p", worker, run_ids, now=self.now)))

    def plan(self, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from([r.parent for r in self.here["undone"]]))
        told = self.ask(undo.undo_plan("p", run_id))
        assert self.model.plan(run_id) == [(one.key, one.finished, one.done) for one in told]

    # -- the clock -------------------------------------------------------------------------

    def time_passes(self, data: st.DataObject) -> None:
        forth = data.draw(st.sampled_from([True, True, True, False]))
        seconds = data.draw(SECONDS)
        self.now += timedelta(seconds=seconds if forth else -seconds)

    def to_a_boundary(self, data: st.DataObject) -> None:
        """Exactly there, or a microsecond beside it."""
        live = [one for one in self.model.runs.values() if one.live]
        moments = [m for one in live for m in (one.due_at, one.deadline_at, one.lease_until)]
        moments += [wait.due_at for one in live for wait in one.waits.values()]
        moments += [a.expires_at for a in self.model.approvals.values() if a.state == "PENDING"]
        if known := [moment for moment in moments if moment]:
            self.now = data.draw(st.sampled_from(known)) + data.draw(EDGE)

    # -- what always holds -----------------------------------------------------------------

    @invariant()
    def the_runs_agree_with_the_model(self) -> None:
        found = rows(self.conn, _LIVE) + rows(self.conn, _ENDED)
        assert len(found) == len(self.model.runs), "a run was lost, or is there twice"
        for row in found:
            one = self.model.runs[row["run_id"]]
            assert {name: getattr(one, name) for name in row} == row
        attempts = self.conn.execute(
            "select run_id, fence, worker_id, attempt, outcome from semel.attempt"
        ).fetchall()
        assert self.model.attempts == {(i, f): (w, n, o) for i, f, w, n, o in attempts}
        assert len(self.model.attempts) == len(attempts)

    @invariant()
    def what_hangs_on_them_agrees_with_the_model(self) -> None:
        lives = self.model.runs.items()
        journals: dict[UUID, list[Line]] = {}
        for line in rows(self.conn, _JOURNAL):
            told = gist(line["kind"], line["content"])
            journals.setdefault(line["run_id"], []).append(
                (line["step_key"], line["entry"], line["kind"], told)
            )
        assert {i: one.journal for i, one in lives if one.journal} == journals
        assert {(i, k, w.kind, w.due_at) for i, one in lives for k, w in one.waits.items()} == {
            tuple(wait) for wait in self.conn.execute(_WAITS)
        }
        assert sorted(
            (i, s.name, s.content, s.taken_by or "") for i, one in lives for s in one.signals
        ) == sorted(tuple(signal) for signal in self.conn.execute(_SIGNALS))
        assert {
            i: (a.state, a.expires_at, len(a.votes)) for i, a in self.model.approvals.items()
        } == {i: (state, at, n) for i, state, at, n in self.conn.execute(_APPROVALS)}

    @invariant()
    def nobody_waits_for_what_has_come_and_each_is_undone_once(self) -> None:
        for one in self.model.runs.values():
            assert one.live or not one.waits
            if one.undo == "started":
                assert undo_of(one.run_id) in self.model.runs
            if one.status in {"WAITING_TOOL", "WAITING_APPROVAL"}:
                assert one.waits
                for wait in one.waits.values():
                    child = self.model.runs.get(wait.child) if wait.child else None
                    assert child is None or child.live


_LIVE = """
select run_id, agent, kind, status, attempt_count, max_attempts, release_count, fence, worker_id,
    failure_code, deadline_at, lane, attempt_floor, released, lease_until, ready_at, due_at,
    parent_run_id as parent
from semel.run
"""
_ENDED = """
select run_id, agent, kind, status, attempt_count, max_attempts, release_count, fence, worker_id,
    failure_code, deadline_at, parent_run_id as parent, undo from semel.run_history
"""
_JOURNAL = (
    "select run_id, step_key, entry, kind, content from semel.step order by run_id, position"
)
_WAITS = "select run_id, step_key, kind, due_at from semel.wait"
_SIGNALS = "select run_id, name, content::int, coalesce(taken_by, '') from semel.signal"
_APPROVALS = """
select a.approval_id, a.state, a.expires_at, (select count(*) from semel.approval_vote as v
    where v.approval_id = a.approval_id) from semel.approval as a
"""


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("part", parts(10_000))
def test_durable_runs_do_what_the_model_says(
    conn: Conn, part: int, record_property: Tally
) -> None:
    record_property("schedules", walk(partial(DurableMachine, conn), least=300))
