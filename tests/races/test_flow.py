"""Rates and keys when claims, ends and an operator meet: every order of their transactions.

What holds in each: never more runs of a key at once than it may have, never more claims than the
rate leaves, and nobody who waits for a key that nobody holds.
"""

from typing import Any

import pytest

from fix_world import LEASE, NOW, Conn, one, start_run
from modelling import TIMEOUT
from schedules import Calls, Scene, Work, every_schedule
from semel.core import agents, claims, flow, runs, transitions, workers
from semel.db.execute import run
from semel.model import Claim

LANES = (*range(20, 31), *range(11), *range(100, 111))

pytestmark = pytest.mark.timeout(TIMEOUT)


class Worker:
    """Claims, and ends what it got."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.held: list[Claim] = []

    def claim(self, limit: int = 3) -> tuple[str, Work]:
        def go(conn: Conn) -> list[Claim]:
            call = claims.run_claim(
                "p", "a", self.name, limit=limit, lease=LEASE, lanes=LANES, now=NOW
            )
            self.held = run(conn, call)
            return self.held

        return "claim", go

    def complete(self) -> tuple[str, Work]:
        def go(conn: Conn) -> Any:
            ended = [(held.run_id, held.fence, "1") for held in self.held]
            return run(conn, runs.run_complete("p", self.name, ended, now=NOW))

        return "complete", go


def announce(conn: Conn, **said: Any) -> None:
    rate = said.pop("rate", None)
    flows = [flow.Flow(rate=flow.rate(rate) if rate else None, **said)]
    agent = ("a", 3, None, "async")
    for name in ("w", "w1", "w2", "w3"):
        call = workers.worker_register(
            "p", name, host="h", pid=1, slots=1, agents=[agent], flows=flows, now=NOW
        )
        run(conn, call)


def holder(conn: Conn, limit: int = 1) -> Worker:
    worker = Worker("w1")
    worker.claim(limit)[1](conn)
    assert worker.held
    return worker


def an_end_and_two_claims_of_one_key(conn: Conn) -> dict[str, Calls]:
    announce(conn)
    for _ in range(3):
        start_run(conn, concurrency_key="c1")
    first, one_, two = holder(conn), Worker("w2"), Worker("w3")
    return {
        "w1": [first.complete()],
        "w2": [one_.claim()],
        "w3": [two.claim()],
    }


def two_ends_and_a_claim_of_a_key_with_two_slots(conn: Conn) -> dict[str, Calls]:
    announce(conn, per_limit=2)
    for _ in range(4):
        start_run(conn, concurrency_key="c1")
    first, second_ = holder(conn), Worker("w2")
    second_.claim(1)[1](conn)
    return {
        "w1": [first.complete()],
        "w2": [second_.complete()],
        "w3": [Worker("w3").claim(2)],
    }


def a_cancel_of_who_waits_and_an_end(conn: Conn) -> dict[str, Calls]:
    announce(conn)
    _, next_, _ = [start_run(conn, concurrency_key="c1") for _ in range(3)]
    first = holder(conn)
    Worker("w2").claim()[1](conn)
    cancel: tuple[str, Work] = (
        "cancel",
        lambda conn: run(conn, transitions.run_cancel("p", next_, now=NOW)),
    )
    return {"w1": [first.complete()], "operator": [cancel], "w3": [Worker("w3").claim()]}


def three_claims_of_one_rate(conn: Conn) -> dict[str, Calls]:
    announce(conn, rate="3/1m")
    for _ in range(6):
        start_run(conn)
    return {name: [Worker(name).claim(2)] for name in ("w1", "w2", "w3")}


def a_claim_and_a_change_of_its_rate(conn: Conn) -> dict[str, Calls]:
    announce(conn, rate="3/1m")
    for _ in range(6):
        start_run(conn)
    change: tuple[str, Work] = (
        "set",
        lambda conn: run(conn, agents.agent_set("p", "a", ["rate"], rate=flow.rate("2/1s"))),
    )
    return {"w1": [Worker("w1").claim(2)], "operator": [change], "w2": [Worker("w2").claim(2)]}


SCENES = [
    an_end_and_two_claims_of_one_key,
    two_ends_and_a_claim_of_a_key_with_two_slots,
    a_cancel_of_who_waits_and_an_end,
    three_claims_of_one_rate,
    a_claim_and_a_change_of_its_rate,
]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_no_limit_is_passed_and_nobody_is_forgotten_in_any_order(
    dsn: str, conn: Conn, scene: Scene
) -> None:
    count = 0
    for schedule, done, _ in every_schedule(dsn, conn, scene, lambda _: 0):
        count += 1
        most = one(conn, "select coalesce(max(key_limit), 1) from semel.agents")
        held = one(
            conn,
            "select coalesce(max(n), 0) from (select count(*) as n from semel.runs"
            " where status = 'RUNNING' and concurrency_key is not null"
            " group by concurrency_key) as k",
        )
        assert held <= most, (schedule, done)
        forgotten = one(
            conn,
            "select count(*) from semel.runs as w where w.key_full and not exists ("
            " select from semel.runs as r where r.concurrency_key = w.concurrency_key"
            "  and not r.key_full and r.status in ('RUNNING', 'PENDING'))",
        )
        assert 0 == forgotten, (schedule, done)
        if one(conn, "select count(*) from semel.agents where rate_claims is not null"):
            claimed = sum(len(did.answer) for did in done if did.name == "claim")
            assert claimed <= 3, (schedule, done)
    assert count >= 6
