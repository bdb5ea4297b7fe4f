"""What an operator may do to a run, in every state; deadlines; unique keys; pause and limits."""

from datetime import timedelta
from typing import Any

import pytest

from fix_world import LEASE, NOW, Conn, one, row, start_run, status
from semel.core import agents, claims, recovery, runs, transitions, workers
from semel.db.execute import run
from semel.model import Claim


def claim(conn: Conn, worker: str = "w1", *, limit: int = 10, **more: Any) -> list[Claim]:
    return run(conn, claims.run_claim("p", "a", worker, limit=limit, lease=LEASE, **more))


def complete(conn: Conn, held: Claim) -> str:
    return run(conn, runs.run_complete("p", held.worker, [(held.run_id, held.fence, "1")]))[
        0
    ].outcome


def cancel(conn: Conn, run_id: Any) -> Any:
    return run(conn, transitions.run_cancel("p", run_id, reason="no longer wanted"))


def retry(conn: Conn, run_id: Any) -> Any:
    return run(conn, transitions.run_retry("p", run_id))[:2]


def test_a_pending_run_is_cancelled_and_never_claimed(conn: Conn) -> None:
    run_id = start_run(conn)

    assert [("won", "PENDING"), ("already", "CANCELLED")] == [
        cancel(conn, run_id) for _ in range(2)
    ]

    assert [] == claim(conn)
    ended = row(conn, run_id)
    assert ("CANCELLED", "E-RUN-005", "no longer wanted", 0) == (
        ended["status"],
        ended["failure_code"],
        ended["failure_reason"],
        ended["attempt_count"],
    )


def test_a_running_run_is_cancelled_its_worker_told_and_its_success_refused(conn: Conn) -> None:
    run_id = start_run(conn)
    [held] = claim(conn)

    assert ("won", "RUNNING") == cancel(conn, run_id)

    assert [(run_id, 1)] == run(conn, workers.run_beat("p", "w1", [(run_id, 1)], lease=LEASE))
    assert "lost" == complete(conn, held)
    assert row(conn, run_id)["fence"] > held.fence
    assert [("ended", "E-RUN-005")] == conn.execute(
        "select outcome, code from semel.attempts"
    ).fetchall()


def test_a_completed_run_is_not_cancelled(conn: Conn) -> None:
    run_id = start_run(conn)
    [held] = claim(conn)
    complete(conn, held)

    assert ("refused", "COMPLETED") == cancel(conn, run_id)
    assert "COMPLETED" == status(conn, run_id)
    assert ("refused", "COMPLETED") == retry(conn, run_id)


def test_a_run_nobody_knows_is_unknown(conn: Conn) -> None:
    stranger = one(conn, "select gen_random_uuid()")
    assert ("unknown", None) == cancel(conn, stranger) == retry(conn, stranger)


def test_a_cancel_that_is_rolled_back_has_no_effect(conn: Conn) -> None:
    run_id = start_run(conn)
    [held] = claim(conn)

    with conn.transaction(force_rollback=True):
        cancel(conn, run_id)

    assert "RUNNING" == status(conn, run_id)
    assert [] == run(conn, workers.run_beat("p", "w1", [(run_id, 1)], lease=LEASE))
    assert "won" == complete(conn, held)


def test_a_retry_allows_max_attempts_more_and_the_count_goes_on(conn: Conn) -> None:
    run_id = start_run(conn, max_attempts=2)
    fences = []
    for expected in (1, 2, 3, 4):
        if expected == 3:
            assert "FAILED" == status(conn, run_id)
            assert ("won", "FAILED") == retry(conn, run_id)
        [held] = claim(conn)
        assert expected == held.attempt
        fences.append(held.fence)
        run(conn, runs.run_fail(held, "E-RUN-006", "boom"))

    assert sorted(set(fences)) == fences
    assert "FAILED" == status(conn, run_id)
    assert 4 == one(conn, "select count(*) from semel.attempts")
    assert 1 == one(conn, "select count(*) from semel.runs")


def test_a_zombie_of_before_a_retry_is_refused(conn: Conn) -> None:
    run_id = start_run(conn, max_attempts=1)
    [zombie] = claim(conn)
    run(conn, recovery.worker_lost("p", "w1"))
    retry(conn, run_id)
    [owner] = claim(conn)

    assert ("lost", "won") == (complete(conn, zombie), complete(conn, owner))


def test_a_run_that_waits_for_its_retry_is_made_ready_at_once(conn: Conn) -> None:
    run_id = start_run(conn, delay=timedelta(hours=1))
    assert [] == claim(conn)

    assert ("won", "PENDING") == retry(conn, run_id)

    assert 1 == len(claim(conn))
    assert ("refused", "RUNNING") == retry(conn, run_id)


def test_a_deadline_fails_a_run_in_any_live_state(conn: Conn) -> None:
    waiting, running = (start_run(conn, deadline=timedelta(minutes=1)) for _ in range(2))
    in_time = start_run(conn, deadline=timedelta(hours=1))
    claimed = claim(conn, limit=1)[0].run_id
    passed = one(conn, "select min(deadline_at) from semel.runs") + timedelta(seconds=1)

    assert {waiting, running} == set(run(conn, transitions.run_overdue("p", now=passed)))

    assert {"FAILED"} == {status(conn, waiting), status(conn, running)}
    assert {"E-RUN-004"} == {row(conn, i)["failure_code"] for i in (waiting, running)}
    assert "PENDING" == status(conn, in_time)
    assert [(claimed, 1)] == run(conn, workers.run_beat("p", "w1", [(claimed, 1)], lease=LEASE))


def test_a_unique_key_has_one_live_run(conn: Conn) -> None:
    def start(**more: Any) -> Any:
        return run(conn, runs.run_start("p", "a", None, unique="u", **more))

    first = start()
    assert ("exists", first.run_id) == (start(key="k").outcome, start().run_id)
    assert 0 == one(conn, "select count(*) from semel.events")
    assert "new" == run(conn, runs.run_start("p", "b", None, unique="u")).outcome
    [held] = claim(conn)
    assert "exists" == start().outcome
    run(conn, recovery.worker_lost("p", "w1"))
    assert "exists" == start().outcome
    [held] = claim(conn, lanes=(105,))
    complete(conn, held)
    assert "new" == start().outcome


def test_a_retry_into_a_held_unique_key_is_refused(conn: Conn) -> None:
    first = run(conn, runs.run_start("p", "a", None, unique="u")).run_id
    cancel(conn, first)
    run(conn, runs.run_start("p", "a", None, unique="u"))

    assert ("refused", "CANCELLED") == retry(conn, first)
    assert "CANCELLED" == status(conn, first)


def test_a_paused_agent_is_neither_hinted_nor_claimed(conn: Conn) -> None:
    start_run(conn)

    assert ["won", "already"] == [run(conn, agents.agent_pause("p", "a")) for _ in range(2)]
    assert [] == run(conn, claims.run_hint(["a"]))
    assert [] == claim(conn)
    assert ["won", "already"] == [run(conn, agents.agent_resume("p", "a")) for _ in range(2)]
    assert 1 == len(run(conn, claims.run_hint(["a"]))) == len(claim(conn))


def limit(conn: Conn, agent: int | None, project: int | None = None) -> None:
    worker = workers.worker_register(
        "p", "w", host="h", pid=1, slots=1, agents=[("a", 3, agent, "async")]
    )
    run(conn, worker)
    conn.execute("select semel.project_limit('p', %s)", (project,))


@pytest.mark.parametrize(("agent", "project"), [(3, None), (None, 3), (5, 3), (3, 5)])
def test_a_limit_is_exact_and_heals_itself(
    conn: Conn, agent: int | None, project: int | None
) -> None:
    for _ in range(10):
        start_run(conn)
    limit(conn, agent, project)

    held = claim(conn, limit=2)
    held += claim(conn, "w2", limit=2)
    assert 3 == len(held)
    assert [] == claim(conn, "w3")
    complete(conn, held[0])
    assert 1 == len(claim(conn, "w3"))
    run(conn, recovery.worker_lost("p", "w2"))
    assert 1 == len(claim(conn, "w3"))


def test_a_claim_that_meets_anothers_limit_goes_on(conn: Conn, other: Conn) -> None:
    """A limited agent's row is locked: nobody waits for it."""
    for _ in range(4):
        start_run(conn)
    limit(conn, 3)

    with other.transaction():
        assert 2 == len(claim(other, limit=2))
        assert [] == claim(conn, "w2")
    assert 1 == len(claim(conn, "w2"))


def test_every_eighth_claim_takes_what_waits_longest(conn: Conn) -> None:
    old = start_run(conn, priority=0)
    new = [start_run(conn, priority=9) for _ in range(3)]

    assert [new[0]] == [c.run_id for c in claim(conn, limit=1)]
    assert [old] == [c.run_id for c in claim(conn, limit=1, oldest=True)]
    assert [new[1]] == [c.run_id for c in claim(conn, limit=1)]


def test_a_mark_bounds_a_claim_and_a_look_from_the_start_finds_what_is_behind_it(
    conn: Conn,
) -> None:
    behind, ahead = start_run(conn), start_run(conn)
    conn.execute("update semel.run set ready_at = %s where run_id = %s", (NOW, behind))
    conn.execute(
        "update semel.run set ready_at = %s where run_id = %s",
        (NOW + timedelta(seconds=1), ahead),
    )
    mark = NOW + timedelta(seconds=1)

    marked = run(conn, claims.run_hint(["a"], marks={("p", "a", "", 5): mark}))
    assert [mark] == [h.ready_at for h in marked]
    assert [NOW] == [h.ready_at for h in run(conn, claims.run_hint(["a"]))]
    assert [ahead] == [c.run_id for c in claim(conn, lanes=[5], marks=[mark])]
    assert [behind] == [c.run_id for c in claim(conn, lanes=[5], marks=[NOW])]


def test_a_mark_leaves_room_for_what_commits_a_little_late(conn: Conn) -> None:
    late = start_run(conn)
    conn.execute("update semel.run set ready_at = %s", (NOW,))
    for ahead, found in ((0.099, [late]), (0.101, [])):
        mark = NOW + timedelta(seconds=ahead)
        assert found == [c.run_id for c in claim(conn, lanes=[5], marks=[mark])]
        run(conn, runs.run_release("p", "w1", [(late, 1)]))
        conn.execute("update semel.run set ready_at = %s", (NOW,))
