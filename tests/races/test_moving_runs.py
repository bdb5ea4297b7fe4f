"""A run that moves between life and history while someone looks for it is never lost from sight.

The mover holds the history's table, so whoever looks waits between its look at the live runs and
its look at the finished ones; the move is committed in between.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from uuid import UUID, uuid4

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


class Race(NamedTuple):
    """A move, what whoever looked meanwhile is told, and the run's state after both."""

    move: Move
    told: Told
    then: str

    def play(self, conn: Conn, dsn: str, ask: Callable[[str, UUID], Call[Any]]) -> None:
        """Let *ask* look, commit the move between its two looks, and see what it was told."""
        run_id = start_run(conn)
        run(conn, transitions.run_cancel("p", run_id))
        with connect(dsn) as own, connect(dsn) as other, ThreadPoolExecutor(1) as pool:
            # Compiling a function may need the table too: it is done before.
            assert run(own, ask("p", uuid4()))[:2] == ("unknown", None)
            with other.transaction():
                other.execute("lock table semel.run_history in access exclusive mode")
                told = pool.submit(lambda: run(own, ask("p", run_id)))
                until_blocked(conn, own.info.backend_pid)
                self.move(other, run_id)
            assert self.told == told.result(30)[:2]
        assert self.then == status(conn, run_id)
        assert 1 == one(conn, "select count(*) from semel.runs")


@pytest.mark.parametrize(
    "race",
    [
        Race(back, ("won", "PENDING"), "CANCELLED"),
        Race(back_and_cancelled, ("already", "CANCELLED"), "CANCELLED"),
        Race(back_and_completed, ("refused", "COMPLETED"), "COMPLETED"),
    ],
    ids=lambda race: race.move.__name__,
)
def test_a_cancel_finds_a_run_that_a_retry_brings_back(
    conn: Conn, dsn: str, race: Race
) -> None:
    race.play(conn, dsn, transitions.run_cancel)


@pytest.mark.parametrize(
    "race",
    [
        Race(back, ("refused", "PENDING"), "PENDING"),
        Race(back_and_cancelled, ("won", "CANCELLED"), "PENDING"),
        Race(back_and_completed, ("refused", "COMPLETED"), "COMPLETED"),
    ],
    ids=lambda race: race.move.__name__,
)
def test_a_retry_finds_a_run_that_another_retry_brings_back(
    conn: Conn, dsn: str, race: Race
) -> None:
    race.play(conn, dsn, transitions.run_retry)
