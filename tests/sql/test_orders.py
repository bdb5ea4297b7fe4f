"""What an operator asks of a worker stands in its row, and each beat tells the whole of it."""

from typing import Any

import pytest

from fix_world import LEASE, Conn, one, second, start_run
from semel.core import claims, workers
from semel.core.draining import Holding, worker_holding
from semel.core.workers import Asked
from semel.db.execute import run
from semel.errors import BadRequest

DEAD = LEASE


@pytest.fixture(autouse=True)
def registered(conn: Conn) -> None:
    for worker in ("w", "other"):
        call = workers.worker_register(
            "p", worker, host="h", pid=1, slots=4, agents=[("a", 3, None, "async")]
        )
        run(conn, call)


def beat(conn: Conn, held: Any = (), worker: str = "w") -> workers.Lost:
    return run(conn, workers.run_beat("p", worker, held, lease=LEASE))


def holding(conn: Conn, worker: str = "w") -> Holding:
    found = run(conn, worker_holding("p", worker, dead_after=DEAD))
    assert found is not None
    return found


def test_a_drain_is_told_by_each_beat_until_it_is_taken_back(conn: Conn) -> None:
    assert Asked(drain=False, slots=None) == beat(conn).asked
    assert ["won", "already"] == [run(conn, workers.worker_drain("p", "w")) for _ in "ab"]
    for _ in "ab":
        assert Asked(drain=True, slots=None) == beat(conn).asked
    assert not beat(conn, worker="other").asked.drain

    resume = workers.worker_drain("p", "w", on=False)
    assert ["won", "already"] == [run(conn, resume) for _ in "ab"]
    assert not beat(conn).asked.drain


def test_what_is_lost_is_told_beside_what_is_asked(conn: Conn) -> None:
    run_id = start_run(conn)
    run(conn, workers.worker_slots("p", "w", 9))
    lost = beat(conn, [(run_id, 1)])
    assert [(run_id, 1)] == lost
    assert Asked(drain=False, slots=9) == lost.asked


def test_a_worker_is_drained_once_it_says_so_and_only_while_it_is_asked(conn: Conn) -> None:
    assert not run(conn, workers.worker_drained("p", "w"))
    run(conn, workers.worker_drain("p", "w"))
    assert (True, False) == (holding(conn).draining, holding(conn).drained)

    assert [True, False] == [run(conn, workers.worker_drained("p", "w")) for _ in "ab"]
    assert (True, False) == (holding(conn).drained, holding(conn, "other").drained)

    for on in (False, True):  # asked anew, it has yet to say so anew
        run(conn, workers.worker_drain("p", "w", on=on))
        assert not holding(conn).drained


def test_slots_are_told_and_given_back(conn: Conn) -> None:
    assert "won" == run(conn, workers.worker_slots("p", "w", 9))
    assert (9, 9) == (beat(conn).asked.slots, holding(conn).slots)
    assert "won" == run(conn, workers.worker_slots("p", "w", None))
    assert (None, 4) == (beat(conn).asked.slots, holding(conn).slots)
    for bad in (0, 10_001):
        with pytest.raises(BadRequest, match="slots"):
            run(conn, workers.worker_slots("p", "w", bad))


def test_nothing_is_asked_of_who_is_gone(conn: Conn) -> None:
    run(conn, workers.worker_stop("p", "w"))
    for call, outcome in (
        (workers.worker_drain("p", "w"), "refused"),
        (workers.worker_slots("p", "w", 1), "refused"),
        (workers.worker_drain("p", "x"), "unknown"),
        (workers.worker_slots("p", "x", 1), "unknown"),
    ):
        assert outcome == run(conn, call)
    assert 0 == one(conn, "select count(*) from semel.workers where draining_at is not null")
    assert holding(conn).gone


def test_what_its_identities_for_suspects_hold_is_held_by_it(conn: Conn) -> None:
    for worker in ("w", "w~1", "other"):
        start_run(conn)
        run(conn, claims.run_claim("p", "a", worker, limit=1, lease=LEASE, now=second(0)))
    assert (2, 1) == (holding(conn).held, holding(conn, "other").held)
    assert run(conn, worker_holding("q", "w", dead_after=DEAD)) is None
