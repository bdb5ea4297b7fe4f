"""Two deploys of one agent at work side by side: what the old code began, the old code ends."""

import signal
import subprocess
from datetime import timedelta
from typing import Any

import pytest

from durable import undo_of
from fix_world import Conn, Programs, row, start_run, status, until
from semel import App, Run
from semel.core import health, waits
from semel.db.execute import run
from semel.errors import BadConfig

FAST = {"worker_poll": "50ms"}


def parked(conn: Conn, run_id: Any) -> None:
    until(lambda: status(conn, run_id) == "WAITING_TOOL")


def told(conn: Conn, run_id: Any) -> None:
    assert "won" == run(conn, waits.signal_send("p", run_id, "go"))[0]


def ended(conn: Conn, run_id: Any) -> tuple[str, Any, str]:
    until(lambda: status(conn, run_id) in {"COMPLETED", "FAILED"})
    found = row(conn, run_id)
    return found["status"], found["result"], found["version"]


def words(conn: Conn, run_id: Any) -> list[str]:
    rows = conn.execute(
        "select word from public.started where run_id = %s order by at", (run_id,)
    )
    return [word for [word] in rows]


def served(conn: Conn) -> set[str]:
    """What the workers that have not left said they serve."""
    rows = conn.execute("select unnest(versions) from semel.workers where stopped_at is null")
    return {version for [version] in rows}


def unserved(conn: Conn) -> list[tuple[str, str, int]]:
    return run(conn, health.unserved_agents(timedelta(seconds=30)))


def stop(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)
    assert 0 == worker.wait(20)


def test_during_a_deploy_old_runs_end_on_old_code_and_new_ones_on_new(
    conn: Conn, programs: Programs
) -> None:
    old_worker = programs.worker(program="rolling_1.py", **FAST)
    old, older = start_run(conn, "roll"), start_run(conn, "roll")
    parked(conn, old)
    parked(conn, older)
    programs.worker(program="rolling_2.py", **FAST)
    until(lambda: len(served(conn)) == 2)

    told(conn, old)
    assert ("COMPLETED", "ended by 1", "1") == ended(conn, old)
    assert ["begun by 1", "ended by 1"] == words(conn, old)

    stop(old_worker)
    new = start_run(conn, "roll")
    parked(conn, new)
    told(conn, older)
    told(conn, new)

    assert ("COMPLETED", "ended by 2", "2") == ended(conn, new)
    assert "RESUMED" == status(conn, older)
    assert [("roll", "1", 1)] == unserved(conn)

    programs.worker(program="rolling_1.py", **FAST)
    assert ("COMPLETED", "ended by 1", "1") == ended(conn, older)
    assert ["begun by 1", "ended by 1"] == words(conn, older)
    assert [] == unserved(conn)


def test_the_version_that_did_it_undoes_it(conn: Conn, programs: Programs) -> None:
    old_worker = programs.worker(program="rolling_1.py", **FAST)
    old = start_run(conn, "roll", "fail")
    parked(conn, old)
    stop(old_worker)
    programs.worker(program="rolling_2.py", **FAST)
    until(lambda: served(conn) == {"roll@2"})
    told(conn, old)
    ahead = start_run(conn, "roll")
    parked(conn, ahead)
    assert "RESUMED" == status(conn, old)

    programs.worker(program="rolling_1.py", **FAST)

    assert "FAILED" == ended(conn, old)[0]
    until(lambda: row(conn, undo_of(conn, old))["status"] == "COMPLETED")
    assert ["begun by 1", "undone by 1"] == words(conn, old)
    assert "1" == row(conn, undo_of(conn, old))["version"]


@pytest.mark.parametrize("bad", ["a b", "v" * 65, "1@2", "\n", 2])
def test_a_version_that_is_none_is_refused(bad: Any) -> None:
    app = App()

    async def handler(run: Run) -> None:
        return None

    with pytest.raises(BadConfig, match="1 to 64 of A-Z"):
        app.agent("a", version=bad)(handler)
    app.agent("a", version="2026-11-30_a.b")(handler)
