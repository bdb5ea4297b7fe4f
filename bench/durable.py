"""
Durable: what steps, waits and approvals cost.

Steps are those of a run with ten of them, against the same workflow of a peer with its own step
decorator. A resume is counted from the commit of the decision, which rings for the worker, to the
handler's next line; beside it stands the least that could be: a NOTIFY, and one SELECT of whoever
heard it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from contestants import OURS, Contestant
from drain import at_work, database, drain
from server import Server

from semel.core.agents import agent_wake
from semel.core.approvals import approval_decide
from semel.db.execute import run
from semel.db.pool import connect

STEPS = 10
READY_SECONDS_MAX = 60.0
#: Between two decisions, so that an idle worker is what is measured.
REST_SECONDS = 0.1

_BARE = """
import psycopg, sys, time
conn = psycopg.connect(sys.argv[1], autocommit=True)
conn.execute("listen bare")
print("ready", flush=True)
while True:
    for _ in conn.notifies(stop_after=1):
        pass
    conn.execute("select 1").fetchall()
    print(time.time(), flush=True)
"""


@contextmanager
def told(**env: str) -> Iterator[None]:
    """What every driver started meanwhile reads in its environment."""
    os.environ.update(env)
    try:
        yield
    finally:
        for name in env:
            del os.environ[name]


def steps(server: Server, who: Contestant, *, jobs: int) -> dict[str, float]:
    """Steps in a second, over *jobs* runs of ten."""
    with told(BENCH_STEPS=str(STEPS)):
        figures = drain(server, who, jobs=jobs)
    return {"rate": STEPS * figures["rate"], "wal_bytes": figures["wal_bytes"]}


def resume(server: Server, *, decisions: int) -> dict[str, float]:
    """p50 in ms of a resume, of a bare NOTIFY and SELECT, and their ratio."""
    name = database(server, OURS)
    url = server.url(name)
    with told(BENCH_ASKS="1"):
        OURS.ask(url, "fill", decisions)
        with connect(url, name="bench") as conn, at_work(OURS, url, jobs=decisions) as crew:
            deadline = time.monotonic() + READY_SECONDS_MAX
            while True:
                asked = conn.execute("select approval_id from semel.approvals").fetchall()
                if len(asked) == decisions:
                    break
                crew.alive()
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{len(asked)} of {decisions} ask")
                time.sleep(0.05)
            bare, resumed = [], []
            with subprocess.Popen(
                [sys.executable, "-c", _BARE, url], stdout=subprocess.PIPE, text=True
            ) as listener:
                assert listener.stdout is not None
                listener.stdout.readline()
                for [approval] in asked:
                    time.sleep(REST_SECONDS)
                    began = time.time()
                    conn.execute("notify bare")
                    bare.append(float(listener.stdout.readline()) - began)
                    decide = approval_decide(
                        "bench", "approve", via="cli", approval_id=approval, voter="bench"
                    )
                    decided = run(conn, decide)
                    began = time.time()
                    run(conn, agent_wake([decided.agent or ""]))
                    resumed.append(_went_on(conn, decided.run_id) - began)
                listener.kill()
    server.drop(name)
    least, ours = median(bare) * 1e3, median(resumed) * 1e3
    return {"committed_p50_ms": ours, "bare_p50_ms": least, "growth": ours / least}


def _went_on(conn: object, run_id: object) -> float:
    """When the handler went on, as its run says when it has ended."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        found = conn.execute(  # type: ignore[attr-defined]
            "select result from semel.runs where run_id = %s and status = 'COMPLETED'",
            (run_id,),
        ).fetchall()
        if found:
            return float(found[0][0])
        time.sleep(0.005)
    raise RuntimeError(f"run {run_id} did not go on")
