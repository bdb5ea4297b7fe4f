"""A unique key has one live run, also while its run is being recovered."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from fix_world import DEAD, LEASE, NOW, Conn, one, second, until_blocked
from semel.core import claims, recovery, runs, transitions
from semel.db.execute import run
from semel.db.pool import connect
from semel.model import Started

START = runs.run_start("p", "a", None, unique="u")
REAP = recovery.run_reap("p", dead_after=DEAD, trust=True, now=second(31))


def lost(conn: Conn, max_attempts: int = 3) -> Started:
    """A run with the key, of a worker that is silent by now."""
    made = run(conn, runs.run_start("p", "a", None, unique="u", max_attempts=max_attempts))
    assert 1 == len(run(conn, claims.run_claim("p", "a", "w", limit=1, lease=LEASE, now=NOW)))
    return made


@pytest.mark.parametrize("kept", [True, False], ids=["committed", "rolled back"])
def test_a_start_meets_the_reaper_at_its_key(
    conn: Conn, other: Conn, dsn: str, *, kept: bool
) -> None:
    """The reaper ends the run for good; a start that waits for that learns what became of it."""
    first = lost(conn, max_attempts=1)
    with connect(dsn) as third, ThreadPoolExecutor(1) as pool:
        with other.transaction(force_rollback=not kept):
            assert ["failed"] == [one.outcome for one in run(other, REAP)]
            late = pool.submit(run, third, START)
            until_blocked(conn, third.info.backend_pid)
        made = late.result(30)

    if kept:
        assert ("new", True) == (made.outcome, made.run_id != first.run_id)
        assert "refused" == run(conn, transitions.run_retry("p", first.run_id))[0]
    else:
        assert ("exists", first.run_id) == (made.outcome, made.run_id)
    assert 1 == one(conn, "select count(*) from semel.run where unique_key = 'u'")


def test_a_reaped_run_keeps_its_key(conn: Conn) -> None:
    first = lost(conn)
    assert ["pending"] == [one.outcome for one in run(conn, REAP)]
    again = run(conn, START)
    assert ("exists", first.run_id) == (again.outcome, again.run_id)
    assert 1 == one(conn, "select count(*) from semel.runs")
