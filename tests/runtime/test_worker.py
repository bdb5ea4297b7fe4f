"""Real worker processes: what handlers do to a run, and what a stop does to a worker."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import semel
from fix_world import Conn, Programs, one, row, start_run, status, until

FAST = {"worker_poll": "50ms"}


def ended(conn: Conn, run_id: Any) -> dict[str, Any]:
    until(lambda: status(conn, run_id) in {"COMPLETED", "FAILED", "CANCELLED"})
    return row(conn, run_id)


def test_a_worker_completes_what_is_started(conn: Conn, programs: Programs) -> None:
    small = start_run(conn, "echo", {"x": [1, "é台北", 2**53 + 1, 10**40 + 1]})
    large = start_run(conn, "echo", "y" * 100_000, project="other")
    programs.worker(**FAST)

    first, second = ended(conn, small), ended(conn, large)

    assert ("COMPLETED", {"x": [1, "é台北", 2**53 + 1, 10**40 + 1]}, 1, 1) == (
        first["status"],
        first["result"],
        first["attempt_count"],
        first["fence"],
    )
    assert "y" * 100_000 == second["input"] == second["result"]


@pytest.mark.parametrize(
    ("agent", "code", "words"),
    [
        ("raise", "E-RUN-003", "Max retry attempts exceeded"),
        ("exit", "E-RUN-003", "Max retry attempts exceeded"),
        ("exit-in-thread", "E-RUN-003", "Max retry attempts exceeded"),
        ("no-json", "E-RUN-007", "the result is no JSON"),
        ("ten-megabytes", "E-RUN-007", "at most 1048576 can be stored"),
    ],
)
def test_a_handler_that_ends_badly_ends_its_run_with_the_reason(
    conn: Conn, programs: Programs, agent: str, code: str, words: str
) -> None:
    run_id = start_run(conn, agent)
    programs.worker(**FAST)

    failed = ended(conn, run_id)

    assert ("FAILED", code) == (failed["status"], failed["failure_code"])
    assert words in failed["failure_reason"]
    neighbour = start_run(conn, "echo", 1)
    assert "COMPLETED" == ended(conn, neighbour)["status"]


def test_every_attempt_keeps_its_own_error(conn: Conn, programs: Programs) -> None:
    run_id = start_run(conn, "raise")
    programs.worker(**FAST)

    ended(conn, run_id)

    reasons = conn.execute(
        "select attempt, outcome, code, reason from semel.attempts where run_id = %s order by fence",
        (run_id,),
    ).fetchall()
    assert [(1, "failed", "E-RUN-006"), (2, "failed", "E-RUN-006")] == [r[:3] for r in reasons]
    assert "ValueError: attempt 1 went wrong" in reasons[0][3]
    assert "ValueError: attempt 2 went wrong" in reasons[1][3]


def test_a_blocked_loop_keeps_its_lease(conn: Conn, programs: Programs) -> None:
    """It blocks for longer than dead_after, and than half of its lease."""
    run_id = start_run(conn, "block-the-loop", 8)
    programs.worker(worker_lease="9s", **FAST)
    programs.upkeep(worker_lease="9s")

    assert ("COMPLETED", 1) == (
        ended(conn, run_id)["status"],
        row(conn, run_id)["attempt_count"],
    )


def test_process_handlers_run_elsewhere_and_their_process_is_reused(
    conn: Conn, programs: Programs
) -> None:
    worker = programs.worker(worker_slots="1", **FAST)
    agents = ("in-process", "async-in-process", "in-process")
    pids = [ended(conn, start_run(conn, agent))["result"]["pid"] for agent in agents]

    assert worker.pid not in pids
    assert 1 == len(set(pids))


def test_a_process_handler_that_kills_itself_costs_only_its_own_attempts(
    conn: Conn, programs: Programs
) -> None:
    neighbour = start_run(conn, "sleep", 3)
    run_id = start_run(conn, "kill-in-process")
    programs.worker(**FAST)

    failed = ended(conn, run_id)

    assert "Max retry attempts exceeded" == failed["failure_reason"]
    assert 2 == one(conn, "select count(*) from public.started where run_id = %s", run_id)
    assert "killed by SIGKILL" in one(
        conn,
        "select reason from semel.attempts where run_id = %s order by fence limit 1",
        run_id,
    )
    assert ("COMPLETED", 1) == (
        ended(conn, neighbour)["status"],
        row(conn, neighbour)["attempt_count"],
    )


def test_unknown_kinds_are_left_alone(conn: Conn, programs: Programs) -> None:
    strange = start_run(conn, "of-another-program")
    programs.worker(**FAST)

    ended(conn, start_run(conn, "noop"))

    assert ("PENDING", 0) == (status(conn, strange), row(conn, strange)["attempt_count"])


@pytest.mark.parametrize("agent", ["sleep", "sleep-in-thread"])
def test_sigterm_gives_runs_back_and_uses_no_attempt(
    conn: Conn, programs: Programs, agent: str
) -> None:
    run_id = start_run(conn, agent, 60)
    worker = programs.worker(worker_drain="100ms", **FAST)
    until(lambda: one(conn, "select count(*) from public.started"))

    worker.send_signal(signal.SIGTERM)
    assert 0 == worker.wait(30)

    given = row(conn, run_id)
    assert ("PENDING", 1, None) == (given["status"], given["attempt_count"], given["worker_id"])
    assert 1 == one(
        conn,
        "select count(*) from semel.workers where project_id = 'p' and stopped_at is not null",
    )
    programs.worker(**FAST)
    until(lambda: status(conn, run_id) == "RUNNING")
    again = row(conn, run_id)
    assert (1, 3) == (again["attempt_count"], again["fence"])


def test_sigterm_lets_a_short_handler_finish(conn: Conn, programs: Programs) -> None:
    run_id = start_run(conn, "sleep", 1)
    worker = programs.worker(worker_drain="20s", **FAST)
    until(lambda: one(conn, "select count(*) from public.started"))

    worker.send_signal(signal.SIGTERM)
    assert 0 == worker.wait(30)

    assert "COMPLETED" == status(conn, run_id)


def test_a_second_sigint_does_not_wait(conn: Conn, programs: Programs) -> None:
    run_id = start_run(conn, "sleep", 60)
    worker = programs.worker(worker_drain="1h", **FAST)
    until(lambda: one(conn, "select count(*) from public.started"))

    worker.send_signal(signal.SIGINT)
    until(lambda: "worker.draining" in programs.log())
    assert worker.poll() is None
    worker.send_signal(signal.SIGINT)

    assert 0 == worker.wait(30)
    assert "PENDING" == status(conn, run_id)


def test_a_worker_comes_back_after_its_connections_were_cut(
    conn: Conn, programs: Programs
) -> None:
    programs.worker(**FAST)
    ended(conn, start_run(conn, "echo", 1))

    cut = one(
        conn,
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where application_name like 'semel-%%' and datname = current_database()",
    )

    assert cut >= 2
    assert "COMPLETED" == ended(conn, start_run(conn, "echo", 2))["status"]


def test_a_worker_holds_no_more_than_its_slots(conn: Conn, programs: Programs) -> None:
    for _ in range(5):
        start_run(conn, "sleep", 30)
    programs.worker(worker_slots="2", **FAST)

    until(lambda: one(conn, "select count(*) from public.started") == 2)

    assert 2 == one(conn, "select count(*) from semel.runs where status = 'RUNNING'")


def test_a_worker_and_its_children_die_together(conn: Conn, programs: Programs) -> None:
    worker = programs.worker(**FAST)
    child = ended(conn, start_run(conn, "in-process"))["result"]["pid"]

    os.kill(worker.pid, signal.SIGKILL)

    until(lambda: not alive(child), 5)


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_error_that_is_not_retried_ends_its_run_at_once(
    conn: Conn, programs: Programs
) -> None:
    run_id = start_run(conn, "give-up")
    programs.worker(**FAST)

    failed = ended(conn, run_id)

    assert ("FAILED", "E-RUN-008", 1) == (
        failed["status"],
        failed["failure_code"],
        failed["attempt_count"],
    )
    assert "OutOfStock: none left" in failed["failure_reason"]


def test_a_running_handler_is_told_of_a_cancel_within_a_heartbeat(
    conn: Conn, programs: Programs
) -> None:
    run_id = start_run(conn, "sleep", 60)
    worker = programs.worker(worker_lease="3s", **FAST)
    until(lambda: one(conn, "select count(*) from public.started"))

    conn.execute("select semel.run_cancel('p', %s)", (run_id,))

    until(lambda: one(conn, "select count(*) from public.started where word = 'cancelled'"), 3)
    assert "CANCELLED" == status(conn, run_id)
    assert "COMPLETED" == ended(conn, start_run(conn, "echo", 1))["status"]
    assert worker.poll() is None


@pytest.mark.parametrize("agent", ["ignore-stop", "ignore-stop-in-thread"])
def test_a_handler_that_ignores_its_stop_costs_the_process_and_nothing_else(
    conn: Conn, programs: Programs, agent: str
) -> None:
    deaf, neighbour = start_run(conn, agent), start_run(conn, "sleep", 60)
    # Quick beats under a long lease: on a busy machine no beat may be so late that trust ends.
    worker = programs.worker(
        worker_lease="60s", worker_heartbeat="500ms", worker_hard_stop="1s", **FAST
    )
    until(lambda: one(conn, "select count(*) from public.started") == 2)

    conn.execute("select semel.run_cancel('p', %s)", (deaf,))

    assert 70 == worker.wait(40)
    assert "run.stuck" in programs.log()
    given = row(conn, neighbour)
    assert ("PENDING", 1, True) == (
        given["status"],
        given["attempt_count"],
        given["reaped_at"] is None,
    )


def test_a_wake_up_ends_an_idle_workers_pause(dsn: str, conn: Conn, programs: Programs) -> None:
    programs.worker(worker_poll="60s")
    until(
        lambda: one(
            conn,
            "select count(*) from pg_stat_activity where application_name = 'semel-listen' and datname = current_database()",
        )
    )
    ended(conn, start_run(conn, "noop"))
    idle = "select count(*) from pg_stat_activity where application_name = 'semel-claim' and datname = current_database() and state_change < clock_timestamp() - interval '3 seconds'"
    until(lambda: one(conn, idle))

    started = semel.start(conn, project="p", agent="noop")

    until(lambda: status(conn, started.run_id) == "COMPLETED", 3)


def test_polling_alone_is_enough(conn: Conn, programs: Programs) -> None:
    programs.worker(pooler="true", **FAST)
    assert "COMPLETED" == ended(conn, start_run(conn, "echo", 1))["status"]
    assert 0 == one(
        conn,
        "select count(*) from pg_stat_activity where application_name = 'semel-listen' and datname = current_database()",
    )


def test_a_limit_of_an_agent_holds_over_workers(conn: Conn, programs: Programs) -> None:
    for _ in range(6):
        start_run(conn, "two-at-a-time", 0.5)
    for _ in range(3):
        programs.worker(**FAST)

    until(lambda: one(conn, "select count(*) from semel.runs where status = 'COMPLETED'") == 6)

    overlaps = one(
        conn,
        "select max(n) from (select count(*) as n from public.started as a join public.started as b"
        " on b.at >= a.at and b.at < a.at + interval '500 ms' and b.word = 'start' where a.word = 'start'"
        " group by a.run_id) as x",
    )
    assert overlaps <= 2


@pytest.mark.parametrize("odd", ["[" * 3000 + "]" * 3000, "1" * 5000])
def test_an_input_that_python_cannot_read_fails_only_its_own_run(
    conn: Conn, programs: Programs, odd: str
) -> None:
    unreadable = one(conn, "select run_id from semel.run_start('p', 'echo', %s)", odd)
    beside = start_run(conn, "echo", 2**80)
    programs.worker(**FAST)

    done = ended(conn, beside)
    until(lambda: status(conn, unreadable) == "FAILED")
    failed = conn.execute(
        "select failure_code, attempt_count from semel.runs where run_id = %s", (unreadable,)
    )
    assert ("E-RUN-009", 1) == failed.fetchone()
    assert ("COMPLETED", 2**80) == (done["status"], done["result"])


def test_a_handler_that_blocks_the_loop_does_not_keep_a_stop_from_being_heard(
    conn: Conn, programs: Programs
) -> None:
    """Its neighbour, and its own run, are given back and use no attempt."""
    neighbour = start_run(conn, "sleep", 60)
    worker = programs.worker(worker_drain="100ms", **FAST)
    until(lambda: one(conn, "select count(*) from public.started") == 1)
    blocker = start_run(conn, "block-the-loop", 50)
    until(lambda: one(conn, "select count(*) from public.started") == 2)

    worker.send_signal(signal.SIGTERM)

    assert 0 == worker.wait(30)
    for run_id in (neighbour, blocker):
        given = row(conn, run_id)
        assert ("PENDING", 1, None) == (
            given["status"],
            given["attempt_count"],
            given["reaped_at"],
        )
