"""What workers do in the model's schedules: start, claim, journal, park, spawn and end runs."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from durable_model import (
    DurableModel,
    Life,
    Line,
    later,
)
from durable_records import ModelApproval, ModelWait
from fix_world import LEASE, NOW, Conn
from modelling import empty
from run_model import Hold
from semel.core import claims, runs, steps, waits
from semel.core.call import Call
from semel.core.steps import Entry
from semel.core.waits import Question, Wait
from semel.db.execute import run
from semel.model import Claim

EVERYWHERE = (*range(11), *range(100, 111))
WORKERS = st.sampled_from(["w1", "w1", "w2"])
STEPS = st.sampled_from(["s1", "s2", "s3"])
NAMES = st.sampled_from(["go", "go", "stop"])
SECONDS = st.sampled_from([0.001, 1, 10, 30, 60, 300])
EDGE = st.sampled_from([timedelta(microseconds=n) for n in (-1, 0, 1)])
STRANGER = UUID(int=2**64)


def named(claim: Claim) -> Hold:
    return claim.run_id, claim.fence


def gist(kind: str, content: Any) -> Any:
    """What matters of a journal entry's content."""
    match kind:
        case "signal":
            return content.get("content", "timed_out")
        case "child":
            return content.get("status", "timed_out")
        case "approval":
            return content["decision"]
        case "spawn":
            return content["run_id"]
        case "skip":
            return "skipped"
        case _:
            return content


class WorkerActs(RuleBasedStateMachine):
    """A database, the model of it, and a worker's side of both."""

    def __init__(self, conn: Conn) -> None:
        super().__init__()
        self.conn = conn
        self.model = DurableModel()
        self.now = NOW
        self.holds: list[Claim] = []  # every claim ever answered: zombies write too
        self.fences: dict[UUID, int] = {}
        self.names = 0
        self.here: dict[str, Any] = {}
        self.acting: list[Claim] = []
        empty(conn)

    def ask(self, call: Call[Any]) -> Any:
        return run(self.conn, call)

    def name(self) -> UUID:
        """The next id, the same in each schedule; a child's may be below its parent's."""
        self.names += 1
        return UUID(int=1 + self.names * 6007 % 9973)

    def at_work(self) -> list[Claim]:
        """The holds that are good, the youngest first."""
        return [h for h in reversed(self.holds) if self.model.owned(h.worker, named(h))]

    def a_hold(self, data: st.DataObject) -> Claim:
        """One that is good, unless a zombie writes."""
        drawn: Claim = data.draw(st.sampled_from(self.acting))
        return drawn

    # -- starting and claiming -------------------------------------------------------------

    def start(self, data: st.DataObject) -> None:
        most = data.draw(st.sampled_from([None, 1, 2]))
        minute = data.draw(st.sampled_from([None, None, None, timedelta(minutes=1)]))
        started = self.ask(runs.run_start("p", "a", 1, max_attempts=most, deadline=minute))
        deadline = self.now + minute if minute else None
        one = Life(
            self.name(), "a", 5, world=self.model, max_attempts=most,
            ready_at=self.now, deadline_at=deadline,
        )  # fmt: skip
        self.rename(started.run_id, one.run_id)
        self.conn.execute(
            "update semel.run set ready_at = %s, deadline_at = %s where run_id = %s",
            (self.now, deadline, one.run_id),
        )
        self.model.runs[one.run_id] = one

    def rename(self, old: UUID, new: UUID) -> None:
        """Ids are the server's; here they become the model's, so that a schedule can be repeated."""
        self.conn.execute("update semel.run set run_id = %s where run_id = %s", (new, old))

    def claim(self, data: st.DataObject, agent: str = "a") -> None:
        worker, limit = data.draw(WORKERS), data.draw(st.integers(1, 3))
        expected = self.model.claimable(agent, EVERYWHERE, [], oldest=False)[:limit]
        call = claims.run_claim(
            "p", agent, worker, limit=limit, lease=LEASE, lanes=EVERYWHERE, now=self.now
        )
        taken: list[Claim] = self.ask(call)
        assert [one.run_id for one in expected] == [claim.run_id for claim in taken]
        if taken:
            self.model.touch(worker, agent, self.now)
        for one, claim in zip(expected, taken, strict=True):
            self.model.claim(one, worker, self.now)
            assert isinstance(one, Life)
            seen = (claim.fence, claim.attempt, claim.max_attempts, claim.kind, claim.parent)
            told = (one.fence, one.attempt_count, one.max_attempts, one.kind, one.parent)
            assert told == seen
            assert claim.fence > self.fences.get(claim.run_id, 0), "one fence, two owners"
            self.fences[claim.run_id] = claim.fence
            lines = json.loads(claim.journal or "[]")
            if claim.fence > 1:  # a claim that is the first brings none
                assert one.journal == [
                    (k, e, kind, gist(kind, c)) for k, e, kind, _, _, c, _ in lines
                ]
        self.holds += taken

    def claim_notice(self, data: st.DataObject) -> None:
        self.claim(data, "semel.notify")

    # -- what a worker writes --------------------------------------------------------------

    def journal(self, data: st.DataObject) -> None:
        held = self.a_hold(data)
        kinds: Any = st.sampled_from(["intent", "intent", "result", "error", "caught"])
        lines: list[Line] = [
            (key, entry, "step", {"undo": "u"} if entry == "intent" else n)
            for n, (key, entry) in enumerate(
                data.draw(st.lists(st.tuples(STEPS, kinds), min_size=1, max_size=3))
            )
        ]
        pairs = [(named(data.draw(st.sampled_from([held, self.acting[0]]))), x) for x in lines]
        expected = self.model.record(held.worker, pairs)
        entries: Any = [
            (*hold, Entry(key, entry, kind, content=json.dumps(content)))  # type: ignore[arg-type]
            for hold, (key, entry, kind, content) in pairs
        ]
        told = self.ask(steps.step_record("p", held.worker, entries, now=self.now))
        assert expected == [outcome for outcome, _ in told]

    def park(self, data: st.DataObject) -> None:
        held = self.a_hold(data)
        own = self.model.runs[held.run_id]
        kinds = data.draw(
            st.lists(
                st.sampled_from(["sleep", "retry", "signal", "signal", "child", "approval"]),
                min_size=1, max_size=3, unique=True,
            )
        )  # fmt: skip
        asked, modelled = [], []
        for kind in kinds:
            wait, told, question = self.a_wait(data, kind, own)
            asked.append(wait)
            modelled.append((wait.key, told, question))
        expected = self.model.park(held.worker, named(held), modelled)
        call = waits.run_park("p", held.worker, *named(held), asked, now=self.now)
        assert expected == [(key, outcome) for key, outcome, _ in self.ask(call)]
        self.name_the_notices()

    def a_wait(self, data: st.DataObject, kind: Any, own: Life) -> tuple[Wait, ModelWait, Any]:
        """A wait as it is sent, as the model has it, and the question of an approval."""
        seconds: float | None = data.draw(st.sampled_from([0.0, 10.0, 60.0]))
        name = child = asked = question = None
        key = f"{kind} {data.draw(st.integers(1, 2))}"
        match kind:
            case "retry":
                key = data.draw(STEPS)
            case "signal":
                name = data.draw(NAMES)
                key = f"{name} {data.draw(st.integers(1, 2))}"
            case "child":
                mine = [
                    i
                    for i, r in self.model.runs.items()
                    if (r.parent, r.kind) == (own.run_id, "child")
                ]
                child = data.draw(st.sampled_from([*mine, STRANGER]))
                key = f"end of {child}"
            case _:
                pass
        if kind in {"signal", "child"}:
            seconds = data.draw(st.sampled_from([None, seconds]))
        until = later(self.now, seconds)
        if kind == "approval":
            seconds = ttl = data.draw(st.sampled_from([60.0, 60.0, 10.0, 0.0]))
            until = self.now + timedelta(seconds=ttl)
            id_, digest = self.name(), data.draw(st.sampled_from(["d1", "d1", "d2"]))
            need = data.draw(st.sampled_from([1, 1, 2]))
            approvers = data.draw(st.sampled_from([None, ("ann", "bob")]))
            requester = data.draw(st.sampled_from([None, None, "ann"]))
            model = ModelApproval(own.run_id, key, digest, need, approvers, requester, until)
            asked = Question(
                id=id_, title="t", action={}, digest=digest, need=need, approvers=approvers,
                requester=requester, notify=("ann",),
            )  # fmt: skip
            question = (id_, model)
        due = None if seconds is None else timedelta(seconds=seconds)
        wait = Wait(key=key, kind=kind, due=due, name=name, child=child, question=asked)
        return wait, ModelWait(kind, until, self.now, name, child), question

    def name_the_notices(self) -> None:
        """The notifications that parking has started."""
        for about in self.model.notices:
            asked = self.model.approvals[about]
            [(made,)] = self.conn.execute(
                "select run_id from semel.run where agent = 'semel.notify'"
                " and input ->> 'approval_id' = %s", (str(about),),
            ).fetchall()  # fmt: skip
            one = Life(
                self.name(), "semel.notify", 9, world=self.model, kind="notify",
                parent=asked.run_id, lane=1, ready_at=self.now, deadline_at=asked.expires_at,
            )  # fmt: skip
            self.rename(made, one.run_id)
            self.model.runs[one.run_id] = one
        self.model.notices.clear()

    def spawn(self, data: st.DataObject) -> None:
        held, key = self.a_hold(data), data.draw(st.sampled_from(["c1", "c2"]))
        child = self.name()
        expected = self.model.spawn(held.worker, named(held), key, child)
        call = steps.child_start(
            "p",
            held.worker,
            *named(held),
            key=key,
            place=None,
            agent="a",
            text="1",
            now=self.now,
        )
        made, outcome = self.ask(call)
        assert expected == outcome
        if outcome == "won":
            self.rename(made, child)
            self.conn.execute(
                "update semel.step set content = jsonb_set(content, '{run_id}', to_jsonb(%s::text))"
                " where content ->> 'run_id' = %s", (str(child), str(made)),
            )  # fmt: skip
        elif outcome == "already":
            line = self.model.runs[held.run_id].result(key)
            assert line
            assert line[3] == str(made)

    def complete(self, data: st.DataObject) -> None:
        held = self.a_hold(data)
        own = [claim for claim in self.holds[-6:] if claim.worker == held.worker]
        both = {named(claim): claim for claim in [held, *own]}
        holds = list(both) if data.draw(st.booleans()) else [named(held)]
        expected = self.model.complete_all(held.worker, holds)
        ended = [(*hold, "1") for hold in holds]
        told = self.ask(runs.run_complete("p", held.worker, ended, now=self.now))
        assert expected == [answer.outcome for answer in told]

    def fail(self, data: st.DataObject) -> None:
        held = self.a_hold(data)
        delay = timedelta(seconds=data.draw(st.sampled_from([0, 0, 10])))
        expected = self.model.fail(
            held.worker, named(held), self.now, delay=delay, retryable=True
        )
        call = runs.run_fail(held, "E-RUN-006", "boom", delay=delay, now=self.now)
        assert expected == self.ask(call)[0].outcome

    def give_up(self, data: st.DataObject) -> None:
        held = self.a_hold(data)
        code = data.draw(st.sampled_from(["E-RUN-006", "E-STEP-001"]))
        expected = self.model.give_up(held.worker, named(held), code)
        call = runs.run_fail(held, code, "boom", retryable=False, now=self.now)
        assert expected == self.ask(call)[0].outcome

    def release(self, data: st.DataObject) -> None:
        held = self.a_hold(data)
        expected = self.model.release(held.worker, named(held), self.now)
        call = runs.run_release("p", held.worker, [named(held)], now=self.now)
        assert expected == self.ask(call)[0].outcome
