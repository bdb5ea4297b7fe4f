"""Two arrivals of an event and whoever forgets it, in every order of their transactions."""

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from fix_world import NOW, Conn, one, until_blocked
from modelling import TIMEOUT
from schedules import Calls, Did, Scene, Schedule, Work, every_schedule
from semel.core import inbox, runs, upkeep
from semel.core.call import Call
from semel.db.execute import run
from semel.db.pool import connect
from semel.model import Alert, Offer, Started

DAY = timedelta(days=1)
EDGE = NOW + 7 * DAY  # where what was seen at NOW is forgotten

pytestmark = pytest.mark.timeout(TIMEOUT)


def call(name: str, made: Call[Any]) -> tuple[str, Work]:
    """A call whose transaction may be told to come again, as every sender is."""

    def go(conn: Conn) -> Any:
        try:
            return run(conn, made)
        except psycopg.errors.SerializationFailure:
            return "again"

    return name, go


def offers(*names: str) -> Call[Any]:
    named = [
        Offer(source="api", channel="api", id=name, agent="a", body=b"x") for name in names
    ]
    return inbox.event_accept("p", named, now=EDGE)


def alert(status: str, body: str, *names: str, now: datetime = EDGE) -> Call[Any]:
    alerts = [
        Alert(
            fingerprint=name,
            status=status,  # type: ignore[arg-type]
            starts_ns=1,
            ends_ns=0 if status == "firing" else 9,
            alert={},
        )
        for name in names
    ]
    return inbox.alert_accept(
        "p", "am", "a", {}, alerts, body=body.encode(), headers={}, now=now
    )


def purge() -> tuple[str, Work]:
    return call("purge", upkeep.dedupe_expire("p", 7 * DAY, now=EDGE))


def two_accepts_and_a_purge(conn: Conn) -> dict[str, Calls]:
    """One event is new, one is at the end of its memory, one is remembered."""
    for name, at in (("old", NOW), ("young", NOW + DAY)):
        offer = Offer(source="api", channel="api", id=name, agent="a")
        run(conn, inbox.event_accept("p", [offer], now=at))
    return {
        "one": [call("accept", offers("new", "old", "young"))],
        "two": [call("accept", offers("young", "old", "new"))],
        "upkeep": [purge()],
    }


def an_accept_a_start_and_a_purge(conn: Conn) -> dict[str, Calls]:
    offer = Offer(source="api", channel="api", id="old", agent="a")
    run(conn, inbox.event_accept("p", [offer], now=NOW))
    start = runs.run_start("p", "a", None, key="old", now=EDGE)
    return {
        "one": [call("accept", offers("old"))],
        "two": [call("start", start)],
        "upkeep": [purge()],
    }


def three_who_want_one_unique_key(conn: Conn) -> dict[str, Calls]:
    """Under keys of their own; who finds the run of another is remembered by none."""
    wanted = [
        Offer(source="api", channel="api", id=f"k{n}", agent="a", unique="u") for n in range(3)
    ]
    start = runs.run_start("p", "a", None, key="k3", unique="u", now=EDGE)
    return {
        "one": [call("accept", inbox.event_accept("p", wanted[:2], now=EDGE))],
        "two": [call("accept", inbox.event_accept("p", wanted[2:], now=EDGE))],
        "three": [call("start", start)],
    }


def two_alerts_and_a_purge(conn: Conn) -> dict[str, Calls]:
    """The group's members come in opposite orders; one of them was resolved a week ago."""
    for n, status in enumerate(("firing", "resolved")):
        run(conn, alert(status, str(n), "f", now=NOW))
    return {
        "one": [call("accept", alert("firing", "x", "g", "h", "f"))],
        "two": [call("accept", alert("firing", "y", "h", "g", "f"))],
        "upkeep": [purge()],
    }


_PAUSE = """
create function public.pause() returns trigger language plpgsql as
    'begin perform pg_advisory_xact_lock(1); return null; end';
create trigger pause after insert on semel.dedupe for each statement execute function pause();
"""


def test_an_id_that_is_purged_under_its_arrival_is_no_new_event_without_a_row(
    dsn: str, conn: Conn, other: Conn
) -> None:
    """Between the insert, which met the old row, and the look at it."""
    offer = Offer(source="api", channel="api", id="old", agent="a")
    run(conn, inbox.event_accept("p", [offer], now=NOW))
    conn.execute(_PAUSE)
    answers: list[Any] = []

    with connect(dsn) as late:
        _, work = call("accept", offers("old"))
        thread = threading.Thread(target=lambda: answers.append(work(late)))
        other.execute("select pg_advisory_lock(1)")
        thread.start()
        until_blocked(conn, late.info.backend_pid)
        assert 1 == run(conn, upkeep.dedupe_expire("p", 7 * DAY, now=EDGE))
        other.execute("select pg_advisory_unlock(1)")
        thread.join()

    assert ["again"] == answers
    assert 1 == runs_before(conn)


#: How many runs each scene may make; none is made by a transaction that is to come again.
SCENES: list[tuple[Scene, set[int]]] = [
    (two_accepts_and_a_purge, {2}),
    (an_accept_a_start_and_a_purge, {1}),
    (two_alerts_and_a_purge, {1}),
    (three_who_want_one_unique_key, {1}),
]


def answers(done: Sequence[Did]) -> list[tuple[bool, Any]]:
    """What each arrival was told: whether it is new, and its run."""
    told: list[tuple[bool, Any]] = []
    for did in done:
        match did.name, did.answer:
            case "accept", list(each):
                told += [(answer.verdict == "new", answer.run_id) for answer in each]
            case "start", Started() as answer:
                told.append((answer.outcome == "new", answer.run_id))
            case _:
                pass
    return told


def runs_before(conn: Conn) -> int:
    return int(one(conn, "select count(*) from semel.run"))


def check(
    conn: Conn, schedule: Schedule, done: Sequence[Did], before: int, most: set[int]
) -> None:
    told = answers(done)
    new = sum(is_new for is_new, _ in told)
    assert new == runs_before(conn) - before, (schedule, done)
    assert new in (most if told else {0}), (schedule, done)
    there = {run_id for [run_id] in conn.execute("select run_id from semel.run")}
    assert {run_id for _, run_id in told} <= there, (schedule, done)
    assert (
        []
        == conn.execute(
            "select event_id from semel.dedupe where run_id not in (select run_id from semel.run)"
            " union all select event_id from semel.fold where event_id not in"
            " (select event_id from semel.dedupe)"
        ).fetchall()
    ), (schedule, done)


@pytest.mark.parametrize(("scene", "most"), SCENES, ids=lambda it: getattr(it, "__name__", ""))
def test_an_arrival_is_new_once_in_every_order(
    dsn: str, conn: Conn, scene: Scene, most: set[int]
) -> None:
    count = 0
    for schedule, done, before in every_schedule(dsn, conn, scene, runs_before):
        check(conn, schedule, done, before, most)
        count += 1
    assert count >= 20
