"""A worker is killed that holds all slots of a limit: back at exactly the limit, never stuck."""

import json
import os
import signal
from typing import Any

import pytest

from fix_world import Conn, Programs, one, start_run, status, until

pytestmark = pytest.mark.crash

QUICK = {"worker_lease": "3s", "worker_poll": "50ms"}  # heartbeat 0.5 s, dead after 1.5 s


@pytest.mark.parametrize(
    ("agent", "value", "limit"),
    [
        ("two", {"seconds": 0.3}, 2),
        ("keyed", {"seconds": 0.3, "customer": {"id": "c1"}}, 1),
    ],
)
def test_a_killed_worker_gives_back_every_slot_of_a_limit_and_none_too_many(
    conn: Conn, programs: Programs, agent: str, value: Any, limit: int
) -> None:
    stuck = {**value, "seconds": 600}
    held = [start_run(conn, agent, stuck) for _ in range(limit)]
    waiting = [start_run(conn, agent, value) for _ in range(5)]
    programs.upkeep(**QUICK)
    first = programs.worker("limited.py", **QUICK)
    until(lambda: all(status(conn, each) == "RUNNING" for each in held))
    programs.worker("limited.py", **QUICK)

    # What the next worker is to do at once: it would be too long a wait otherwise.
    conn.execute(
        "update semel.run set input = %s where run_id = any (%s)", (json.dumps(value), held)
    )
    os.kill(first.pid, signal.SIGKILL)

    until(lambda: all(status(conn, each) == "COMPLETED" for each in held + waiting), 60)
    assert limit == most_at_once(conn)


def most_at_once(conn: Conn) -> int:
    """How many attempts ran at once, by the claims and ends that the database has."""
    return int(
        one(
            conn,
            "select max(n) from (select (select count(*) from semel.attempts as o"
            "  where o.claimed_at <= a.claimed_at and o.ended_at > a.claimed_at) as n"
            " from semel.attempts as a) as c",
        )
    )
