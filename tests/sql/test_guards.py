"""The guards that only a particular moment, or a particular stranger, would find missing."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from fix_world import DEAD, LEASE, NOW, Conn, one, row, second, start_run, status
from semel.core import (
    agents,
    claims,
    inbox,
    recovery,
    runs,
    steps,
    transitions,
    upkeep,
    workers,
)
from semel.db.execute import run
from semel.errors import BadRequest
from semel.model import Claim, Offer

DAY = timedelta(days=1)
MOMENT = timedelta(microseconds=1)


def claim(conn: Conn, worker: str = "w1", **more: Any) -> list[Claim]:
    return run(conn, claims.run_claim("p", "a", worker, limit=9, lease=LEASE, now=NOW, **more))


def reap(conn: Conn, at: Any, *, trust: bool = True) -> list[Any]:
    return run(conn, recovery.run_reap("p", dead_after=DEAD, trust=trust, now=at))


# -- moments ---------------------------------------------------------------------------------


def test_a_run_is_due_at_its_time_and_not_before(conn: Conn) -> None:
    start_run(conn, delay=timedelta(hours=1))
    due = one(conn, "select due_at from semel.runs")

    assert [] == run(conn, claims.run_hint(["a"], now=due - MOMENT))
    assert 1 == len(run(conn, claims.run_hint(["a"], now=due)))
    assert [0, 1] == [run(conn, claims.run_due("p", now=at)) for at in (due - MOMENT, due)]


def test_a_deadline_has_passed_at_its_moment_and_not_before(conn: Conn) -> None:
    run_id = start_run(conn, deadline=timedelta(hours=1))
    deadline = one(conn, "select deadline_at from semel.runs")

    assert [] == run(conn, transitions.run_overdue("p", now=deadline - MOMENT))
    assert [run_id] == run(conn, transitions.run_overdue("p", now=deadline))


def test_a_worker_is_dead_after_dead_after_and_not_at_it(conn: Conn) -> None:
    start_run(conn)
    claim(conn)

    assert [] == reap(conn, NOW + DEAD)
    assert 1 == len(reap(conn, NOW + DEAD + MOMENT))


def test_a_lease_is_over_after_its_end_and_not_at_it(conn: Conn) -> None:
    start_run(conn)
    claim(conn)
    conn.execute("delete from semel.worker")

    assert [] == reap(conn, NOW + LEASE)
    assert 1 == len(reap(conn, NOW + LEASE + MOMENT))


def test_a_lease_is_renewed_after_its_half_and_not_at_it(conn: Conn) -> None:
    run_id = start_run(conn)
    claim(conn)

    for at, until_ in ((NOW + LEASE / 2, NOW + LEASE), (NOW + LEASE / 2 + MOMENT, None)):
        run(conn, workers.run_beat("p", "w1", [(run_id, 1)], lease=LEASE, now=at))
        assert (until_ or at + LEASE) == row(conn, run_id)["lease_until"]


def test_the_reaper_trusts_silence_again_after_exactly_dead_after(conn: Conn) -> None:
    start_run(conn)
    claim(conn)
    blind = NOW + DAY

    assert [] == reap(conn, blind, trust=False)
    for seconds in (10, 20):
        assert [] == reap(conn, blind + timedelta(seconds=seconds), trust=False)
    assert 1 == len(reap(conn, blind + DEAD, trust=False))


@pytest.mark.parametrize(("gap", "found"), [(0, 1), (0.000001, 0)])
def test_a_sweep_is_late_after_fifteen_seconds(conn: Conn, gap: float, found: int) -> None:
    start_run(conn)
    claim(conn)
    conn.execute(
        "insert into semel.project (project_id, created_at, swept_at) values ('p', %s, %s)",
        (NOW, second(985)),
    )

    assert found == len(reap(conn, second(1000 + gap), trust=False))


def test_a_run_that_was_suspected_is_judged_again_under_its_lock(conn: Conn) -> None:
    """A beat or a renewal may have come since the sweep saw it."""
    run_id = start_run(conn)
    claim(conn)

    def lose(at: Any) -> int:
        lost = "select count(*) from semel.run_lose('p', array[%s]::uuid[], %s, %s)"
        return int(one(conn, lost, run_id, DEAD, at))

    assert [0, 0] == [lose(NOW), lose(NOW + DEAD)]
    run(conn, workers.run_beat("p", "w1", [], lease=LEASE, now=NOW + LEASE))
    assert [0, 1] == [lose(NOW + LEASE), lose(NOW + LEASE + MOMENT)]


def test_an_operators_retry_outlives_lost_workers_too(conn: Conn) -> None:
    run_id = start_run(conn, max_attempts=2)
    fates = []
    for attempt in range(1, 5):
        if attempt == 3:
            run(conn, transitions.run_retry("p", run_id, now=NOW))
        [held] = claim(conn, lanes=(5, 105))
        assert attempt == held.attempt
        fates += [lost.outcome for lost in run(conn, recovery.worker_lost("p", "w1", now=NOW))]

    assert ["pending", "failed"] * 2 == fates


def test_a_body_is_kept_a_day_longer_than_its_sighting_says(conn: Conn) -> None:
    offer = Offer(source="s", channel="api", id="1", agent="a", body=b"x" * 1025)
    run(conn, inbox.event_accept("p", [offer], now=NOW))

    def dropped(at: Any) -> int:
        return run(conn, upkeep.leftovers_drop("p", 7 * DAY, 30 * DAY, now=at))

    assert [0, 1] == [dropped(NOW + 8 * DAY - MOMENT), dropped(NOW + 8 * DAY)]


def test_a_marked_hint_begins_a_tenth_of_a_second_behind(conn: Conn) -> None:
    start_run(conn)
    conn.execute("update semel.run set ready_at = %s", (NOW,))

    for ahead, found in ((0.1, 1), (0.100001, 0)):
        marks = {("p", "a", "", 5): second(ahead)}
        assert found == len(run(conn, claims.run_hint(["a"], marks=marks)))


# -- strangers -------------------------------------------------------------------------------


@pytest.mark.parametrize("project", ["p" * 65, "-p", "p p", "P"])
def test_the_sql_refuses_what_is_no_slug(conn: Conn, project: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        conn.execute("select semel.run_due(%s)", (project,))
    assert "SMQ01" == caught.value.sqlstate


@pytest.mark.parametrize("bad", [{"priority": 10}, {"priority": -1}, {"agent": "a b"}])
def test_the_sql_refuses_a_run_that_no_claim_would_find(
    conn: Conn, bad: dict[str, Any]
) -> None:
    offer = Offer(**{"source": "s", "channel": "api", "id": "1", "agent": "a", **bad})
    with pytest.raises(BadRequest):
        run(conn, inbox.event_accept("p", [offer]))
    assert 0 == one(conn, "select count(*) from semel.events")


def test_the_sql_refuses_more_events_than_a_batch_holds(conn: Conn) -> None:
    offers = [Offer(source="s", channel="api", id=str(n)) for n in range(257)]
    assert 256 == len(run(conn, inbox.event_accept("p", offers[1:])))
    with pytest.raises(BadRequest):
        run(conn, inbox.event_accept("p", offers))


def test_no_two_pairs_of_source_and_id_are_one_event(conn: Conn) -> None:
    pairs = [("ab", "c"), ("a", "bc"), ("abc", "")]
    keys = {one(conn, "select semel.event_key(%s, %s)", *pair) for pair in pairs}
    assert 3 == len(keys)


def test_a_fence_in_another_workers_hands_opens_nothing(conn: Conn) -> None:
    """An asynchronous failover can hand the same fence out twice."""
    run_id = start_run(conn)
    [held] = claim(conn)
    thief = replace(held, worker="w2")
    before = row(conn, run_id)
    later = NOW + LEASE * 0.9
    pair = [(run_id, held.fence)]

    assert pair == run(conn, workers.run_beat("p", "w2", pair, lease=LEASE, now=later))
    assert "lost" == run(conn, runs.run_fail(thief, "E-RUN-006", "boom"))[0].outcome
    assert "lost" == run(conn, runs.run_release("p", "w2", pair))[0].outcome
    assert "lost" == run(conn, runs.run_complete("p", "w2", [(*pair[0], "1")]))[0].outcome
    record = steps.step_record("p", "w2", [(*pair[0], steps.Entry("s", "result"))])
    assert [("lost", None)] == run(conn, record)
    assert before == row(conn, run_id)
    run(conn, runs.run_fail(held, "E-RUN-006", "boom"))
    assert "lost" == run(conn, runs.run_fail(thief, "E-RUN-006", "boom"))[0].outcome
    assert "already" == run(conn, runs.run_fail(held, "E-RUN-006", "boom"))[0].outcome


def test_a_hint_names_only_the_agents_asked_for(conn: Conn) -> None:
    for agent in ("a", "b"):
        start_run(conn, agent)
    assert ["a"] == [hint.agent for hint in run(conn, claims.run_hint(["a"]))]


def test_a_paused_agent_is_left_out_of_both_hints(conn: Conn) -> None:
    start_run(conn)
    conn.execute("update semel.run set ready_at = %s", (NOW,))
    run(conn, agents.agent_pause("p", "a"))

    assert [] == run(conn, claims.run_hint(["a"]))
    assert [] == run(conn, claims.run_hint(["a"], marks={("p", "a", "", 5): NOW}))


# -- neighbours ------------------------------------------------------------------------------


def test_a_resumed_run_goes_ahead_of_every_priority(conn: Conn) -> None:
    lanes = [one(conn, "select semel.run_lane('PENDING', %s, false)", n) for n in range(10)]
    assert sorted(set(lanes), reverse=True) == lanes
    assert min(lanes) > one(conn, "select semel.run_lane('RESUMED', 0, false)")


def test_a_claim_goes_past_a_run_that_another_is_claiming(conn: Conn, other: Conn) -> None:
    first, next_ = start_run(conn), start_run(conn)
    conn.execute("set lock_timeout = '300ms'")

    with other.transaction():
        taken = run(other, claims.run_claim("p", "a", "w", limit=1, lease=LEASE))
        assert [first] == [held.run_id for held in taken]
        assert [next_] == [held.run_id for held in claim(conn)]


def test_an_agents_limit_counts_its_own_runs(conn: Conn) -> None:
    for agent in ("b", "b", "a", "a"):
        start_run(conn, agent)
    limited = [("a", 3, 1, "async"), ("b", 3, None, "async")]
    run(conn, workers.worker_register("p", "w", host="h", pid=1, slots=1, agents=limited))
    assert 2 == len(run(conn, claims.run_claim("p", "b", "w", limit=2, lease=LEASE)))

    assert 1 == len(claim(conn))
    assert [] == claim(conn)


def test_a_claim_that_meets_another_at_the_projects_limit_goes_on(
    conn: Conn, other: Conn
) -> None:
    for _ in range(3):
        start_run(conn)
    conn.execute("select semel.project_limit('p', 2)")
    conn.execute("set lock_timeout = '300ms'")

    with other.transaction():
        assert 1 == len(run(other, claims.run_claim("p", "a", "w", limit=1, lease=LEASE)))
        assert [] == claim(conn)
    assert 1 == len(claim(conn))


def test_a_run_is_not_reaped_while_its_step_is_being_recorded(conn: Conn, other: Conn) -> None:
    run_id = start_run(conn)
    [held] = claim(conn)

    with other.transaction():
        entry = steps.Entry("s", "result", content="1")
        record = steps.step_record("p", "w1", [(run_id, held.fence, entry)])
        assert [("won", None)] == run(other, record)
        assert [] == reap(conn, NOW + DAY)

    assert "RUNNING" == status(conn, run_id)


def test_a_suspect_that_is_given_back_stays_apart(conn: Conn) -> None:
    run_id = start_run(conn)
    claim(conn)
    run(conn, recovery.worker_lost("p", "w1"))
    [held] = claim(conn, lanes=(105,))

    run(conn, runs.run_release("p", "w1", [(run_id, held.fence)], now=NOW))

    assert [] == claim(conn)
    assert [held.attempt] == [again.attempt for again in claim(conn, lanes=(105,))]


@pytest.mark.parametrize("order", [1, -1])
def test_a_call_with_two_holds_of_one_run_wins_once(conn: Conn, order: int) -> None:
    """A worker that lost a run and has it again: what its first handler says is not taken."""
    run_id = start_run(conn)
    [old] = claim(conn)
    run(conn, runs.run_release("p", "w1", [(run_id, old.fence)], now=NOW))
    [new] = claim(conn)
    both = [(run_id, old.fence), (run_id, new.fence)][::order]
    expected = ["lost", "won"][::order]

    released = run(conn, runs.run_release("p", "w1", both, now=NOW))
    assert expected == [answer.outcome for answer in released]
    [newest] = claim(conn)
    ended = [(run_id, old.fence, '"old"'), (run_id, newest.fence, '"new"')][::order]
    assert expected == [e.outcome for e in run(conn, runs.run_complete("p", "w1", ended))]
    assert "new" == row(conn, run_id)["result"]
