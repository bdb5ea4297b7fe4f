"""cases.md R1 on a real worker: frozen and thawed, it changes nothing of what others hold by then."""

import os
import signal
from collections.abc import Callable
from datetime import timedelta

import pytest

from durable import everything
from fix_world import LEASE, Conn, Programs, one, start_run, until
from semel.core import claims, recovery, transitions, waits
from semel.core.waits import Wait
from semel.db.execute import run
from semel.model import Claim

pytestmark = pytest.mark.crash

QUICK = {"worker_lease": "3s", "worker_poll": "50ms"}
WRITES = ("step", "intent", "approval", "child", "transaction", "completion", "failure")


def claim(conn: Conn, worker: str) -> list[Claim]:
    lanes = (*range(11), *range(100, 111))
    call = claims.run_claim("p", "zombie", worker, limit=99, lease=LEASE, lanes=lanes)
    return run(conn, call)


def by_another(conn: Conn, frozen: str) -> None:
    assert len(WRITES) == len(claim(conn, "w2"))


def by_its_own_name(conn: Conn, frozen: str) -> None:
    assert len(WRITES) == len(claim(conn, frozen))


def after_a_wait(conn: Conn, frozen: str) -> None:
    """Another had it, which parked it; now it is resumed, in the same attempt."""
    for held in claim(conn, "w2"):
        wait = Wait(key="w", kind="signal", name="go")
        run(conn, waits.run_park("p", "w2", held.run_id, held.fence, [wait]))
        run(conn, waits.signal_send("p", held.run_id, "go"))
    assert len(WRITES) == len(claim(conn, frozen))


def after_an_operators_retry(conn: Conn, frozen: str) -> None:
    for [run_id] in conn.execute("select run_id from semel.runs").fetchall():
        run(conn, transitions.run_cancel("p", run_id))
        assert "won" == run(conn, transitions.run_retry("p", run_id))[0]
    assert len(WRITES) == len(claim(conn, frozen))


@pytest.mark.parametrize(
    "taken",
    [by_another, by_its_own_name, after_a_wait, after_an_operators_retry],
    ids=lambda taken: taken.__name__,
)
def test_r1_a_worker_that_thaws_changes_nothing(
    conn: Conn, programs: Programs, taken: Callable[[Conn, str], None]
) -> None:
    conn.execute("create table public.go (run_id uuid, word text)")
    conn.execute("create table public.business (run_id uuid, value int)")
    for kind in WRITES:
        start_run(conn, "zombie", kind)
    frozen = programs.worker(program="zombies.py", **QUICK)
    marks = "select count(*) from public.started where word = %s"
    until(lambda: one(conn, marks, "ready") == len(WRITES))
    name = one(conn, "select distinct worker_id from semel.runs where worker_id is not null")
    os.killpg(frozen.pid, signal.SIGSTOP)
    dead = timedelta(seconds=1)
    until(lambda: run(conn, recovery.run_reap("p", dead_after=dead, trust=True)))
    taken(conn, name)
    conn.execute("insert into public.go select run_id, 'go' from semel.runs")
    before = everything(conn)

    os.killpg(frozen.pid, signal.SIGCONT)

    until(lambda: one(conn, marks, "stopped") == len(WRITES))
    until(lambda: programs.log().count('"run.ended"') == len(WRITES))
    assert before == everything(conn)
    assert 0 == one(conn, "select count(*) from public.business")
    assert 0 == one(conn, marks, "executed")
    assert frozen.poll() is None
