"""Deploys under load: versions side by side, workers that drain, slots that change."""

import signal
import subprocess
import threading
from typing import Any

import pytest

import semel
from fix_cli import Semel
from fix_world import Conn, Programs, one, row, start_run, status, until
from semel.db.pool import connect

pytestmark = pytest.mark.crash

QUICK = {"worker_lease": "3s", "worker_poll": "50ms"}  # heartbeat 0.5 s


def at_work(conn: Conn, workers: int = 1) -> list[str]:
    """The ids of the workers that work, once there are so many."""
    sql = "select distinct worker_id from semel.workers where stopped_at is null"
    until(lambda: len(conn.execute(sql).fetchall()) == workers)
    return [worker for [worker] in conn.execute(sql).fetchall()]


def stop(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)
    assert 0 == worker.wait(20)


def test_two_versions_roll_under_load_and_nothing_fails_or_is_lost(
    dsn: str, conn: Conn, programs: Programs
) -> None:
    """Forth, and back again, while runs are started all the time."""
    started: list[Any] = []
    enough = threading.Event()

    def load() -> None:
        with connect(dsn) as mine:
            while not enough.wait(0.02):
                value = "park" if len(started) % 20 == 0 else None
                run = semel.start(mine, project="p", agent="busy", input=value)
                started.append(run.run_id)

    def done(version: str) -> int:
        return int(
            one(
                conn,
                "select count(*) from semel.runs where status = 'COMPLETED' and version = %s",
                version,
            )
        )

    old = programs.worker(program="busy_1.py", **QUICK)
    loading = threading.Thread(target=load)
    loading.start()
    try:
        until(lambda: done("1") > 20)
        new = programs.worker(program="busy_2.py", **QUICK)
        until(lambda: done("2") > 20)
        stop(old)
        seen = done("2")
        until(lambda: done("2") > seen + 20)
        programs.worker(program="busy_1.py", **QUICK)
        at_work(conn, 2)
        # What slept when its version left waits for it; a rollback leaves the new one until it
        # has nothing.
        seen = done("1")
        until(lambda: done("1") > seen + 20)
    finally:
        enough.set()
        loading.join()

    sql = "select count(*) from semel.runs where status = 'COMPLETED'"
    until(lambda: one(conn, sql) == len(started), 60)
    stop(new)

    assert {("COMPLETED", 1)} == set(
        conn.execute("select status, attempt_count from semel.runs").fetchall()
    )
    assert set(started) == {run for [run] in conn.execute("select run_id from semel.runs")}
    did = conn.execute("select run_id, count(*) from public.started group by run_id").fetchall()
    assert dict.fromkeys(started, 1) == dict(did)
    assert 0 == one(
        conn,
        "select count(*) from semel.runs as r join public.started as s using (run_id)"
        " where s.word <> 'did by ' || r.version or r.result <> to_jsonb(r.version)",
    )


def test_a_worker_that_drains_ends_what_it_holds_claims_nothing_and_stays(
    conn: Conn, programs: Programs, here: Semel
) -> None:
    process = programs.worker(**QUICK)
    [worker] = at_work(conn)
    held = start_run(conn, "sleep", 2)
    until(lambda: status(conn, held) == "RUNNING")

    said = here("worker", "drain", worker, "--json")

    assert (0, "drained", 0) == (said.code, said.json["outcome"], said.json["held"])
    assert ("COMPLETED", 1) == (status(conn, held), row(conn, held)["attempt_count"])
    waiting = start_run(conn, "noop")
    listed = here("worker", "list", "--json").lines  # in its own project, and in the run's
    assert [True, True] == [line["drained_at"] is not None for line in listed]
    beat = "select max(beat_at) from semel.workers"
    before = one(conn, beat)
    until(lambda: one(conn, beat) > before)  # it has looked meanwhile, if it looks at all
    assert "PENDING" == status(conn, waiting)
    assert process.poll() is None

    assert 0 == here("worker", "resume", worker).code
    until(lambda: status(conn, waiting) == "COMPLETED")
    stop(process)
    assert 1 == here("worker", "drain", worker).code
    assert "E-RUN-002" in here("worker", "drain", worker).err
    assert "E-WORKER-001" in here("worker", "drain", "nobody").err


def test_a_drain_that_takes_too_long_says_so_and_goes_on(
    conn: Conn, programs: Programs, here: Semel
) -> None:
    programs.worker(**QUICK)
    [worker] = at_work(conn)
    held = start_run(conn, "sleep", 2)
    until(lambda: status(conn, held) == "RUNNING")

    first = here("worker", "drain", worker, "--timeout", "1s")

    assert (1, "drains still") == (first.code, first.out.splitlines()[-1])
    assert "1 running" in first.out
    assert 0 == here("worker", "drain", worker).code
    assert "COMPLETED" == status(conn, held)


def test_a_workers_slots_change_while_it_works_and_fewer_end_nothing(
    conn: Conn, programs: Programs, here: Semel
) -> None:
    def together(agent: str, many: int, seconds: float) -> int:
        """How many of so many runs were at work at the same time."""
        ids = [start_run(conn, agent, seconds) for _ in range(many)]
        most = 0

        def ended() -> bool:
            nonlocal most
            sql = "select count(*) from semel.runs where status = 'RUNNING'"
            most = max(most, one(conn, sql))
            return all(status(conn, each) == "COMPLETED" for each in ids)

        until(ended)
        return most

    def told(slots: int) -> None:
        assert 0 == here("worker", "slots", worker, str(slots)).code
        until(lambda: f'"slots":{slots}' in programs.log().replace(" ", ""))

    programs.worker(**QUICK, worker_slots="2")
    [worker] = at_work(conn)
    ids = [start_run(conn, "sleep", 1.5) for _ in range(2)]
    until(lambda: {status(conn, each) for each in ids} == {"RUNNING"})
    told(1)
    until(lambda: {status(conn, each) for each in ids} == {"COMPLETED"})
    assert {1} == {row(conn, each)["attempt_count"] for each in ids}
    assert 0 == one(conn, "select count(*) from public.started where word = 'cancelled'")
    assert 1 == together("sleep", 3, 0.1)

    told(4)
    assert 4 == together("sleep-in-thread", 4, 1)
    assert {(4,)} == set(conn.execute("select slots from semel.workers").fetchall())


def test_an_agent_drains_and_the_others_go_on(
    conn: Conn, programs: Programs, here: Semel
) -> None:
    programs.worker(**QUICK)
    held = start_run(conn, "sleep", 2)
    until(lambda: status(conn, held) == "RUNNING")

    said = here("agent", "drain", "sleep", "--project", "p", "--json")

    assert (0, "drained") == (said.code, said.json["outcome"])
    assert "COMPLETED" == status(conn, held)
    waiting, other = start_run(conn, "sleep", 0), start_run(conn, "noop")
    until(lambda: status(conn, other) == "COMPLETED")
    assert "PENDING" == status(conn, waiting)
    here("agent", "resume", "sleep", "--project", "p")
    until(lambda: status(conn, waiting) == "COMPLETED")
