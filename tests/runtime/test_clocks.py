"""Only the database's clock counts, and it may step back: no run is lost by either."""

from datetime import timedelta

import pytest

from fix_world import Conn, Programs, one, row, start_run, status, until

FAST = {"worker_poll": "50ms", "worker_lease": "3s"}
STEP = timedelta(minutes=2)


def test_workers_whose_clocks_are_ten_minutes_off_are_workers(
    conn: Conn, programs: Programs
) -> None:
    slow = [start_run(conn, "sleep", 3) for _ in range(2)]
    programs.upkeep(**FAST)
    programs.skewed(-600, worker_slots="1", **FAST)
    programs.skewed(600, worker_slots="1", **FAST)
    quick = [start_run(conn, "echo", n) for n in range(10)]

    until(lambda: all(status(conn, run_id) == "COMPLETED" for run_id in slow + quick))

    assert 0 == one(conn, "select count(*) from semel.attempts where outcome <> 'completed'")
    assert [(1, 1)] == conn.execute(
        "select distinct attempt_count, fence from semel.runs"
    ).fetchall()
    assert 2 == one(
        conn, "select count(distinct worker_id) from semel.runs where agent = 'sleep'"
    )


@pytest.mark.timeout(90)
def test_a_database_clock_that_steps_back_two_minutes_loses_no_run(
    conn: Conn, programs: Programs
) -> None:
    """After the step, what was written before it lies in the future: it is moved there."""
    programs.upkeep(**FAST)
    programs.worker(**FAST)
    held = start_run(conn, "sleep", 4)
    until(lambda: one(conn, "select count(*) from public.started") == 1)
    with conn.transaction():
        ahead = start_run(conn, "echo", "of the future")
        conn.execute(
            "update semel.run set ready_at = ready_at + %s where ready_at is not null", (STEP,)
        )
        conn.execute(
            "update semel.run set lease_until = lease_until + %s, claimed_at = claimed_at + %s"
            " where worker_id is not null",
            (STEP, STEP),
        )
        conn.execute("update semel.worker set beat_at = beat_at + %s", (STEP,))
        conn.execute(
            "update semel.project set swept_at = swept_at + %s, leases_at = leases_at + %s,"
            " blind_until = blind_until + %s, purged_at = purged_at + %s",
            (STEP, STEP, STEP, STEP),
        )
    until(lambda: status(conn, ahead) == "COMPLETED")

    after = start_run(conn, "echo", "of now")  # behind the claimer's mark

    until(lambda: {status(conn, run_id) for run_id in (held, after)} == {"COMPLETED"})
    assert (1, 1) == (row(conn, held)["attempt_count"], row(conn, held)["fence"])
    lost = start_run(conn, "kill")
    until(lambda: row(conn, lost)["reaped_at"], within=60)  # who dies is still found
