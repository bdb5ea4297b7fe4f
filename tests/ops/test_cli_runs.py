"""`semel run` and `semel agent` for an operator: watch, cancel, retry, pause, and their codes."""

import json
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest

from fix_cli import STRANGER, Semel
from fix_world import LEASE, Conn, start_run, until
from semel.core import claims, runs, transitions, workers
from semel.db.execute import run
from semel.db.pool import connect


def complete(conn: Conn, agent: str = "a") -> None:
    [claim] = run(conn, claims.run_claim("p", agent, "w", limit=1, lease=LEASE))
    run(conn, runs.run_complete("p", "w", [(claim.run_id, claim.fence, "1")]))


def fail(conn: Conn, *, retryable: bool = False) -> None:
    [claim] = run(conn, claims.run_claim("p", "a", "w", limit=1, lease=LEASE))
    run(conn, runs.run_fail(claim, "E-RUN-006", "boom", retryable=retryable))


# -- watch ----------------------------------------------------------------------------------


def test_watch_follows_a_run_to_its_completion_and_exits_0(
    here: Semel, conn: Conn, dsn: str
) -> None:
    run_id = str(start_run(conn))

    def work() -> None:
        with connect(dsn) as own:
            # The watcher is connected before the run goes on.
            name = "select count(*) from pg_stat_activity where application_name = 'semel-cli'"
            until(lambda: own.execute(name).fetchall()[0][0])
            complete(own)

    thread = threading.Thread(target=work)
    thread.start()
    said = here("run", "watch", run_id, "--json")
    thread.join()

    assert said.code == 0
    assert said.lines[-1]["status"] == "COMPLETED"
    assert {line["run_id"] for line in said.lines} == {run_id}


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_watch_exits_1_for_another_end_and_says_why(here: Semel, conn: Conn, how: str) -> None:
    run_id = start_run(conn)
    if how == "failed":
        fail(conn)
    else:
        run(conn, transitions.run_cancel("p", run_id, reason="boom"))

    said = here("run", "watch", str(run_id))

    code = {"failed": "E-RUN-006", "cancelled": "E-RUN-005"}[how]
    assert said.code == 1
    assert said.out.rstrip().endswith(f"{how.upper()}, attempt 1 of 3: {code} boom") or (
        how == "cancelled" and said.out.rstrip().endswith(f"CANCELLED: {code} boom")
    )


def test_watch_of_nobodys_run_is_refused(here: Semel) -> None:
    said = here("run", "watch", STRANGER)

    assert (said.code, said.err.split()[0]) == (1, "E-RUN-001")
    assert here("run", "watch", "abc").code == 2


def test_watch_without_id_tells_of_every_change_until_ctrl_c(dsn: str, conn: Conn) -> None:
    start_run(conn, "old")
    words = [sys.executable, "-m", "semel", "run", "watch", "--json", "--project", "p"]
    with subprocess.Popen(
        words, env={"SEMEL_DSN": dsn}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        told: list[dict[str, Any]] = []
        out, err = process.stdout, process.stderr
        assert out
        assert err
        reader = threading.Thread(
            target=lambda: told.extend(json.loads(line) for line in out), daemon=True
        )
        reader.start()
        seen = (
            "select count(*) from pg_stat_activity where application_name = 'semel-cli'"
            " and state = 'idle' and query like 'with changed%'"
        )
        try:
            until(lambda: conn.execute(seen).fetchall()[0][0])
            run_id = str(start_run(conn))
            until(lambda: any(line["status"] == "PENDING" for line in told))
            complete(conn)
            until(lambda: any(line["status"] == "COMPLETED" for line in told))
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
        finally:
            process.kill()
        assert err.read() == ""
        reader.join(10)
    assert {line["run_id"] for line in told} == {run_id}
    assert all("input" not in line for line in told)


# -- cancel and retry -----------------------------------------------------------------------


def test_cancel_and_retry_answer_in_json_and_refuse_by_their_codes(
    here: Semel, conn: Conn
) -> None:
    run_id = str(start_run(conn))

    cancelled = here("run", "cancel", run_id, "--json").json
    again = here("run", "cancel", run_id, "--json").json
    retried = here("run", "retry", run_id, "--json").json
    complete(conn)

    wanted = {"run_id": run_id, "project_id": "p"}
    assert cancelled == {**wanted, "outcome": "won", "status": "CANCELLED"}
    assert again == {**wanted, "outcome": "already", "status": "CANCELLED"}
    assert retried == {**wanted, "outcome": "won", "status": "PENDING"}
    for verb in ("cancel", "retry"):
        refused = here("run", verb, run_id, "--json")
        assert (refused.code, json.loads(refused.err)["code"]) == (1, "E-RUN-002")
        assert "COMPLETED" in refused.err
        for words in ([STRANGER], [STRANGER, "--project", "p"]):
            said = here("run", verb, *words)
            assert (said.code, said.err.split()[0]) == (1, "E-RUN-001")


def test_a_run_that_ended_badly_is_shown_with_its_code_and_reason(
    here: Semel, conn: Conn
) -> None:
    failed, cancelled = start_run(conn), start_run(conn)
    fail(conn)
    run(conn, claims.run_claim("p", "a", "w2", limit=1, lease=LEASE))
    here("run", "cancel", str(cancelled), "--reason", "not wanted")

    said_failed = here("run", "show", str(failed)).out
    said_cancelled = here("run", "show", str(cancelled)).out
    shown = here("run", "show", str(cancelled), "--json").json

    assert "status    FAILED E-RUN-006 boom\n" in said_failed
    assert "worker w: failed at " in said_failed
    assert "status    CANCELLED E-RUN-005 not wanted\n" in said_cancelled
    assert "worker w2: ended at " in said_cancelled
    assert (shown["failure_code"], shown["result"]) == ("E-RUN-005", None)
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["ended"]


# -- agents ---------------------------------------------------------------------------------


def test_agents_are_listed_with_what_waits_what_runs_and_their_limits(
    here: Semel, conn: Conn
) -> None:
    announced = [("a", 3, 5, "async"), ("idle", 2, None, "thread")]
    run(conn, workers.worker_register("p", "w", host="h", pid=1, slots=4, agents=announced))
    for _ in range(3):
        start_run(conn)
    start_run(conn, delay=timedelta(hours=1))
    start_run(conn, "nobodys")
    run(conn, claims.run_claim("p", "a", "w", limit=2, lease=LEASE))

    listed = {line["agent"]: line for line in here("agent", "list", "--json").lines}

    assert {
        name: (line["waiting"], line["running"], line["max_running"], line["max_attempts"])
        for name, line in listed.items()
    } == {"a": (2, 2, 5, 3), "idle": (0, 0, None, 2), "nobodys": (1, 0, None, None)}
    assert {line["project_id"] for line in listed.values()} == {"p"}
    head = here("agent", "list").out.splitlines()[0].split()
    assert head[:5] == ["AGENT", "PROJECT", "WAITING", "RUNNING", "MAX"]


def test_finished_runs_are_not_counted(here: Semel, conn: Conn) -> None:
    start_run(conn)
    complete(conn)

    said = here("agent", "list")

    assert said.out.startswith("no worker has announced an agent, and no run waits")


def test_pause_and_resume_answer_in_json_and_refuse_what_is_no_agent(here: Semel) -> None:
    assert here("agent", "pause", "mail", "--json").json == {
        "agent": "mail",
        "project_id": "default",
        "outcome": "won",
    }
    assert (
        here("agent", "resume", "mail", "--project", "x", "--json").json["outcome"] == "already"
    )
    for verb in ("pause", "resume"):
        for name in ("no agent", "", "ä", "a" * 129, "-"):
            said = here("agent", verb, "--", name)
            assert (said.code, said.out) == (2, ""), name
            assert "is no agent" in said.err


# -- upkeep ---------------------------------------------------------------------------------


def test_upkeep_once_says_what_it_did_and_makes_what_is_due_ready(
    here: Semel, conn: Conn
) -> None:
    run_id = start_run(conn, delay=timedelta(milliseconds=1))
    overdue = start_run(conn, deadline=timedelta(milliseconds=1))
    here("upkeep", "--once")

    assert here("run", "show", str(overdue), "--json").json["failure_code"] == "E-RUN-004"
    assert here("run", "show", str(run_id), "--json").json["ready_at"]
    said = here("upkeep", "--once").out.splitlines()
    assert [line.split()[0] for line in said] == [
        "partitions",
        "fired",
        "projects",
        "due",
        "reaped",
        "purged",
    ]
