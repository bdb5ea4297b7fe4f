"""Every function that locks more than one row, against itself and the others, in opposite orders.

Nobody waits for someone who waits for him: no call ends in a deadlock, and when all is quiet
every run and every event is there once.
"""

import random
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from crowd import ROUNDS, Crowd
from fix_world import DEAD, LEASE, Conn, one
from modelling import NIGHTLY
from semel.core import (
    agents,
    claims,
    inbox,
    recovery,
    runs,
    steps,
    transitions,
    upkeep,
    workers,
)
from semel.db.execute import run
from semel.model import Alert, Claim, Offer

if TYPE_CHECKING:
    from semel.core.call import Call

DAY = timedelta(days=1)
EVERYWHERE = (*range(11), *range(100, 111))
NAMES = [f"n{n}" for n in range(12)]
AGENTS = [f"a{n}" for n in range(4)]

pytestmark = pytest.mark.timeout(3600 if NIGHTLY else 120)


def mixed(names: list[str], chance: random.Random, most: int = 6) -> list[str]:
    """Some of *names*, in an order of chance."""
    return chance.sample(names, most)


def again(conn: Conn, call: "Call[Any]") -> Any:
    """As every sender does when its event was purged while it arrived."""
    for _ in range(50):
        try:
            return run(conn, call)
        except psycopg.errors.SerializationFailure:
            continue
    raise AssertionError("an event that is purged each time it arrives")


# -- the inbox -------------------------------------------------------------------------------


def accept(conn: Conn, chance: random.Random) -> Any:
    offers = [
        Offer(source="s", channel="api", id=name, agent="a0", body=name.encode())
        for name in mixed(NAMES, chance)
    ]
    return again(conn, inbox.event_accept("p", offers))


def accept_unique(conn: Conn, chance: random.Random) -> Any:
    """Starts that want some unique keys for a moment."""
    offers = [
        Offer(source="u", channel="api", agent="a3", unique=name)
        for name in mixed(NAMES, chance)
    ]
    accepted = again(conn, inbox.event_accept("p", offers))
    for answer in accepted:
        if answer.verdict == "new":
            run(conn, transitions.run_cancel("p", answer.run_id))
    return accepted


def accept_late(conn: Conn, chance: random.Random) -> Any:
    """Ids and bodies seen again after their memory: their rows are taken over, or purged."""
    now = one(conn, "select clock_timestamp()") + 8 * DAY
    offers = [
        Offer(source="s", channel="api", id=name, agent="a0", body=name.encode())
        for name in mixed(NAMES, chance)
    ]
    return again(conn, inbox.event_accept("p", offers, now=now))


def alert(conn: Conn, chance: random.Random) -> Any:
    status: Any = chance.choice(["firing", "resolved"])
    alerts = [
        Alert(
            fingerprint=name,
            status=status,
            starts_ns=1,
            ends_ns=int(status != "firing"),
            alert={},
        )
        for name in mixed(NAMES, chance)
    ]
    body = chance.choice([b"x", b"y"])
    now = one(conn, "select clock_timestamp()") + chance.choice([timedelta(0), 8 * DAY])
    return run(
        conn, inbox.alert_accept("p", "am", "a1", {}, alerts, body=body, headers={}, now=now)
    )


def start(conn: Conn, chance: random.Random) -> Any:
    key, unique = chance.choice(NAMES), chance.choice(NAMES)
    return [run(conn, runs.run_start("p", "a2", None, key=key, source="s", unique=unique))]


def expire(conn: Conn, _: random.Random) -> Any:
    now = one(conn, "select clock_timestamp()") + 8 * DAY
    run(conn, upkeep.dedupe_expire("p", 7 * DAY, now=now))
    run(conn, upkeep.fold_stale("p", 7 * DAY, now=now))
    run(conn, upkeep.leftovers_drop("p", 7 * DAY, 30 * DAY, now=now + DAY))
    return []


def test_arrivals_in_opposite_orders_never_deadlock(dsn: str, conn: Conn) -> None:
    crowd = Crowd(dsn)

    crowd.go(accept, alert, accept, start, accept_late, expire)

    assert {} == crowd.errors
    new = {
        str(answer.run_id)
        for answers in crowd.answers
        for answer in answers
        if answer.run_id
        and "new" in {getattr(answer, "verdict", ""), getattr(answer, "outcome", "")}
    }
    there = {str(run_id) for [run_id] in conn.execute("select run_id from semel.runs")}
    assert there <= new, "a run that nobody was told of"
    assert {
        str(i)
        for [i] in conn.execute("select run_id from semel.dedupe where run_id is not null")
    } <= new


def test_opposite_orders_of_bodies_and_alerts_never_deadlock(dsn: str, conn: Conn) -> None:
    crowd = Crowd(dsn)

    crowd.go(alert, expire, accept)

    assert {} == crowd.errors


# -- runs ------------------------------------------------------------------------------------


class Work:
    """Eight workers at the same runs, with every hold that was ever given."""

    def __init__(self) -> None:
        self._holds: list[Claim] = []

    def holds(self, chance: random.Random) -> tuple[str, list[Claim]]:
        """Some holds of one worker, in an order of chance, old ones among them."""
        worker = f"w{chance.randrange(3)}"
        own = [held for held in list(self._holds) if held.worker == worker][-40:]
        return worker, chance.sample(own, min(len(own), 12))

    def claim(self, conn: Conn, chance: random.Random) -> Any:
        call = claims.run_claim(
            "p",
            chance.choice(AGENTS),
            f"w{chance.randrange(3)}",
            limit=5,
            lease=LEASE,
            lanes=chance.sample(EVERYWHERE, len(EVERYWHERE)),
        )
        taken = run(conn, call)
        self._holds += taken
        return taken

    def complete(self, conn: Conn, chance: random.Random) -> Any:
        worker, held = self.holds(chance)
        ended = [(claim.run_id, claim.fence, "1") for claim in held]
        return run(conn, runs.run_complete("p", worker, ended))

    def release(self, conn: Conn, chance: random.Random) -> Any:
        worker, held = self.holds(chance)
        return run(
            conn, runs.run_release("p", worker, [(claim.run_id, claim.fence) for claim in held])
        )

    def beat(self, conn: Conn, chance: random.Random) -> Any:
        worker, held = self.holds(chance)
        pairs = [(claim.run_id, claim.fence) for claim in held]
        later = one(conn, "select clock_timestamp()") + timedelta(minutes=3)
        return run(conn, workers.run_beat("p", worker, pairs, lease=LEASE, now=later))

    def fail(self, conn: Conn, chance: random.Random) -> Any:
        _, held = self.holds(chance)
        with conn.transaction():
            return [
                run(conn, runs.run_fail(claim, "E-RUN-006", "boom"))
                for claim in sorted(held, key=lambda claim: claim.run_id)
            ]

    def record(self, conn: Conn, chance: random.Random) -> Any:
        worker, held = self.holds(chance)
        entries = [
            (claim.run_id, claim.fence, steps.Entry(name, "result"))
            for claim in held
            for name in mixed(NAMES, chance)
        ]
        return run(conn, steps.step_record("p", worker, chance.sample(entries, len(entries))))

    def operate(self, conn: Conn, chance: random.Random) -> Any:
        _, held = self.holds(chance)
        for claim in held[:2]:
            run(conn, transitions.run_cancel("p", claim.run_id))
            run(conn, transitions.run_retry("p", claim.run_id))
        return []


def reap(conn: Conn, chance: random.Random) -> Any:
    later = one(conn, "select clock_timestamp()") + timedelta(minutes=chance.choice([0, 4, 10]))
    found = run(
        conn, recovery.run_reap("p", dead_after=DEAD, trust=chance.random() < 0.5, now=later)
    )
    run(conn, recovery.worker_lost("p", f"w{chance.randrange(3)}"))
    run(conn, upkeep.worker_expire("p", now=later + 2 * DAY))
    return found


def overdue(conn: Conn, _: random.Random) -> Any:
    later = one(conn, "select clock_timestamp()") + timedelta(minutes=10)
    run(conn, claims.run_due("p", now=later))
    return run(conn, transitions.run_overdue("p", now=later))


def register(conn: Conn, chance: random.Random) -> Any:
    others = [f"other{n}" for n in range(40)]
    agents = [
        (name, 3, chance.choice([None, 7]), "async")
        for name in mixed(AGENTS + others, chance, 44)
    ]
    worker = f"w{chance.randrange(9)}"
    run(conn, workers.worker_register("p", worker, host="h", pid=1, slots=1, agents=agents))
    return []


def announce(conn: Conn, chance: random.Random) -> Any:
    names = [f"s{n}" for n in range(40)]
    sources = [(name, "api", "a0") for name in mixed(names, chance, 40)]
    run(conn, inbox.source_register("p", sources))
    return []


def leave(conn: Conn, chance: random.Random) -> Any:
    run(conn, workers.worker_stop("p", f"w{chance.randrange(3)}"))
    run(conn, agents.agent_pause("p", "a3"))
    conn.execute("select semel.project_limit('p', %s)", (chance.choice([None, 20]),))
    return []


def keep(conn: Conn, chance: random.Random) -> Any:
    """Bodies that many events share, each day anew."""
    now = one(conn, "select clock_timestamp()") + 2 * DAY * chance.randrange(100)
    bodies = [
        f"body {n}".encode() * 200 for n in mixed([str(n) for n in range(40)], chance, 40)
    ]
    conn.execute("select semel.body_keep('p', %s, %s)", (bodies, now))
    return []


def test_journals_of_one_run_in_opposite_orders_never_deadlock(dsn: str, conn: Conn) -> None:
    """Two tasks of one handler record the same steps, each time new ones."""
    run(conn, runs.run_start("p", "a0", None))
    [held] = run(conn, claims.run_claim("p", "a0", "w", limit=1, lease=LEASE))
    turns: Counter[int] = Counter()
    crowd = Crowd(dsn)

    def record(conn: Conn, chance: random.Random) -> Any:
        turns[id(conn)] += 1
        keys = mixed([f"{turns[id(conn)]}.{n}" for n in range(40)], chance, 40)
        entries = [(held.run_id, held.fence, steps.Entry(key, "result")) for key in keys]
        return run(conn, steps.step_record("p", "w", entries))

    crowd.go(record, rounds=ROUNDS // 2)

    assert {} == crowd.errors
    assert {"won", "already"} == {word for answer in crowd.answers for word, _ in answer}
    assert 40 * (ROUNDS // 2) == one(conn, "select count(*) from semel.steps")


@pytest.mark.parametrize("work", [accept, accept_unique, alert, register, announce, keep])
def test_a_call_meets_itself_in_the_opposite_order(dsn: str, work: Any) -> None:
    crowd = Crowd(dsn)

    crowd.go(work, rounds=ROUNDS // 2)

    assert {} == crowd.errors


def test_every_write_to_runs_in_opposite_orders_never_deadlocks(dsn: str, conn: Conn) -> None:
    for n in range(240):
        more: Any = {"deadline": timedelta(minutes=5)} if n % 5 == 0 else {}
        run(
            conn,
            runs.run_start("p", AGENTS[n % 4], n, priority=n % 10, max_attempts=50, **more),
        )
    crowd, work = Crowd(dsn), Work()

    crowd.go(
        work.claim,
        work.beat,
        work.complete,
        work.release,
        work.claim,
        work.record,
        work.fail,
        reap,
        work.operate,
        register,
        leave,
        overdue,
        rounds=2 * ROUNDS,
    )

    assert {} == crowd.errors
    assert 240 == one(conn, "select count(*) from semel.runs")
    assert 240 == one(conn, "select count(distinct run_id) from semel.runs")
    assert one(conn, "select count(*) from semel.run where status = 'RUNNING'") <= 240
    assert (
        []
        == conn.execute(
            "select run_id, fence from semel.attempts group by 1, 2 having count(*) > 1"
        ).fetchall()
    )
