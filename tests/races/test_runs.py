"""Two at one run: exactly one transition wins, whoever was first."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from fix_world import DEAD, LEASE, NOW, Conn, one, row, second, start_run, status, until_blocked
from semel.core import claims, recovery, runs, steps, workers
from semel.db.execute import run
from semel.db.pool import connect
from semel.model import Claim


def claim(conn: Conn, worker: str, **more: Any) -> Claim:
    [held] = run(
        conn, claims.run_claim("p", "a", worker, limit=1, lease=timedelta(seconds=3), **more)
    )
    return held


def reap(at: float) -> Any:
    return recovery.run_reap("p", dead_after=timedelta(seconds=1), trust=True, now=second(at))


def writes(held: Claim) -> dict[str, Any]:
    """Every write that a worker has, in the order of R1; each answers what became of it."""
    named = [(held.run_id, held.fence)]
    ended = [(held.run_id, held.fence, "null")]
    return {
        "beat": workers.run_beat("p", held.worker, named, lease=LEASE, now=second(6)),
        "step": steps.step_record(
            "p", held.worker, [(held.run_id, held.fence, steps.Entry("s", "result"))]
        ),
        "complete": runs.run_complete("p", held.worker, ended),
        "fail": runs.run_fail(held, "E-RUN-006", "late"),
        "release": runs.run_release("p", held.worker, named),
    }


def refused(name: str, answer: Any, held: Claim) -> bool:
    match name:
        case "beat":
            return bool(answer == [(held.run_id, held.fence)])
        case "step":
            return bool(answer == [("lost", None)])
        case _:
            return bool(answer[0].outcome == "lost")


@pytest.mark.parametrize("second_worker", ["w2", "w1"])
def test_r1_a_zombie_cannot_write(conn: Conn, second_worker: str) -> None:
    """W1 froze and W2 has the run, perhaps under the same name: nothing W1 sends changes anything."""
    run_id = start_run(conn)
    zombie = claim(conn, "w1", now=NOW)
    assert "pending" == run(conn, reap(5))[0].outcome
    owner = claim(conn, second_worker, lanes=(105,), now=second(5))
    before = row(conn, run_id)

    for name, call in writes(zombie).items():
        assert refused(name, run(conn, call), zombie), name
        now = row(conn, run_id)
        if second_worker == "w1":  # its name is W2's own, so its beat is W2's sign of life
            now["heartbeat_at"] = before["heartbeat_at"]
        assert before == now, name

    assert 0 == one(conn, "select count(*) from semel.steps")
    assert (
        "won"
        == run(conn, runs.run_complete("p", owner.worker, [(run_id, owner.fence, "1")]))[
            0
        ].outcome
    )


def test_r1_a_zombie_cannot_write_after_a_release_with_the_same_attempt(conn: Conn) -> None:
    """The run was given back and claimed again: same attempt number, another fence."""
    run_id = start_run(conn)
    zombie = claim(conn, "w1")
    run(conn, runs.run_release("p", "w1", [(run_id, zombie.fence)]))
    owner = claim(conn, "w1")
    assert zombie.attempt == owner.attempt

    for name, call in writes(zombie).items():
        assert refused(name, run(conn, call), zombie), name

    assert ("RUNNING", owner.fence) == (status(conn, run_id), row(conn, run_id)["fence"])


def in_thread(dsn: str, call: Any, answers: list[Any]) -> tuple[threading.Thread, int]:
    conn = connect(dsn)
    pid = conn.info.backend_pid

    def go() -> None:
        with conn:
            answers.append(run(conn, call))

    return threading.Thread(target=go), pid


def test_r2_completion_waits_for_the_reaper_and_is_refused(
    dsn: str, conn: Conn, other: Conn
) -> None:
    run_id = start_run(conn)
    held = claim(conn, "w1", now=NOW)
    answers: list[Any] = []
    thread, pid = in_thread(
        dsn, runs.run_complete("p", "w1", [(run_id, held.fence, "1")]), answers
    )

    with other.transaction():
        assert [run_id] == [r.run_id for r in run(other, reap(5))]
        thread.start()
        until_blocked(conn, pid)
    thread.join()

    assert ["lost"] == [e.outcome for e in answers[0]]
    assert ("PENDING", 1) == (status(conn, run_id), row(conn, run_id)["attempt_count"])
    assert 0 == one(conn, "select count(*) from semel.run_history")


def test_r2_the_reaper_leaves_a_completing_run_alone(conn: Conn, other: Conn) -> None:
    run_id = start_run(conn)
    held = claim(conn, "w1", now=NOW)

    with other.transaction():
        assert (
            "won"
            == run(other, runs.run_complete("p", "w1", [(run_id, held.fence, "1")]))[0].outcome
        )
        assert [] == run(conn, reap(5))
    assert [] == run(conn, reap(6))

    assert ("COMPLETED", 1) == (status(conn, run_id), row(conn, run_id)["attempt_count"])
    assert 0 == one(conn, "select count(*) from semel.attempts where outcome = 'lost'")


def test_r2_two_reapers_take_a_run_once(dsn: str, conn: Conn, other: Conn) -> None:
    run_id = start_run(conn)
    claim(conn, "w1", now=NOW)
    assert [] == run(conn, reap(0))

    with other.transaction():
        assert [run_id] == [r.run_id for r in run(other, reap(5))]
        assert [] == run(conn, reap(5))
    assert [] == run(conn, reap(6))

    assert 1 == one(conn, "select count(*) from semel.attempts where outcome = 'lost'")


def test_sixteen_claimers_share_nothing(dsn: str, conn: Conn) -> None:
    for _ in range(200):
        start_run(conn)
    taken: list[Any] = []
    gate = threading.Barrier(16)

    def claim_all(worker: str) -> None:
        with connect(dsn) as mine:
            gate.wait()
            while got := run(mine, claims.run_claim("p", "a", worker, limit=7, lease=LEASE)):
                taken.extend(c.run_id for c in got)

    threads = [threading.Thread(target=claim_all, args=(f"w{n}",)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 200 == len(taken) == len(set(taken))


def test_reaping_and_beating_at_once_keep_the_worker_that_beats(
    dsn: str, conn: Conn, other: Conn
) -> None:
    """A beat that is not yet committed when the sweep looks: the sweep waits for no one, and errs once at most."""
    run_id = start_run(conn)
    held = claim(conn, "w1", now=NOW)
    run(conn, workers.run_beat("p", "w1", [(run_id, held.fence)], lease=LEASE, now=second(2)))

    with other.transaction():
        run(other, recovery.run_reap("p", dead_after=DEAD, trust=True, now=second(3)))
        assert [] == run(
            conn,
            workers.run_beat("p", "w1", [(run_id, held.fence)], lease=LEASE, now=second(3)),
        )

    assert "RUNNING" == status(conn, run_id)
