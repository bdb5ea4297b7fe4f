"""cases.md R5 on real workers: whatever stops a saga, what it did is undone in reverse, once each."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from fix_world import Conn, Programs, one, row, start_run, status, until, until_blocked
from semel.core import transitions
from semel.core.approvals import approval_decide
from semel.core.undo import undo_skip
from semel.db.execute import run
from semel.db.pool import connect

pytestmark = pytest.mark.crash

QUICK = {"worker_lease": "3s", "worker_poll": "50ms"}  # heartbeat 0.5 s, dead after 1.5 s


@pytest.fixture
def sagas(programs: Programs, conn: Conn) -> Programs:
    """A worker of programs/sagas.py, and upkeep."""
    conn.execute("create table public.go (run_id uuid, word text)")
    programs.worker(program="sagas.py", **QUICK)
    programs.upkeep(**QUICK)
    return programs


def words(conn: Conn, run_id: UUID) -> list[str]:
    rows = conn.execute(
        "select word from public.started where run_id = %s order by at", (run_id,)
    )
    return [word for [word] in rows]


def saw(conn: Conn, run_id: UUID, word: str) -> None:
    until(lambda: word in words(conn, run_id))


def cancel(conn: Conn, run_id: UUID) -> tuple[str, str | None]:
    return run(conn, transitions.run_cancel("p", run_id))


def undo_run(conn: Conn, run_id: UUID) -> UUID | None:
    rows = conn.execute(
        "select run_id from semel.runs where parent_run_id = %s", (run_id,)
    ).fetchall()
    assert len(rows) <= 1
    return rows[0][0] if rows else None


def undone(conn: Conn, run_id: UUID) -> dict[str, Any]:
    """The compensation of *run_id*, once it has ended."""

    def ended() -> dict[str, Any] | None:
        undo = undo_run(conn, run_id)
        found = row(conn, undo) if undo else None
        return found if found and found["finished_at"] else None

    done: dict[str, Any] = until(ended)
    assert "undo" == done["kind"]
    return done


def test_a_saga_is_undone_wherever_it_was_cancelled(conn: Conn, sagas: Programs) -> None:
    pending = start_run(conn, "late")
    running = start_run(conn, "saga", {"hold": "s2"})
    asking = start_run(conn, "saga", {"ask": "s2"})
    in_step = start_run(conn, "in-a-step")
    in_thread = start_run(conn, "deaf")
    completed = start_run(conn, "saga")
    never_begun = run_later(conn)
    until(lambda: (status(conn, pending), len(words(conn, pending))) == ("PENDING", 2))
    saw(conn, running, "at s2")
    saw(conn, in_step, "begin s2")
    saw(conn, in_thread, "at s1")
    until(lambda: status(conn, asking) == "WAITING_APPROVAL")
    until(lambda: status(conn, completed) == "COMPLETED")
    question = one(conn, "select approval_id from semel.approvals where run_id = %s", asking)

    assert ("won", "PENDING") == cancel(conn, pending)
    assert ("won", "RUNNING") == cancel(conn, running)
    assert ("won", "WAITING_APPROVAL") == cancel(conn, asking)
    assert ("won", "RUNNING") == cancel(conn, in_step)
    assert ("won", "RUNNING") == cancel(conn, in_thread)
    assert ("won", "PENDING") == cancel(conn, never_begun)
    assert ("refused", "COMPLETED") == cancel(conn, completed)
    assert ("already", "CANCELLED") == cancel(conn, asking)

    for run_id, keys in [
        (pending, ["s2", "s1"]),
        (running, ["s2", "s1"]),
        (asking, ["s2", "s1"]),
        (in_step, ["s2", "s1"]),
        (in_thread, ["s1"]),
    ]:
        done = undone(conn, run_id)
        assert ("COMPLETED", {"undone": keys}) == (done["status"], done["result"])
        assert ("CANCELLED", None) == (status(conn, run_id), row(conn, run_id)["result"])
    back = ["undo s2 S2", "undo s1 S1"]
    assert ["s1", "s2", *back] == words(conn, pending) == words(conn, asking)
    assert ["s1", "s2", "at s2", "stopped", *back] == words(conn, running)
    # Of a step that was interrupted nobody knows whether it took effect.
    assert ["s1", "begin s2", "end s2", "undo s2 None", "undo s1 S1"] == words(conn, in_step)
    assert ["s1", "at s1", "stopped", "undo s1 S1"] == words(conn, in_thread)
    assert [] == words(conn, never_begun)
    assert ["s1", "s2", "s3"] == words(conn, completed)
    assert None is undo_run(conn, never_begun) is undo_run(conn, completed)
    told = approval_decide("p", "approve", via="cli", approval_id=question, voter="alice")
    assert ("void", "VOID") == (run(conn, told).outcome, run(conn, told).state)


def run_later(conn: Conn) -> UUID:
    return start_run(conn, "saga", delay=timedelta(hours=1))


def finishing(conn: Conn) -> Any:
    """Return once the worker's completion waits for a lock."""
    return until(
        lambda: conn.execute(
            "select from pg_stat_activity where application_name = 'semel-finish'"
            " and datname = current_database() and pg_blocking_pids(pid) <> '{}'"
        ).fetchall()
    )


def test_a_success_that_comes_after_a_cancel_is_refused(
    conn: Conn, other: Conn, sagas: Programs
) -> None:
    """The cancel holds the run's lock; the completion waits for it, and finds it gone."""
    run_id = start_run(conn, "saga", {"hold": "s3"})
    saw(conn, run_id, "at s3")
    with conn.transaction():
        assert ("won", "RUNNING") == cancel(conn, run_id)
        other.execute("insert into public.go values (%s, 's3')", (run_id,))
        finishing(other)

    done = undone(conn, run_id)

    assert ("CANCELLED", None) == (status(conn, run_id), row(conn, run_id)["result"])
    assert ("COMPLETED", ["s3", "s2", "s1"]) == (done["status"], done["result"]["undone"])
    assert ["s1", "s2", "s3", "at s3"] == words(conn, run_id)[:4]
    until(lambda: '"outcome": "lost"' in sagas.log())


def test_a_cancel_that_comes_after_the_success_is_refused(
    conn: Conn, other: Conn, dsn: str, sagas: Programs
) -> None:
    """The completion holds the run's lock; the cancel waits for it, and is told."""
    conn.execute(
        "create function public.stand_still() returns trigger language plpgsql as"
        " $$begin perform pg_advisory_xact_lock(1); return null; end$$"
    )
    conn.execute(
        "create trigger late after insert on semel.run_history"
        " for each row execute function public.stand_still()"
    )
    run_id = start_run(conn, "saga", {"hold": "s3"})
    saw(conn, run_id, "at s3")
    with ThreadPoolExecutor(1) as person, connect(dsn) as lock:
        lock.execute("select pg_advisory_lock(1)")
        conn.execute("insert into public.go values (%s, 's3')", (run_id,))
        finishing(conn)
        told = person.submit(cancel, other, run_id)
        until_blocked(conn, other.info.backend_pid)
        lock.execute("select pg_advisory_unlock(1)")
        assert ("refused", "COMPLETED") == told.result()

    assert ("COMPLETED", "done") == (status(conn, run_id), row(conn, run_id)["result"])
    assert None is undo_run(conn, run_id)


def test_a_compensation_goes_on_after_its_worker_was_killed_in_an_undo(
    conn: Conn, programs: Programs
) -> None:
    conn.execute("create table public.go (run_id uuid, word text)")
    run_id = start_run(conn, "saga", {"s2": "hang", "fail": True}, max_attempts=1)
    first = programs.worker(program="sagas.py", **QUICK)
    saw(conn, run_id, "undo s2 S2")

    os.kill(first.pid, signal.SIGKILL)
    programs.upkeep(**QUICK)
    programs.worker(program="sagas.py", **QUICK)

    done = undone(conn, run_id)
    assert ("COMPLETED", 2) == (done["status"], done["attempt_count"])
    assert ["undo s3 S3", *["undo s2 S2"] * 2, "undo s1 S1"] == words(conn, run_id)[3:]


def test_undos_that_fail_are_tried_again_and_named_until_an_operator_skips_one(
    conn: Conn, sagas: Programs
) -> None:
    twice = start_run(conn, "saga", {"s1": "fail-twice", "fail": True}, max_attempts=1)
    never = start_run(conn, "saga", {"s2": "fail", "fail": True}, max_attempts=1)

    done = undone(conn, twice)
    assert ("COMPLETED", 3) == (done["status"], done["attempt_count"])
    assert ["undo s3 S3", "undo s2 S2", *["undo s1 S1"] * 3] == words(conn, twice)[3:]

    failed = undone(conn, never)
    assert ("FAILED", "E-STEP-006") == (failed["status"], failed["failure_code"])
    assert "'fail' of step 's2': ValueError: the pod is gone" in failed["failure_reason"]
    assert "not undone: s2, s1" in failed["failure_reason"]
    tries = failed["attempt_count"]
    assert ["undo s3 S3", *["undo s2 S2"] * tries] == words(conn, never)[3:]

    skipped = run(conn, undo_skip("p", never, "s2", reason="gone with its node", who="alice"))
    assert ("won", failed["run_id"]) == skipped
    assert "won" == run(conn, transitions.run_retry("p", failed["run_id"]))[0]
    until(lambda: status(conn, failed["run_id"]) == "COMPLETED")
    assert ["undo s3 S3", *["undo s2 S2"] * tries, "undo s1 S1"] == words(conn, never)[3:]
    assert ("FAILED", "E-RUN-003") == tuple(
        row(conn, never)[key] for key in ("status", "failure_code")
    )
    retried = run(conn, transitions.run_retry("p", never))
    assert ("new", "FAILED") == retried[:2]
    assert retried[2] not in {never, failed["run_id"]}


def test_nothing_is_undone_before_all_that_the_handler_began_has_stopped(
    conn: Conn, sagas: Programs
) -> None:
    run_id = start_run(conn, "side-by-side")

    done = undone(conn, run_id)

    assert ("COMPLETED", {"undone": ["slow"]}) == (done["status"], done["result"])
    assert ["begin slow", "end slow", "undo slow None"] == words(conn, run_id)


def test_a_deploy_in_the_middle_of_a_saga_repeats_no_step_and_uses_no_attempt(
    conn: Conn, programs: Programs
) -> None:
    conn.execute("create table public.go (run_id uuid, word text)")
    run_id = start_run(conn, "saga", {"hold": "s2"})
    first = programs.worker(program="sagas.py", worker_drain="0s", **QUICK)
    saw(conn, run_id, "at s2")

    first.terminate()
    assert 0 == first.wait(30)
    assert "PENDING" == status(conn, run_id)
    conn.execute("insert into public.go values (%s, 's2')", (run_id,))
    programs.worker(program="sagas.py", **QUICK)

    until(lambda: status(conn, run_id) == "COMPLETED")
    assert ["s1", "s2", "at s2", "stopped", "at s2", "s3"] == words(conn, run_id)
    assert 1 == row(conn, run_id)["attempt_count"]
