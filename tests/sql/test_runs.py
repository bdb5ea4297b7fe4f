"""The run functions, one promise each. Time is passed in."""

import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from fix_world import DEAD, LEASE, NOW, Conn, one, row, second, start_run, status
from semel.core import claims, recovery, runs, steps, transitions, workers
from semel.db.execute import run
from semel.model import Claim


def claim(
    conn: Conn, worker: str = "w1", *, limit: int = 10, now: Any = NOW, **more: Any
) -> list[Claim]:
    return run(
        conn, claims.run_claim("p", "a", worker, limit=limit, lease=LEASE, now=now, **more)
    )


#: Where suspects wait that had the priority 5.
ALONE = (105,)


def complete(conn: Conn, held: Claim, worker: str | None = None, result: Any = None) -> str:
    ended = [(held.run_id, held.fence, json.dumps(result))]
    return run(conn, runs.run_complete("p", worker or held.worker, ended, now=second(1)))[
        0
    ].outcome


def reap(conn: Conn, at: float, *, trust: bool = True) -> list[Any]:
    return run(conn, recovery.run_reap("p", dead_after=DEAD, trust=trust, now=second(at)))


def test_a_claim_leases_counts_and_fences(conn: Conn) -> None:
    run_id = start_run(conn, value={"n": 1})

    [held] = claim(conn)

    assert (run_id, 1, 1, '{"n": 1}') == (held.run_id, held.fence, held.attempt, held.text)
    now = row(conn, run_id)
    assert ("RUNNING", "w1", NOW + LEASE) == (
        now["status"],
        now["worker_id"],
        now["lease_until"],
    )
    assert [] == claim(conn, "w2")


def test_claims_go_by_priority_and_then_by_arrival(conn: Conn) -> None:
    low, first, later, high = (start_run(conn, priority=p) for p in (1, 5, 5, 9))

    order = [claim(conn, limit=1)[0].run_id for _ in range(4)]

    assert [high, first, later, low] == order


def test_a_completion_moves_the_run_to_history_once(conn: Conn) -> None:
    run_id = start_run(conn, value=1)
    [held] = claim(conn)

    assert ["won", "already", "lost"] == [
        complete(conn, held, result={"ok": True}),
        complete(conn, held, result={"ok": True}),
        complete(conn, held, worker="w2"),
    ]
    done = row(conn, run_id)
    assert ("COMPLETED", {"ok": True}, 1) == (done["status"], done["result"], done["input"])
    assert 0 == one(conn, "select count(*) from semel.run")
    assert 1 == one(conn, "select count(*) from semel.run_history")


def test_a_failure_waits_and_then_is_claimed_again(conn: Conn) -> None:
    run_id = start_run(conn)
    [held] = claim(conn)

    failed = runs.run_fail(held, "E-RUN-006", "boom", delay=timedelta(seconds=10), now=NOW)
    assert ["retry", "already"] == [run(conn, failed)[0].outcome for _ in range(2)]

    assert 0 == run(conn, claims.run_due("p", now=second(9.9)))
    assert not run(conn, claims.run_hint(["a"], now=second(9.9)))
    assert [None] == [h.lane for h in run(conn, claims.run_hint(["a"], now=second(10)))]
    assert [] == claim(conn)
    assert 1 == run(conn, claims.run_due("p", "a", now=second(10)))
    [again] = claim(conn)
    assert (2, 3) == (again.attempt, again.fence)
    assert ("boom", "E-RUN-006") == (
        row(conn, run_id)["failure_reason"],
        row(conn, run_id)["failure_code"],
    )


def test_the_last_failure_says_exactly_what_the_contract_says(conn: Conn) -> None:
    run_id = start_run(conn, max_attempts=2)
    for _ in range(2):
        [held] = claim(conn)
        run(conn, runs.run_fail(held, "E-RUN-006", "boom", now=NOW))

    final = row(conn, run_id)

    assert ("FAILED", "E-RUN-003", "Max retry attempts exceeded") == (
        final["status"],
        final["failure_code"],
        final["failure_reason"],
    )
    assert [] == claim(conn)


def test_an_unretryable_failure_ends_at_once(conn: Conn) -> None:
    run_id = start_run(conn)
    [held] = claim(conn)

    assert (
        "failed"
        == run(conn, runs.run_fail(held, "E-RUN-007", "no JSON", retryable=False))[0].outcome
    )

    assert ("FAILED", "no JSON") == (status(conn, run_id), row(conn, run_id)["failure_reason"])


def test_a_release_uses_no_attempt_ten_times_and_then_does(conn: Conn) -> None:
    run_id = start_run(conn, max_attempts=2)
    attempts = []
    for _ in range(12):
        [held] = claim(conn)
        attempts.append(held.attempt)
        assert (
            "won"
            == run(conn, runs.run_release("p", "w1", [(run_id, held.fence)], now=NOW))[
                0
            ].outcome
        )

    assert [1] * 11 + [2] == attempts
    assert "lost" == run(conn, runs.run_release("p", "w1", [(run_id, 1)], now=NOW))[0].outcome


def test_a_run_has_started_with_its_first_claim_and_lives_from_its_last(conn: Conn) -> None:
    run_id = start_run(conn)
    assert (None, None) == (row(conn, run_id)["started_at"], row(conn, run_id)["heartbeat_at"])
    seen = []
    for at in (0, 1000, 2000):
        [held] = claim(conn, now=second(at))
        seen.append((row(conn, run_id)["started_at"], row(conn, run_id)["heartbeat_at"]))
        run(conn, runs.run_fail(held, "E-RUN-006", "boom", now=second(at)))
    run(conn, transitions.run_retry("p", run_id, now=second(3000)))
    assert NOW == row(conn, run_id)["started_at"]
    [held] = claim(conn, now=second(4000))
    assert "won" == complete(conn, held)

    assert [(NOW, NOW), (NOW, second(1000)), (NOW, second(2000))] == seen
    assert (NOW, second(4000)) == (
        row(conn, run_id)["started_at"],
        row(conn, run_id)["heartbeat_at"],
    )


def test_a_beat_renews_past_half_of_the_lease_and_names_what_is_lost(conn: Conn) -> None:
    kept, lost = start_run(conn), start_run(conn)
    held = {c.run_id: c.fence for c in claim(conn)}

    def beat(at: float, worker: str = "w1") -> list[Any]:
        return run(
            conn, workers.run_beat("p", worker, list(held.items()), lease=LEASE, now=second(at))
        )

    assert [] == beat(140)
    assert NOW + LEASE == row(conn, kept)["lease_until"]
    assert [] == beat(160)
    assert second(160) + LEASE == row(conn, kept)["lease_until"]
    assert second(160) == row(conn, kept)["heartbeat_at"]
    run(conn, runs.run_complete("p", "w1", [(lost, held[lost], "null")]))
    assert [(lost, 1)] == beat(170)
    assert {(kept, 1), (lost, 1)} == set(beat(170, worker="w2"))


def test_a_silent_worker_loses_its_runs_and_a_beating_one_keeps_them(conn: Conn) -> None:
    silent, beating = start_run(conn), start_run(conn)
    [first] = claim(conn, "silent", limit=1)
    [other] = claim(conn, "beating", limit=1)
    run(
        conn, workers.run_beat("p", "beating", [(other.run_id, 1)], lease=LEASE, now=second(25))
    )

    assert [] == reap(conn, 30)
    [reaped] = reap(conn, 30.1)

    assert (silent, "silent", "pending") == (reaped.run_id, reaped.worker, reaped.outcome)
    assert {"PENDING", "RUNNING"} == {status(conn, silent), status(conn, beating)}
    assert second(30.1) == row(conn, silent)["reaped_at"]
    assert first.fence < row(conn, silent)["fence"]


def test_a_run_without_a_worker_row_is_judged_by_its_lease(conn: Conn) -> None:
    run_id = start_run(conn)
    claim(conn)
    conn.execute("delete from semel.worker")

    assert [] == reap(conn, 299)
    assert [run_id] == [r.run_id for r in reap(conn, 300.1)]


def test_a_lease_that_passed_is_reaped_though_its_worker_beats(conn: Conn) -> None:
    run_id = start_run(conn)
    claim(conn)
    run(conn, workers.run_beat("p", "w1", [], lease=LEASE, now=second(299)))

    assert [run_id] == [r.run_id for r in reap(conn, 300.1)]


def test_a_reaped_run_is_claimed_alone_and_never_with_others(conn: Conn) -> None:
    suspect = start_run(conn)
    claim(conn)
    reap(conn, 31)
    ordinary = start_run(conn)

    hint = run(conn, claims.run_hint(["a"]))
    assert [5, 105] == sorted(h.lane or 0 for h in hint)
    assert [ordinary] == [c.run_id for c in claim(conn, "w2")]
    [again] = claim(conn, "w2~1", limit=1, lanes=ALONE)
    assert (suspect, 2, 3) == (again.run_id, again.attempt, again.fence)


def test_a_lost_worker_ends_a_run_without_attempts_left(conn: Conn) -> None:
    run_id = start_run(conn, max_attempts=1)
    claim(conn)

    assert ["failed"] == [r.outcome for r in reap(conn, 31)]

    assert "Max retry attempts exceeded" == row(conn, run_id)["failure_reason"]
    assert second(31) == row(conn, run_id)["reaped_at"]
    assert ("lost", "worker w1 was lost") == conn.execute(
        "select outcome, reason from semel.attempts where run_id = %s", (run_id,)
    ).fetchone()


def test_after_an_outage_nobody_is_judged_until_everybody_could_beat(conn: Conn) -> None:
    run_id = start_run(conn)
    claim(conn)
    assert [] == reap(conn, 1, trust=False)  # the first sweep ever is blind as well
    for at in range(31, 45, 5):
        run(conn, workers.run_beat("p", "w1", [(run_id, 1)], lease=LEASE, now=second(at)))
        assert [] == reap(conn, at, trust=False)

    # 400 s without a sweep: the database was away, and so were the beats.
    for at in range(441, 470, 5):
        assert [] == reap(conn, at, trust=False)
    assert "RUNNING" == status(conn, run_id)
    assert [run_id] == [r.run_id for r in reap(conn, 475, trust=False)]


def test_a_clock_that_stepped_back_reaps_nobody(conn: Conn) -> None:
    run_id = start_run(conn)
    for at in range(0, 45, 5):
        reap(conn, at, trust=False)
    claim(conn, now=second(45))
    reap(conn, 45, trust=False)

    # One hour back: the last sweep and the worker's beat now lie in the future.
    assert [] == reap(conn, -3600, trust=False)
    assert second(-3600) == one(conn, "select beat_at from semel.workers")
    for at in range(-3595, -3570, 5):
        run(conn, workers.run_beat("p", "w1", [(run_id, 1)], lease=LEASE, now=second(at)))
        assert [] == reap(conn, at, trust=False)
    run(conn, workers.run_beat("p", "w1", [(run_id, 1)], lease=LEASE, now=second(-3566)))
    assert [] == reap(conn, -3565, trust=False)
    assert "RUNNING" == status(conn, run_id)


def test_a_known_death_is_judged_at_once(conn: Conn) -> None:
    run_id, neighbour = start_run(conn), start_run(conn)
    claim(conn, "dead", limit=1)
    claim(conn, "alive", limit=1)

    lost = run(conn, recovery.worker_lost("p", "dead", now=second(1)))

    assert [run_id] == [r.run_id for r in lost]
    assert "RUNNING" == status(conn, neighbour)


def test_a_crash_costs_each_neighbour_one_attempt_and_no_start_more_than_it_may(
    conn: Conn,
) -> None:
    """Whose fault it was is not known: all have started once, also the one that may not again."""
    once = start_run(conn, max_attempts=1)
    thrice = start_run(conn, max_attempts=3)
    claim(conn, "dead", limit=2)

    lost = run(conn, recovery.worker_lost("p", "dead", now=second(1)))

    assert {once: "failed", thrice: "pending"} == {r.run_id: r.outcome for r in lost}
    assert ("Max retry attempts exceeded", 1) == (
        row(conn, once)["failure_reason"],
        row(conn, once)["attempt_count"],
    )
    assert [] == claim(conn, "w2", now=second(2))  # not beside others again
    [again] = claim(conn, "w2", now=second(2), lanes=ALONE)
    assert (thrice, 2) == (again.run_id, again.attempt)


def test_the_journal_keeps_one_result_per_step_and_refuses_a_lost_writer(conn: Conn) -> None:
    run_id = start_run(conn)
    [held] = claim(conn)

    def record(worker: str, fence: int, value: Any) -> Any:
        entries = [
            (run_id, fence, steps.Entry("s", "intent")),
            (run_id, fence, steps.Entry("s", "result", content=str(value))),
        ]
        return run(conn, steps.step_record("p", worker, entries, now=NOW))

    assert [("won", None), ("won", None)] == record("w1", held.fence, 1)
    assert [("won", None), ("already", "1")] == record("w1", held.fence, 2)
    assert [("lost", None)] * 2 == record("w2", held.fence, 3)
    assert [("lost", None)] * 2 == record("w1", held.fence + 1, 3)
    assert [1] == [
        c for [c] in conn.execute("select content from semel.steps where entry = 'result'")
    ]


def test_the_sql_refuses_a_null_or_strange_project_itself(conn: Conn) -> None:
    for project in (None, "", "UPPER"):
        with pytest.raises(psycopg.Error) as caught:
            conn.execute(
                "select * from semel.run_claim(%s, 'a', 'w', 1, '5 minutes')", (project,)
            )
        assert "SMQ01" == caught.value.sqlstate


def test_a_worker_that_leaves_gives_back_a_claim_it_never_read(conn: Conn) -> None:
    run_id = start_run(conn, max_attempts=1)
    claim(conn)

    run(conn, workers.worker_stop("p", "w1"))

    assert ("PENDING", 1) == (status(conn, run_id), row(conn, run_id)["attempt_count"])
    assert [1] == [c.attempt for c in claim(conn, "w2")]


def test_every_beat_is_written_however_soon_after_the_last(conn: Conn) -> None:
    """dead_after may be as short as a second: a beat that is skipped would be a death."""
    start_run(conn)
    [held] = claim(conn)
    for at in (0.1, 0.2, 0.3):
        run(conn, workers.run_beat("p", "w1", [(held.run_id, 1)], lease=LEASE, now=second(at)))
        assert second(at) == one(conn, "select beat_at from semel.workers")
