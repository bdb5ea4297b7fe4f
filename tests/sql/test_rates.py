"""Rates: an agent is claimed no more often than it may, by the database's clock. Time is passed in."""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fix_world import LEASE, NOW, Conn, one, second, start_run
from semel.core import agents, claims, flow, workers
from semel.db.execute import run

FLOOD = """
insert into semel.run (project_id, run_id, agent, status, lane, priority, ready_at, input, created_at)
select 'p', semel.uuid_at(clock_timestamp()), 'a', 'PENDING', 5, 5, clock_timestamp(), '{}',
    clock_timestamp() from generate_series(1, %s)
"""


def rated(conn: Conn, rate: str | None, **more: Any) -> None:
    """A worker announces the agent with a rate."""
    flows = [flow.Flow(rate=flow.rate(rate) if rate else None)]
    agent = ("a", 3, None, "async")
    announce = workers.worker_register(
        "p", "w", host="h", pid=1, slots=1, agents=[agent], flows=flows, now=NOW, **more
    )
    run(conn, announce)


def claimed(conn: Conn, at: datetime, limit: int = 100, worker: str = "w") -> int:
    return len(run(conn, claims.run_claim("p", "a", worker, limit=limit, lease=LEASE, now=at)))


def wait(conn: Conn, at: datetime) -> timedelta | None:
    [hint] = run(conn, claims.run_hint(["a"], now=at))
    return hint.rate_wait


def test_a_full_bucket_gives_as_many_as_the_rate_says_and_then_one_after_the_other(
    conn: Conn,
) -> None:
    rated(conn, "6/1m")
    conn.execute(FLOOD, (50,))

    assert 6 == claimed(conn, NOW)
    assert 0 == claimed(conn, second(9.999999))
    assert 1 == claimed(conn, second(10))
    assert 2 == claimed(conn, second(30))
    assert 6 == claimed(conn, second(3600))


def test_a_claim_takes_what_it_claims_and_not_what_it_asks_for(conn: Conn) -> None:
    rated(conn, "6/1m")
    start_run(conn)
    assert 1 == claimed(conn, NOW)
    assert 0 == claimed(conn, NOW)
    conn.execute(FLOOD, (50,))

    assert 5 == claimed(conn, NOW)


def test_the_hint_says_when_the_next_claim_is_due_and_it_is(conn: Conn) -> None:
    rated(conn, "7/1m")
    conn.execute(FLOOD, (50,))
    assert wait(conn, NOW) is None
    assert 7 == claimed(conn, NOW)

    due = wait(conn, NOW)

    assert due == timedelta(microseconds=8_571_429)
    assert due
    assert 0 == claimed(conn, NOW + due - timedelta(microseconds=1))
    assert wait(conn, NOW + due) is None
    assert 1 == claimed(conn, NOW + due)


def test_a_hint_from_the_marks_says_it_too(conn: Conn) -> None:
    rated(conn, "1/1m")
    conn.execute(FLOOD, (5,))
    assert 1 == claimed(conn, NOW)
    first = one(conn, "select min(ready_at) from semel.run")

    [hint] = run(conn, claims.run_hint(["a"], marks={("p", "a", "", 5): first}, now=second(15)))

    assert timedelta(seconds=45) == hint.rate_wait


def test_a_clock_that_steps_back_gives_nothing(conn: Conn) -> None:
    rated(conn, "6/1m")
    conn.execute(FLOOD, (50,))
    assert 6 == claimed(conn, NOW)

    assert [0, 0, 0] == [claimed(conn, second(at)) for at in (-30, -10, 0)]
    assert timedelta(seconds=40) == wait(conn, second(-30))
    assert 1 == claimed(conn, second(10))


def test_a_clock_that_steps_back_for_long_stops_nobody_for_longer_than_the_rates_time(
    conn: Conn,
) -> None:
    rated(conn, "6/1m")
    conn.execute(FLOOD, (50,))
    assert 3 == claimed(conn, NOW, 3)

    assert 3 == claimed(conn, second(-7200))
    assert 0 == claimed(conn, second(-7191))
    assert 1 == claimed(conn, second(-7190))


def test_another_rate_gives_nothing_for_the_change(conn: Conn) -> None:
    rated(conn, "6/1m")
    conn.execute(FLOOD, (200,))
    assert 6 == claimed(conn, NOW)

    rated(conn, "100/1s")

    assert 0 == claimed(conn, NOW)
    rated(conn, "6/1m")
    assert 0 == claimed(conn, NOW)
    rated(conn, "100/1s")
    assert 1 == claimed(conn, second(10))  # the less of both: one of six in a minute
    assert 100 == claimed(conn, second(20))
    rated(conn, "6/1m")
    assert 6 == claimed(conn, second(100))


def test_a_resume_and_a_retry_are_claims_too(conn: Conn) -> None:
    rated(conn, "1/1m")
    run_id = start_run(conn)
    assert 1 == claimed(conn, NOW)
    conn.execute(
        "update semel.run set status = 'RESUMED', lane = 0, worker_id = null, lease_until = null,"
        " ready_at = %s where run_id = %s",
        (NOW, run_id),
    )

    assert 0 == claimed(conn, second(59))
    assert 1 == claimed(conn, second(60))


def test_an_operators_rate_wins_over_the_code_until_it_is_cleared(conn: Conn) -> None:
    rated(conn, "6/1m")
    conn.execute(FLOOD, (50,))
    assert "won" == run(conn, agents.agent_set("p", "a", ["rate"], rate=flow.rate("2/1h")))
    assert "already" == run(conn, agents.agent_set("p", "a", ["rate"], rate=flow.rate("2/1h")))
    rated(conn, "6/1m")
    assert 2 == claimed(conn, NOW)

    assert "won" == run(conn, agents.agent_clear("p", "a"))
    assert "already" == run(conn, agents.agent_clear("p", "a"))
    assert 2 == claimed(conn, second(3600))  # the less of both, for the time of the change
    assert 6 == claimed(conn, second(3660))


def test_an_operator_may_set_no_limit_at_all(conn: Conn) -> None:
    rated(conn, "1/1h")
    conn.execute(FLOOD, (50,))

    assert "won" == run(conn, agents.agent_set("p", "a", ["rate"]))

    assert 50 == claimed(conn, NOW)


def test_two_workers_share_one_bucket_and_wait_for_nobody(conn: Conn, other: Conn) -> None:
    rated(conn, "6/1m")
    conn.execute(FLOOD, (50,))
    with conn.transaction():
        assert 4 == claimed(conn, NOW, 4)
        assert 0 == claimed(other, NOW, worker="w2")

    assert 2 == claimed(other, NOW, worker="w2")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            "agent_set('p', 'a', '{rate}', p_claims => 0, p_span => '1 m')",
            "a rate that is none",
        ),
        ("agent_set('p', 'a', '{rate}', p_claims => 1, p_span => '0')", "a rate that is none"),
        (
            "agent_set('p', 'a', '{rate}', p_claims => 1, p_span => '2 d')",
            "a rate that is none",
        ),
        ("agent_set('p', 'a', '{rate}', p_claims => 1)", "a rate that is none"),
        ("agent_set('p', 'a', '{concurrency}', p_max_running => 0)", "a limit below 1"),
        ("agent_set('p', 'a', '{per_limit}', p_key_limit => 0)", "a limit below 1"),
        ("agent_set('p', 'a', '{per_limit}')", "a limit below 1"),
    ],
)
def test_the_sql_refuses_a_limit_that_is_none(conn: Conn, call: str, said: str) -> None:
    with pytest.raises(psycopg.Error, match=said) as refused:
        conn.execute(f"select semel.{call}".encode())
    assert "pause it" in (refused.value.diag.message_hint or "")


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    rate=st.tuples(st.integers(1, 9), st.sampled_from([0.001, 1, 7, 60])),
    moves=st.lists(st.tuples(st.floats(0, 1.5), st.integers(1, 12)), min_size=5, max_size=25),
)
def test_in_any_window_no_more_is_claimed_than_was_saved_up_and_came_back(
    conn: Conn, rate: tuple[int, float], moves: list[tuple[float, int]]
) -> None:
    count, span = rate
    conn.execute("truncate semel.run, semel.agent, semel.agent_bucket, semel.worker cascade")
    rated(conn, flow.rate_text(count, span))
    conn.execute(FLOOD, (400,))
    at, taken = NOW, []
    for pause, limit in moves:
        at += timedelta(seconds=span) * pause
        taken += [at] * claimed(conn, at, limit)

    window = timedelta(seconds=span)
    for n, begin in enumerate(taken):
        within = [moment for moment in taken[n:] if moment < begin + window]
        assert len(within) <= 2 * count
    # And over all of it: a full bucket, and what came since.
    came = count * ((at - NOW) / window)
    assert len(taken) <= count + came + 1e-6
    assert all(a <= b for a, b in pairwise(taken))
