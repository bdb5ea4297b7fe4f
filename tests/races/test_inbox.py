"""Two arrivals of one event: one run, whatever becomes of the first."""

import asyncio
import threading
import time
from typing import Any

import pytest

from fix_world import Conn, one, until_blocked
from semel.core import claims, inbox
from semel.db.execute import run
from semel.db.pool import connect, pool
from semel.edges.acceptor import Acceptor
from semel.errors import DatabaseUnreachable
from semel.model import Alert, Offer

EVENT = Offer(
    source="hook", channel="api", id="e1", agent="a", input={"n": 1}, body=b"{}", compare=True
)
ALERT = Alert(fingerprint="f1", status="firing", starts_ns=1, ends_ns=0, alert={"labels": {}})


def accept(conn: Conn, *offers: Offer) -> list[Any]:
    return run(conn, inbox.event_accept("p", offers))


def accept_alert(conn: Conn) -> list[Any]:
    call = inbox.alert_accept("p", "am", "a", {"version": "4"}, [ALERT], body=b"{}", headers={})
    return run(conn, call)


class Later:
    """A call in a thread of its own, on a connection of its own."""

    def __init__(self, dsn: str, work: Any) -> None:
        self._conn = connect(dsn)
        self.pid = self._conn.info.backend_pid
        self._work = work
        self.answer: Any = None
        self._thread = threading.Thread(target=self._go)

    def _go(self) -> None:
        with self._conn:
            self.answer = self._work(self._conn)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> Any:
        self._thread.join(30)
        return self.answer


@pytest.mark.parametrize(
    "work", [lambda c: accept(c, EVENT), accept_alert], ids=["event", "alert"]
)
def test_r4_a_delivery_whose_twin_rolled_back_makes_the_run(
    dsn: str, conn: Conn, other: Conn, work: Any
) -> None:
    later = Later(dsn, work)
    with other.transaction(force_rollback=True):
        [first] = work(other)
        later.start()
        until_blocked(conn, later.pid)
        assert 0 == one(conn, "select count(*) from semel.runs")
        assert [] == run(conn, claims.run_hint(["a"]))
    [made] = later.join()

    assert ("new", "new") == (first.verdict, made.verdict)
    assert first.run_id != made.run_id
    assert [made.run_id] == [r for [r] in conn.execute("select run_id from semel.runs")]
    assert 1 == one(conn, "select count(*) from semel.events")


@pytest.mark.parametrize(
    "work", [lambda c: accept(c, EVENT), accept_alert], ids=["event", "alert"]
)
def test_r4_a_delivery_whose_twin_committed_names_its_run(
    dsn: str, conn: Conn, other: Conn, work: Any
) -> None:
    later = Later(dsn, work)
    with other.transaction():
        [first] = work(other)
        later.start()
        until_blocked(conn, later.pid)
    [again] = later.join()

    assert ("duplicate", first.run_id) == (again.verdict, again.run_id)
    assert 1 == one(conn, "select count(*) from semel.runs")
    assert 2 == one(conn, "select hits from semel.events")


def test_opposite_orders_of_two_events_do_not_deadlock(dsn: str, conn: Conn) -> None:
    offers = [Offer(source="s", channel="api", id=str(n), agent="a") for n in range(20)]
    gate = threading.Barrier(4)
    made: list[Any] = []

    def go(order: list[Offer]) -> None:
        with connect(dsn) as mine:
            gate.wait()
            made.extend(accept(mine, *order))

    threads = [threading.Thread(target=go, args=(offers[:: (-1) ** n],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 80 == len(made)
    assert (
        20
        == sum(a.verdict == "new" for a in made)
        == one(conn, "select count(*) from semel.runs")
    )


def test_one_batch_may_hold_the_same_event_twice(conn: Conn) -> None:
    changed = Offer(
        source="hook", channel="api", id="e1", agent="a", input={"n": 2}, compare=True
    )

    answers = accept(conn, EVENT, EVENT, changed)

    assert ["new", "duplicate", "conflict"] == [a.verdict for a in answers]
    assert 1 == len({a.run_id for a in answers})
    assert 3 == one(conn, "select count(*) from semel.deliveries")


def test_a_flood_of_one_key_makes_one_run(dsn: str, conn: Conn) -> None:
    gate = threading.Barrier(40)
    answers: list[Any] = []

    def go() -> None:
        with connect(dsn) as mine:
            gate.wait()
            answers.extend(accept(mine, EVENT))

    threads = [threading.Thread(target=go) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert ["duplicate"] * 39 + ["new"] == sorted(a.verdict for a in answers)
    assert 1 == len({a.run_id for a in answers}) == one(conn, "select count(*) from semel.runs")
    assert 40 == one(conn, "select hits from semel.events")


def test_a_key_that_somebody_holds_costs_its_neighbours_nothing(
    dsn: str, conn: Conn, other: Conn
) -> None:
    """Its own sender is told to come back; the others are answered as ever."""

    async def go() -> tuple[list[Any], list[float]]:
        async with pool(dsn, size=4) as connections:
            acceptor = Acceptor(connections)
            took: list[float] = []

            async def timed(offer: Offer) -> Any:
                began = time.monotonic()
                try:
                    return await acceptor.accept("p", [offer])
                finally:
                    took.append(time.monotonic() - began)

            # One goes ahead, so that the rest share a batch with the one that is held.
            ahead = Offer(source="hook", channel="api", id="ahead", agent="a")
            await acceptor.accept("p", [ahead])
            held = asyncio.create_task(timed(EVENT))
            rest = [
                timed(Offer(source="hook", channel="api", id=f"n{n}", agent="a"))
                for n in range(30)
            ]
            answers = await asyncio.gather(*rest)
            neighbours = list(took)
            with pytest.raises(DatabaseUnreachable):
                await held
            return answers, neighbours

    with other.transaction():
        accept(other, EVENT)
        answers, neighbours = asyncio.run(go())
    assert ["new"] * 30 == [a.verdict for [a] in answers]
    assert max(neighbours) < 3
    assert 32 == one(conn, "select count(*) from semel.runs")
    [again] = accept(conn, EVENT)
    assert "duplicate" == again.verdict
