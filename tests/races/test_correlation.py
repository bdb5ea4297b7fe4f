"""Events of one key at once, and a holder that ends meanwhile: each event is told once, or has a run."""

import random
import threading
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from crowd import Crowd
from durable import cancel
from fix_world import LEASE, Conn, one, start_run, status, until_blocked
from modelling import NIGHTLY
from semel.core import claims, inbox, runs, transitions, workers
from semel.db.execute import run
from semel.db.pool import connect
from semel.model import Accepted, Alert, Notice, Offer

KEYS = [f"k{n}" for n in range(8)]

pytestmark = pytest.mark.timeout(3600 if NIGHTLY else 120)


@pytest.fixture(autouse=True)
def joining(conn: Conn) -> None:
    served = [("a", 3, None, "async")]
    call = workers.worker_register(
        "p", "w", host="h", pid=1, slots=4, agents=served, joins=[True]
    )
    run(conn, call)


def offer(key: str, correlation: str = "c") -> Offer:
    return Offer(
        source="s", channel="api", id=key, agent="a", input=key, correlation=correlation
    )


def accept(conn: Conn, *offers: Offer) -> list[Accepted]:
    return run(conn, inbox.event_accept("p", offers))


def notice(name: str, status: Any = "firing", group: str = "g") -> Notice:
    told = Alert(
        fingerprint=name, status=status, starts_ns=1, ends_ns=int(status != "firing"), alert={}
    )
    return Notice(
        source="am", agent="a", envelope={"groupKey": group}, alerts=[told],
        body=f"{name} {status}".encode(), headers={}, grace=inbox.GRACE,
    )  # fmt: skip


def tell(conn: Conn, *notices: Notice) -> list[Accepted]:
    return [each[0] for each in run(conn, inbox.notification_fold("p", notices))]


def at(accepted: Accepted) -> UUID:
    """The run that it is in."""
    assert accepted.run_id
    return accepted.run_id


def signals(conn: Conn, run_id: Any) -> list[str]:
    rows = conn.execute("select name from semel.signals where run_id = %s", (run_id,))
    return [name for [name] in rows]


class Later:
    """A call in a thread of its own, on a connection of its own."""

    def __init__(self, dsn: str, work: Any) -> None:
        self._conn = connect(dsn)
        self.pid = self._conn.info.backend_pid
        self._work = work
        self.answer: Any = None
        self.error: psycopg.Error | None = None
        self._thread = threading.Thread(target=self._go)
        self._thread.start()

    def _go(self) -> None:
        with self._conn:
            try:
                self.answer = self._work(self._conn)
            except psycopg.Error as error:
                self.error = error

    def join(self) -> Any:
        self._thread.join(30)
        return self.answer


FIRST = {"events": lambda c: accept(c, offer("1")), "alerts": lambda c: tell(c, notice("f"))}
SECOND = {"events": lambda c: accept(c, offer("2")), "alerts": lambda c: tell(c, notice("h"))}
each_way = pytest.mark.parametrize("way", ["events", "alerts"])


@each_way
def test_of_two_events_of_one_key_at_once_the_second_joins_the_first(
    dsn: str, conn: Conn, other: Conn, way: str
) -> None:
    with other.transaction():
        [first] = FIRST[way](other)
        later = Later(dsn, SECOND[way])
        until_blocked(conn, later.pid)
    [second] = later.join()

    assert ("new", first.run_id) == (second.verdict, second.run_id)
    assert ["event"] == signals(conn, first.run_id)
    assert 1 == one(conn, "select count(*) from semel.runs")


@each_way
def test_where_the_first_is_rolled_back_the_second_has_a_run(
    dsn: str, conn: Conn, other: Conn, way: str
) -> None:
    with other.transaction(force_rollback=True):
        [first] = FIRST[way](other)
        later = Later(dsn, SECOND[way])
        until_blocked(conn, later.pid)
    [second] = later.join()

    assert first.run_id != second.run_id
    assert [(second.run_id,)] == conn.execute("select run_id from semel.runs").fetchall()
    assert [] == signals(conn, second.run_id)


@each_way
def test_a_redelivery_at_the_same_time_is_told_once(
    dsn: str, conn: Conn, other: Conn, way: str
) -> None:
    [first] = FIRST[way](conn)
    with other.transaction():
        [second] = SECOND[way](other)
        later = Later(dsn, SECOND[way])
        until_blocked(conn, later.pid)
    [again] = later.join()

    assert ("duplicate", first.run_id) == (again.verdict, again.run_id)
    assert (second.run_id, ["event"]) == (first.run_id, signals(conn, first.run_id))


@each_way
@pytest.mark.parametrize("seen", [True, False], ids=["after it was found", "before"])
def test_a_holder_that_ends_meanwhile_leaves_a_run_to_the_event(
    dsn: str, conn: Conn, other: Conn, way: str, seen: bool
) -> None:
    [first] = FIRST[way](conn)
    with other.transaction():
        if seen:  # its row is locked, its key is there: the event finds the holder, and waits
            other.execute("select from semel.run for update")
            later = Later(dsn, SECOND[way])
            until_blocked(conn, later.pid)
            cancel(other, at(first))
        else:  # its key is going: the event waits for what becomes of it
            cancel(other, at(first))
            later = Later(dsn, SECOND[way])
            until_blocked(conn, later.pid)
    [second] = later.join()

    assert ("new", "PENDING") == (second.verdict, status(conn, second.run_id))
    assert first.run_id != second.run_id
    assert [] == signals(conn, first.run_id)
    assert second.run_id == one(
        conn, "select run_id from semel.events where event_id = %s", second.event_id
    )


def test_one_whose_end_is_not_committed_after_all_is_told(
    dsn: str, conn: Conn, other: Conn
) -> None:
    [first] = accept(conn, offer("1"))
    with other.transaction(force_rollback=True):
        cancel(other, at(first))
        later = Later(dsn, lambda c: accept(c, offer("2")))
        until_blocked(conn, later.pid)
    [second] = later.join()
    assert (first.run_id, ["event"]) == (second.run_id, signals(conn, first.run_id))


def test_a_batch_that_has_locked_one_holder_and_lost_another_is_sent_again(
    dsn: str, conn: Conn, other: Conn
) -> None:
    """It keeps nothing, and waits for no key while it holds a run."""
    first, second = accept(conn, offer("1", "a"), offer("2", "b"))
    batch = [offer("3", "a"), offer("4", "b")]
    low, high = sorted([at(first), at(second)])
    with other.transaction():
        other.execute("select from semel.run where run_id = %s for update", (low,))
        later = Later(dsn, lambda c: accept(c, *batch))
        until_blocked(conn, later.pid)
        cancel(conn, high)
    later.join()

    assert later.error
    assert "40001" == later.error.sqlstate
    assert (2, 0) == (
        one(conn, "select count(*) from semel.events"), len(signals(conn, low)),
    )  # fmt: skip
    third, fourth = accept(conn, *batch)
    assert low in {third.run_id, fourth.run_id}
    assert ["event"] == signals(conn, low)
    assert 3 == one(conn, "select count(*) from semel.runs")


def test_a_batch_that_has_made_a_run_and_lost_a_holder_is_sent_again(
    dsn: str, conn: Conn, other: Conn
) -> None:
    """Its keys are taken in their order, and not one more after them."""
    [first] = accept(conn, offer("1", "a"))
    with other.transaction():
        other.execute("select from semel.run for update")
        later = Later(dsn, lambda c: accept(c, offer("2", "b"), offer("3", "a")))
        until_blocked(conn, later.pid)
        cancel(other, at(first))
    later.join()

    assert later.error
    assert "40001" == later.error.sqlstate
    assert 1 == one(conn, "select count(*) from semel.runs")


def test_a_notification_that_tells_one_run_and_has_lost_another_is_sent_again(
    dsn: str, conn: Conn, other: Conn
) -> None:
    low, high = sorted(at(tell(conn, notice(name, group=name))[0]) for name in ("f", "h"))
    names = dict(conn.execute("select run_id, fingerprint from semel.fold").fetchall())
    with other.transaction():
        other.execute("select from semel.run where run_id = %s for update", (low,))
        batch = notice(names[low], "resolved", "f"), notice("new", group=names[high])
        later = Later(dsn, lambda c: tell(c, *batch))
        until_blocked(conn, later.pid)
        cancel(conn, high)
    later.join()

    assert later.error
    assert "40001" == later.error.sqlstate
    assert [] == signals(conn, low)
    assert ["new", "new"] == [told.verdict for told in tell(conn, *batch)]
    assert ["resolved"] == signals(conn, low)


def test_a_resolution_waits_for_who_is_just_completing_the_run(
    dsn: str, conn: Conn, other: Conn
) -> None:
    [first] = tell(conn, notice("f"))
    with other.transaction():
        other.execute("select from semel.run for update")
        later = Later(dsn, lambda c: tell(c, notice("f", "resolved")))
        until_blocked(conn, later.pid)
        cancel(other, at(first))
    [over] = later.join()

    assert ("new", first.run_id, []) == (over.verdict, over.run_id, signals(conn, first.run_id))
    assert "resolved" == one(conn, "select relation from semel.event_link")


# -- a crowd ---------------------------------------------------------------------------------


def again(work: Any) -> Any:
    """As every sender does that lost a race."""
    for _ in range(50):
        try:
            return work()
        except psycopg.errors.SerializationFailure:
            continue
    raise AssertionError("a holder that ends each time")


def join(conn: Conn, chance: random.Random) -> Any:
    offers = [offer(str(uuid4()), key) for key in chance.choices(KEYS, k=6)]
    return again(lambda: accept(conn, *offers))


def join_alerts(conn: Conn, chance: random.Random) -> Any:
    names = chance.sample([f"f{n}" for n in range(12)], 6)
    notices = [
        notice(name, chance.choice(["firing", "resolved"]), chance.choice(KEYS))
        for name in names
    ]
    return again(lambda: tell(conn, *notices))


def work_off(conn: Conn, chance: random.Random) -> Any:
    """Complete several runs in one statement, in an order of chance."""
    worker = f"w{chance.randrange(9)}"
    held = run(conn, claims.run_claim("p", "a", worker, limit=6, lease=LEASE))
    ended = [(claim.run_id, claim.fence, "1") for claim in held]
    return [
        ended.outcome
        for ended in run(conn, runs.run_complete("p", worker, chance.sample(ended, len(ended))))
    ]


def meddle(conn: Conn, chance: random.Random) -> Any:
    ids = [i for [i] in conn.execute("select run_id from semel.runs order by 1 desc limit 20")]
    for run_id in chance.sample(ids, min(3, len(ids))):
        run(conn, transitions.run_cancel("p", run_id))
        run(conn, transitions.run_retry("p", run_id))
    return []


def test_a_crowd_at_few_keys_tells_each_event_once_and_never_deadlocks(
    dsn: str, conn: Conn
) -> None:
    start_run(conn)
    crowd = Crowd(dsn)

    crowd.go(join, work_off, join_alerts, join, meddle, work_off, rounds=120)

    assert {} == crowd.errors
    new = {
        told.event_id: told.run_id
        for answer in crowd.answers
        for told in answer
        if isinstance(told, Accepted) and told.verdict == "new" and told.run_id
    }
    events = conn.execute(
        "select e.event_id, e.run_id, (select count(*) from semel.runs as r where r.event_id = e.event_id),"
        " (select count(*) from semel.signals as s where s.event_id = e.event_id and s.name = 'event'),"
        " (select count(*) from semel.signals as s where s.event_id = e.event_id and s.run_id = e.run_id"
        "  and s.name = 'event'),"
        " (select count(*) from semel.signals as s where s.event_id = e.event_id and s.name = 'resolved')"
        " from semel.events as e where e.run_id is not null"
    ).fetchall()
    assert new == {event_id: run_id for event_id, run_id, *_ in events}
    ways = {(made, said, there) for _, _, made, said, there, _ in events}
    assert ways <= {(1, 0, 0), (0, 1, 1), (0, 0, 0)}
    assert {(1, 0, 0), (0, 1, 1)} <= ways
    # What made no run and was told as no event is a resolution.
    quiet = [event_id for event_id, _, *counts in events if counts[:2] == [0, 0]]
    reasons = conn.execute(
        "select reason from semel.deliveries where event_id = any (%s) and verdict = 'new'",
        (quiet,),
    ).fetchall()
    assert all("is resolved" in reason for [reason] in reasons)
    assert (
        []
        == conn.execute(
            "select agent, unique_key from semel.run where unique_key is not null"
            " group by 1, 2 having count(*) > 1"
        ).fetchall()
    )
