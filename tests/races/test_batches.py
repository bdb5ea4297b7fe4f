"""A batch whose last runs end at once, are retried, or are looked at by many, is told of once."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import semel
from fix_world import LEASE, Conn, one, until_blocked
from semel.core import batches, claims, runs, transitions
from semel.db.execute import run
from semel.db.pool import connect


def begin(conn: Conn, many: int) -> list[Any]:
    semel.start_many(
        conn, project="p", agent="a", batch="b", inputs=range(many), on_complete="told"
    )
    return [run_id for [run_id] in conn.execute("select run_id from semel.runs").fetchall()]


def settle(conn: Conn) -> list[batches.Settled]:
    return run(conn, batches.batch_settle("p"))


def told(conn: Conn) -> int:
    return int(one(conn, "select count(*) from semel.runs where agent = 'told'"))


def at_once(*works: Callable[[], Any]) -> None:
    gate = threading.Barrier(len(works))
    failed: list[BaseException] = []

    def go(work: Callable[[], Any]) -> None:
        gate.wait()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=go, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == failed


@pytest.mark.parametrize("turn", range(5))
def test_ends_and_upkeeps_at_once_tell_once(dsn: str, conn: Conn, turn: int) -> None:
    begin(conn, 4)
    held = run(conn, claims.run_claim("p", "a", "w", limit=4, lease=LEASE))
    ends = [connect(dsn) for _ in held]
    looks = [connect(dsn) for _ in range(3)]

    def end(mine: Conn, claim: Any) -> Callable[[], Any]:
        call = runs.run_complete("p", "w", [(claim.run_id, claim.fence, "1")])
        return lambda: run(mine, call)

    def look(mine: Conn) -> Callable[[], Any]:
        return lambda: [settle(mine) for _ in range(20)]

    at_once(*map(end, ends, held), *map(look, looks))
    settle(conn)

    for each in (*ends, *looks):
        each.close()
    assert 1 == told(conn)
    assert (4, 4) == tuple(conn.execute("select total, done from semel.batches").fetchall()[0])


def test_a_retry_that_has_not_committed_is_not_passed_over(conn: Conn, other: Conn) -> None:
    """Its run lives in no snapshot yet: who completes the batch leaves it to the next look."""
    [run_id] = begin(conn, 1)
    run(conn, transitions.run_cancel("p", run_id))
    with other.transaction():
        run(other, transitions.run_retry("p", run_id))
        assert [] == settle(conn)
    assert [] == settle(conn)
    assert 0 == told(conn)


def test_a_retry_waits_for_who_completes_the_batch_and_opens_it_again(
    conn: Conn, other: Conn
) -> None:
    [run_id] = begin(conn, 1)
    run(conn, transitions.run_cancel("p", run_id))
    with conn.transaction():
        assert 1 == len(settle(conn))
        thread = threading.Thread(target=lambda: run(other, transitions.run_retry("p", run_id)))
        thread.start()
        until_blocked(conn, other.info.backend_pid)
    thread.join()

    assert one(conn, "select completed_at is null from semel.batches")
    run(conn, transitions.run_cancel("p", run_id))
    assert [None] == [each.callback for each in settle(conn)]
    assert 1 == told(conn)


def test_two_programs_that_start_one_batch_start_it_once(dsn: str, conn: Conn) -> None:
    answers = []

    def start() -> None:
        with connect(dsn) as mine:
            answers.append(
                semel.start_many(mine, project="p", agent="a", batch="b", inputs=range(2000))
            )

    at_once(start, start, start)

    assert ["duplicate", "duplicate", "new"] == sorted(each.outcome for each in answers)
    assert 2000 == one(conn, "select count(*) from semel.runs")
