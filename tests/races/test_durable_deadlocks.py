"""Whatever journals, parks, asks, spawns, tells, decides, ends and undoes, against all the others.

Nobody waits for someone who waits for him; and when all is quiet no run waits for what has come.
"""

import json
import random
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from crowd import ROUNDS, Crowd
from fix_world import DEAD, LEASE, Conn, one
from modelling import NIGHTLY
from semel.core import (
    approvals,
    claims,
    recovery,
    runs,
    steps,
    transitions,
    undo,
    upkeep,
    waits,
)
from semel.core.approvals import Link
from semel.core.steps import Entry
from semel.core.waits import Question, Wait
from semel.db.execute import run
from semel.model import Claim

pytestmark = pytest.mark.timeout(3600 if NIGHTLY else 240)

EVERYWHERE = (*range(11), *range(100, 111))
AGENTS = ["a", "b", "semel.notify"]
SOON = timedelta(milliseconds=50)


class Lives:
    """Three workers at runs that wait for each other, with every hold that was ever given."""

    def __init__(self, roots: list[UUID]) -> None:
        self._runs = roots
        self._holds: list[Claim] = []
        self._asked: list[tuple[UUID, Link]] = []
        self.parked = 0

    def holds(self, chance: random.Random, most: int = 8) -> tuple[str, list[Claim]]:
        """Some holds of one worker, in an order of chance, old ones among them."""
        worker = f"w{chance.randrange(3)}"
        own = [held for held in list(self._holds) if held.worker == worker][-30:]
        return worker, chance.sample(own, min(len(own), most))

    def some(self, chance: random.Random) -> UUID:
        return chance.choice(self._runs[-60:])

    def claim(self, conn: Conn, chance: random.Random) -> Any:
        worker = f"w{chance.randrange(3)}"
        call = claims.run_claim(
            "p", chance.choice(AGENTS), worker, limit=8, lease=LEASE, lanes=EVERYWHERE
        )
        taken = run(conn, call)
        self._holds += taken
        self._runs += [held.run_id for held in taken if held.run_id not in self._runs]
        return taken

    def record(self, conn: Conn, chance: random.Random) -> Any:
        worker, held = self.holds(chance)
        kinds: list[Any] = ["intent", "result", "error"]
        entries = [
            (claim.run_id, claim.fence, Entry(f"s{chance.randrange(6)}", kind, content="{}"))
            for claim in held
            for kind in kinds
        ]
        return run(conn, steps.step_record("p", worker, entries))

    def spawn(self, conn: Conn, chance: random.Random) -> Any:
        _, held = self.holds(chance, 1)
        for claim in held:
            call = steps.child_start(
                "p", claim.worker, claim.run_id, claim.fence,
                key=f"c{chance.randrange(4)}", place=None, agent=chance.choice("ab"), text="1",
            )  # fmt: skip
            child, outcome = run(conn, call)
            if child and outcome == "won":
                self._runs.append(child)

    def park(self, conn: Conn, chance: random.Random) -> Any:
        """For signals, its children, people and some time; several at once."""
        _, held = self.holds(chance, 3)
        for claim in held:
            made = run(conn, steps.step_list("p", claim.run_id))
            children = [e.content for e, _ in made if e.kind == "spawn" and e.content]
            question = Question(
                id=uuid4(), title="t", action={}, digest=f"d{chance.randrange(2)}",
                need=chance.choice([1, 2]), notify=("ann",),
            )  # fmt: skip
            what = [
                Wait(key=f"signal {chance.randrange(9)}", kind="signal", name="go"),
                Wait(key=f"sleep {chance.randrange(9)}", kind="sleep", due=SOON),
                Wait(
                    key=f"ask {chance.randrange(9)}",
                    kind="approval",
                    due=SOON * 4,
                    question=question,
                ),
                *[
                    Wait(key=f"end of {n}", kind="child", child=_child(text))
                    for n, text in enumerate(children)
                ],
            ]
            chosen = chance.sample(what, chance.randrange(1, len(what) + 1))
            told = run(
                conn, waits.run_park("p", claim.worker, claim.run_id, claim.fence, chosen)
            )
            self.parked += ["parked"] == sorted({outcome for _, outcome, _ in told})
            self._asked.append((question.id, Link.mint("p")))

    def say(self, conn: Conn, chance: random.Random) -> Any:
        key = chance.choice([None, f"k{chance.randrange(50)}"])
        return run(conn, waits.signal_send("p", self.some(chance), "go", key=key))

    def mint(self, conn: Conn, chance: random.Random) -> Any:
        _, held = self.holds(chance, 1)
        for claim in held:
            if self._asked:
                approval, link = chance.choice(self._asked[-20:])
                run(
                    conn,
                    approvals.approval_mint(
                        "p", claim.worker, claim.run_id, claim.fence,
                        approval_id=approval, recipient="ann", link=link,
                    ),
                )  # fmt: skip

    def decide(self, conn: Conn, chance: random.Random) -> Any:
        if self._asked:
            approval, link = chance.choice(self._asked[-20:])
            how: Any = chance.choice([{"approval_id": approval}, {"link": link}])
            word: Any = chance.choice(["approve", "reject"])
            voter = chance.choice(["ann", "bob"])
            run(conn, approvals.approval_decide("p", word, via="cli", voter=voter, **how))

    def complete(self, conn: Conn, chance: random.Random) -> Any:
        """Parents and children of each other in one call."""
        worker, held = self.holds(chance)
        ended = [(claim.run_id, claim.fence, "1") for claim in held]
        return run(conn, runs.run_complete("p", worker, ended))

    def fail(self, conn: Conn, chance: random.Random) -> Any:
        _, held = self.holds(chance, 2)
        for claim in held:
            code = chance.choice(["E-RUN-006", "E-STEP-001"])
            run(conn, runs.run_fail(claim, code, "boom", retryable=chance.random() < 0.5))

    def release(self, conn: Conn, chance: random.Random) -> Any:
        worker, held = self.holds(chance)
        pairs = [(claim.run_id, claim.fence) for claim in held]
        return run(conn, runs.run_release("p", worker, pairs))

    def operate(self, conn: Conn, chance: random.Random) -> Any:
        run_id = self.some(chance)
        run(conn, transitions.run_cancel("p", run_id))
        run(conn, undo.run_compensate("p", self.some(chance)))
        run(conn, undo.undo_skip("p", run_id, "s1", reason="r", who="ann"))
        run(conn, undo.run_stopped("p", f"w{chance.randrange(3)}", self._runs[-60:]))
        _, _, started = run(conn, transitions.run_retry("p", run_id))
        self._runs.append(started)

    def sweep(self, conn: Conn, chance: random.Random) -> Any:
        later = one(conn, "select clock_timestamp()") + timedelta(
            seconds=chance.choice([0, 0, 0, 40])
        )
        run(conn, claims.run_due("p", chance.choice([None, "a"]), now=later))
        run(conn, transitions.run_overdue("p", now=later))
        run(conn, recovery.run_reap("p", dead_after=DEAD, trust=True, now=later))
        run(conn, upkeep.leftovers_drop("p", timedelta(7), timedelta(30), now=later))


def _child(text: str) -> UUID:
    return UUID(json.loads(text)["run_id"])


def test_lives_that_are_tied_to_each_other_never_deadlock(dsn: str, conn: Conn) -> None:
    roots = [
        run(conn, runs.run_start("p", "ab"[n % 2], n, max_attempts=9)).run_id for n in range(40)
    ]
    crowd, lives = Crowd(dsn), Lives(roots)

    crowd.go(
        lives.claim, lives.record, lives.spawn, lives.park, lives.say, lives.claim,
        lives.mint, lives.decide, lives.complete, lives.fail, lives.release, lives.claim,
        lives.park, lives.operate, lives.sweep, rounds=2 * ROUNDS,
    )  # fmt: skip

    assert {} == crowd.errors
    for promise, sql in QUIET.items():
        assert 0 == one(conn, sql), promise
    assert lives.parked  # how many wait at the end is a matter of speed
    for busy in ("signal", "approval", "step", "run_history"):
        assert one(conn, f"select count(*) from semel.{busy}"), busy


#: What no order may leave behind.
QUIET = {
    "a run is there once": """
        select count(*) - count(distinct run_id) from semel.runs""",
    "nobody waits for a child that has ended": """
        select count(*) from semel.wait as w join semel.run_history as h on h.run_id = w.child_id
        where not exists (select from semel.run as r where r.run_id = w.child_id)
          and exists (select from semel.run as r where r.run_id = w.run_id and r.status ~ '^WAITING')""",
    "nobody waits for a signal that has come": """
        select count(*) from semel.wait as w join semel.run as r on r.run_id = w.run_id
        join semel.signal as s on s.run_id = w.run_id and s.name = w.name and s.taken_by is null
        where w.kind = 'signal' and r.status ~ '^WAITING'""",
    "a waiting run waits for something": """
        select count(*) from semel.run as r where r.status ~ '^WAITING'
          and not exists (select from semel.wait as w where w.run_id = r.run_id)""",
    "a run that is over waits for nothing": """
        select count(*) from semel.wait as w
        where not exists (select from semel.run as r where r.run_id = w.run_id)""",
    "a question is open only of a live run": """
        select count(*) from semel.approval as a where a.state = 'PENDING'
          and not exists (select from semel.run as r where r.run_id = a.run_id)""",
    "a signal is taken by one step, which has it": """
        select count(*) from semel.signal as s where s.taken_by is not null
          and not exists (select from semel.step as t where t.run_id = s.run_id
                          and t.step_key = s.taken_by and t.entry = 'result')""",
    "what was promised is undone, held or alive": """
        select count(*) from semel.run_history as h where h.status <> 'COMPLETED' and h.undo is null
          and exists (select from semel.step as s where s.run_id = h.run_id and s.entry = 'intent')""",
    "a run that is undone has its compensation": """
        select count(*) from semel.run_history as h where h.undo = 'started'
          and not exists (select from semel.runs as u where u.run_id = semel.undo_of(h.run_id))""",
}
