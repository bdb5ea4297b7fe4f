"""Real workers killed, frozen and cut off: nothing is lost, nothing is done by two."""

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest

from fix_world import Conn, Programs, one, row, start_run, status, until
from semel.core import recovery
from semel.db import embedded, migrate
from semel.db.execute import run
from semel.db.pool import connect

pytestmark = pytest.mark.crash

QUICK = {"worker_lease": "3s", "worker_poll": "50ms"}  # heartbeat 0.5 s, dead after 1.5 s


def test_with_default_settings_a_killed_workers_runs_are_back_within_a_minute(
    conn: Conn, programs: Programs
) -> None:
    programs.upkeep()
    until(
        lambda: one(
            conn,
            "select count(*) from pg_stat_activity where application_name = 'semel-upkeep'",
        )
    )
    ids = [start_run(conn, "sleep", 0 if n else 300) for n in range(3)]
    first = programs.worker(worker_poll="50ms")
    until(lambda: status(conn, ids[0]) == "RUNNING")

    os.kill(first.pid, signal.SIGKILL)
    killed = time.monotonic()
    until(lambda: status(conn, ids[0]) == "PENDING", 60)
    took = time.monotonic() - killed

    assert took < 60
    given = row(conn, ids[0])
    assert ("E-LEASE-001", 1) == (given["failure_code"], given["attempt_count"])
    programs.worker(worker_poll="50ms")
    until(lambda: status(conn, ids[0]) == "RUNNING")
    again = row(conn, ids[0])
    assert 2 == again["attempt_count"]
    assert again["fence"] > given["fence"] >= 2


def test_a_killed_workers_runs_are_completed_by_another(conn: Conn, programs: Programs) -> None:
    programs.upkeep(**QUICK)
    ids = [start_run(conn, "sleep", 2) for _ in range(5)]
    first = programs.worker(**QUICK)
    until(lambda: one(conn, "select count(*) from public.started") == 5)

    os.kill(first.pid, signal.SIGKILL)
    programs.worker(**QUICK)

    until(lambda: all(status(conn, i) == "COMPLETED" for i in ids), 60)
    assert {2} == {row(conn, i)["attempt_count"] for i in ids}
    assert [(1, "lost"), (2, "completed")] == conn.execute(
        "select attempt, outcome from semel.attempts where run_id = %s order by fence",
        (ids[0],),
    ).fetchall()


def test_r1_a_frozen_worker_is_refused_when_it_thaws(conn: Conn, programs: Programs) -> None:
    run_id = start_run(conn, "sleep", 6)
    frozen = programs.worker(**QUICK)
    until(lambda: one(conn, "select count(*) from public.started") == 1)
    os.killpg(frozen.pid, signal.SIGSTOP)
    dead = timedelta(seconds=1)
    until(lambda: run(conn, recovery.run_reap("p", dead_after=dead, trust=True)))
    programs.worker(**QUICK)
    until(lambda: one(conn, "select count(*) from public.started where word = 'start'") == 2)

    os.killpg(frozen.pid, signal.SIGCONT)

    until(lambda: "run.lost" in programs.log())
    until(
        lambda: one(
            conn, "select count(*) from public.started where word = 'cancelled' and attempt = 1"
        )
    )
    until(lambda: status(conn, run_id) == "COMPLETED")
    done = row(conn, run_id)
    assert (2, "slept") == (done["attempt_count"], done["result"])
    assert frozen.poll() is None
    assert 1 == one(conn, "select count(*) from semel.run_history")


def test_r3_poison_starts_three_times_and_harms_no_neighbour(
    conn: Conn, programs: Programs
) -> None:
    programs.upkeep(**QUICK)
    poison = start_run(conn, "kill", priority=9)
    healthy = [start_run(conn, "sleep", 1) for _ in range(20)]
    for _ in range(2):
        programs.worker(**QUICK)

    until(lambda: status(conn, poison) == "FAILED", 60)
    until(lambda: all(status(conn, i) == "COMPLETED" for i in healthy), 60)

    failed = row(conn, poison)
    assert ("Max retry attempts exceeded", "E-RUN-003", 3) == (
        failed["failure_reason"],
        failed["failure_code"],
        failed["attempt_count"],
    )
    assert 3 == one(conn, "select count(*) from public.started where run_id = %s", poison)
    lost = conn.execute(
        "select outcome, reason from semel.attempts where run_id = %s", (poison,)
    ).fetchall()
    assert [("lost", True)] * 3 == [(outcome, "was lost" in reason) for outcome, reason in lost]
    assert 1 >= one(conn, "select max(attempt_count) - 1 from semel.runs where agent = 'sleep'")


def test_ten_workers_do_twenty_thousand_runs_once_each(conn: Conn, programs: Programs) -> None:
    conn.execute(
        "select count(r.run_id) from generate_series(1, 20000) as n"
        " cross join lateral semel.run_start('p', 'count', n::text) as r"
    )
    for _ in range(10):
        programs.worker(worker_poll="50ms", worker_slots="16")

    until(lambda: one(conn, "select count(*) from semel.run_history") == 20_000, 200)

    assert (20_000, 20_000) == conn.execute(
        "select count(*), count(distinct run_id) from public.started"
    ).fetchone()
    assert 20_000 == one(
        conn, "select count(*) from semel.runs where status = 'COMPLETED' and attempt_count = 1"
    )
    assert 1 < one(conn, "select count(distinct pid) from public.started")


@pytest.mark.parametrize(
    ("stop", "starts"),
    [
        ("worker.claim.before", 1),
        ("worker.claim.after", 1),
        ("worker.complete.before", 2),
        ("worker.complete.after", 1),
    ],
)
def test_a_worker_killed_at_a_commit_leaves_a_recoverable_run(
    conn: Conn, programs: Programs, stop: str, starts: int
) -> None:
    programs.upkeep(**QUICK)
    run_id = start_run(conn, "echo", 7)
    doomed = programs.worker(testing="1", stop_at=stop, **QUICK)
    assert -signal.SIGKILL == doomed.wait(30)

    programs.worker(**QUICK)

    until(lambda: status(conn, run_id) == "COMPLETED")
    assert 7 == row(conn, run_id)["result"]
    assert starts == one(conn, "select count(*) from public.started")
    assert 1 == one(conn, "select count(*) from semel.run_history")


def test_a_database_that_was_away_costs_nobody_a_lease(tmp_path: Path) -> None:
    """The server stops under long runs for longer than dead_after and than the lease's half."""
    home = tmp_path / "pg"
    embedded.keep(home)
    with embedded.use(home) as server, connect(server.dsn) as conn:
        dsn = server.dsn
        migrate.migrate(conn)
        conn.execute(
            "create table public.started (run_id uuid, attempt int, fence bigint, word text, pid int)"
        )
        ids = [start_run(conn, "sleep", 14) for _ in range(20)]
    settings = {
        "worker_lease": "18s",
        "worker_heartbeat": "1s",
        "worker_dead_after": "3s",
        "worker_pause": "2s",
    }
    running = Programs(dsn, tmp_path)
    try:
        running.upkeep(**settings)
        running.worker(worker_poll="50ms", **settings)
        with connect(dsn) as conn:
            until(lambda: one(conn, "select count(*) from public.started") == 20)
        embedded.stop(home)
        stopped = time.monotonic()
        until(lambda: time.monotonic() - stopped > 8)
        assert "worker.missed_beat" in running.log()
        embedded.keep(home)
        with embedded.use(home), connect(dsn) as conn:
            until(lambda: all(status(conn, i) == "COMPLETED" for i in ids), 60)
            assert 0 == one(conn, "select count(*) from semel.attempts where outcome = 'lost'")
            assert 20 == one(conn, "select count(*) from public.started where word = 'start'")
    finally:
        running.end()
        embedded.stop(home)


def test_a_heartbeat_that_hangs_does_not_keep_a_handler_beyond_its_lease(
    conn: Conn, programs: Programs
) -> None:
    """The backend of the heartbeat is frozen: no beat is answered, and none fails either."""
    run_id = start_run(conn, "sleep", 60)
    programs.worker(**QUICK)
    until(lambda: one(conn, "select count(*) from public.started"))
    backend = one(
        conn,
        "select pid from pg_stat_activity where application_name = 'semel-heartbeat'"
        " and datname = current_database()",
    )
    os.kill(backend, signal.SIGSTOP)
    try:
        cancelled = "select count(*) from public.started where word = 'cancelled'"
        until(lambda: one(conn, cancelled), 10)
    finally:
        os.kill(backend, signal.SIGCONT)
    assert status(conn, run_id) in {"RUNNING", "PENDING"}
