"""What a claim reads beside a limited agent does not grow with that agent's queue."""

from collections.abc import Callable
from typing import Any

import pytest

from fix_explained import Explained
from fix_world import LEASE, NOW, Conn
from semel.core import claims, flow, workers
from semel.db.execute import run

FLOOD = """
insert into semel.run (project_id, run_id, agent, status, lane, priority, ready_at, input, created_at,
    concurrency_key)
select 'p', semel.uuid_at(clock_timestamp()), 'limited', 'PENDING', 5, 5,
    clock_timestamp() - interval '1 hour' + n * interval '1 us', '{"id": 1}', clock_timestamp(), %s
from generate_series(1, %s) as n
"""
OTHERS = """
insert into semel.run (project_id, run_id, agent, status, lane, priority, ready_at, input, created_at)
select 'p', semel.uuid_at(clock_timestamp()), 'other', 'PENDING', 5, 5, clock_timestamp(), '{}',
    clock_timestamp() from generate_series(1, 2000)
"""


def limited_by(conn: Conn, concurrency: int | None, **said: Any) -> None:
    agents = [("limited", 3, concurrency, "async"), ("other", 3, None, "async")]
    call = workers.worker_register(
        "p", "w", host="h", pid=1, slots=1, agents=agents,
        flows=[flow.Flow(**said), flow.Flow()], now=NOW,
    )  # fmt: skip
    run(conn, call)


def claim(agent: str, limit: int) -> Any:
    return claims.run_claim("p", agent, "w", limit=limit, lease=LEASE, lanes=[5], now=NOW)


LIMITS: dict[str, tuple[Callable[[Conn], None], str | None]] = {
    "concurrency": (lambda conn: limited_by(conn, 5), None),
    "rate": (lambda conn: limited_by(conn, None, rate=flow.rate("5/1h")), None),
    "a key": (lambda conn: limited_by(conn, None), "c1"),
    "a path": (lambda conn: limited_by(conn, None, per="id"), None),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limited_queue_is_not_walked_by_claims_and_hints(
    conn: Conn, explained: Explained, limit: str
) -> None:
    declare, key = LIMITS[limit]
    read: dict[str, list[int]] = {"own": [], "other": [], "hint": []}
    for length in (500, 20_000):
        conn.execute(
            "truncate semel.run, semel.agent, semel.agent_bucket, semel.worker cascade"
        )
        declare(conn)
        conn.execute(FLOOD, (key, length))
        conn.execute(OTHERS)
        conn.execute("vacuum analyze semel.run")
        for _ in range(8):  # until its limit; who waits for a key is moved away by then, once
            run(conn, claim("limited", 5))
        conn.execute("vacuum semel.run")  # as autovacuum does after 2,000 of them
        for name, call in {
            "own": claim("limited", 5),
            "other": claim("other", 100),
            "hint": claims.run_hint(["limited", "other"], now=NOW),
        }.items():
            explained.ask(call)  # once for its plans
            if name == "other":
                assert 100 == len(explained.ask(call))
            else:
                explained.ask(call)
            read[name].append(explained.buffers)

    for name, (short, long) in read.items():
        assert long <= 1.5 * short + 20, f"{name}: {short} buffers of 500, {long} of 20,000"
