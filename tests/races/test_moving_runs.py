"""A run that moves between life and history while someone looks for it is never lost from sight.

The mover holds the history's table, so whoever looks waits between its look at the live runs and
its look at the finished ones; the move is committed in between.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from fix_world import LEASE, Conn, one, start_run, status, until_blocked
from semel.core import claims, runs, transitions
from semel.core.call import Call
from semel.db.execute import run
from semel.db.pool import connect

Told = tuple[str, str | None]
Move = Callable[[Conn, UUID], None]


def back(conn: Conn, run_id: UUID) -> None:
    assert run(conn, transitions.run_retry("p", run_id))[0] == "won"


def back_and_cancelled(conn: Conn, run_id: UUID) -> None:
    back(conn, run_id)
    assert run(conn, transitions.run_cancel("p", run_id))[0] == "won"


def back_and_completed(conn: Conn, run_id: UUID) -> None:
    back(conn, run_id)
    [held] = run(conn, claims.run_claim("p", "a", "w", limit=1, lease=LEASE))
    run(conn, runs.run_complete("p", "w", [(run_id, held.fence, "1")]))


def between_its_looks(
    dsn: str, conn: Conn, other: Conn, call: Call[Told], move: Move, run_id: UUID
) -> Told:
    """What *call* is told when *move* is committed between its two looks."""
    with connect(dsn) as own, ThreadPoolExecutor(1) as pool:
        with other.transaction():
            other.execute("lock table semel.run_history in access exclusive mode")
            told = pool.submit(lambda: run(own, call))
            until_blocked(conn, own.info.backend_pid)
            move(other, run_id)
        return told.result(30)


@pytest.mark.parametrize(
    ("move", "told", "then"),
    [
        (back, ("won", "PENDING"), "CANCELLED"),
        (back_and_cancelled, ("already", "CANCELLED"), "CANCELLED"),
        (back_and_completed, ("refused", "COMPLETED"), "COMPLETED"),
    ],
)
def test_a_cancel_finds_a_run_that_a_retry_brings_back(
    dsn: str, conn: Conn, other: Conn, move: Move, told: Told, then: str
) -> None:
    run_id = start_run(conn)
    run(conn, transitions.run_cancel("p", run_id))

    call: Call[Any] = transitions.run_cancel("p", run_id)
    assert told == between_its_looks(dsn, conn, other, call, move, run_id)[:2]
    assert then == status(conn, run_id)


@pytest.mark.parametrize(
    ("move", "told", "then"),
    [
        (back, ("refused", "PENDING"), "PENDING"),
        (back_and_cancelled, ("won", "CANCELLED"), "PENDING"),
        (back_and_completed, ("refused", "COMPLETED"), "COMPLETED"),
    ],
)
def test_a_retry_finds_a_run_that_another_retry_brings_back(
    dsn: str, conn: Conn, other: Conn, move: Move, told: Told, then: str
) -> None:
    run_id = start_run(conn)
    run(conn, transitions.run_cancel("p", run_id))

    call: Call[Any] = transitions.run_retry("p", run_id)
    assert told == between_its_looks(dsn, conn, other, call, move, run_id)[:2]
    assert then == status(conn, run_id)
    assert 1 == one(conn, "select count(*) from semel.runs")
