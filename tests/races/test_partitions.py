"""Partitions are made and dropped beside everybody: who reads for long delays that and nothing else."""

from collections.abc import Callable
from datetime import datetime, timedelta

import psycopg
import pytest

from fix_world import LEASE, Conn, one, start_run
from semel.core import claims, runs, upkeep
from semel.core.call import Call
from semel.db import migrate
from semel.db.execute import run
from semel.db.pool import connect

DAY = timedelta(days=1)
Sweep = Callable[[datetime], Call[int]]


@pytest.mark.parametrize(
    "sweep",
    [
        lambda now: upkeep.partitions_drop(DAY, DAY, now=now),
        lambda now: upkeep.partitions_make(now=now),
    ],
    ids=["drop", "make"],
)
def test_a_report_that_takes_long_makes_no_one_wait(
    conn: Conn, other: Conn, sweep: Sweep
) -> None:
    """A waiting `detach` would keep every completion behind it until the report ends."""
    start_run(conn)
    [claim] = run(conn, claims.run_claim("p", "a", "w", limit=1, lease=LEASE))
    later = one(conn, "select clock_timestamp()") + 30 * DAY
    conn.execute("set statement_timeout = '5s'")
    with other.transaction():
        other.execute("select count(*) from semel.runs, semel.deliveries")

        with pytest.raises(psycopg.errors.LockNotAvailable):
            run(conn, sweep(later))

        [done] = run(conn, runs.run_complete("p", "w", [(claim.run_id, claim.fence, "1")]))
        assert "won" == done.outcome

    assert run(conn, sweep(later)) > 0


def test_a_migration_beside_a_report_leaves_partitions_to_upkeep(
    empty_dsn: str,
) -> None:
    with connect(empty_dsn) as conn, connect(empty_dsn) as other:
        migrate.migrate(conn)
        for [name] in conn.execute(
            "select relname from pg_class where relname ~ '^delivery_[0-9]+$'"
        ).fetchall():
            conn.execute(f"drop table semel.{name}")
        with other.transaction():
            other.execute("select count(*) from semel.deliveries")
            assert [] == migrate.migrate(conn)
        assert run(conn, upkeep.partitions_make()) > 0
