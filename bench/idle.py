"""
Idle: what a server, a worker and upkeep ask of a database that has nothing for them.

All three are the real programs, with every beat and sweep; each project has a source, and a run
that is finished, so that the worker knows it. Statements are counted by pg_stat_statements. A
purge comes every ten minutes only: what the first one sent is counted, and its share is added.
"""

import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from contestants import OURS
from drain import database, stop
from ingest import free_port
from server import Server

from semel.db.pool import connect

PROCESSES = ("serve", "worker", "upkeep")
PURGE_SECONDS = 600.0
#: Functions that upkeep calls once in PURGE_SECONDS, for each project or for all.
PURGES = (
    "purge_take",
    "dedupe_expire",
    "leftovers_drop",
    "worker_expire",
    "fold_stale",
    "partitions_make",
    "partitions_drop",
)
READY_SECONDS_MAX = 120.0

SOURCE = """
[sources.{name}]
project = "{project}"
channel = "api"
agent = "noop"
"""


def idle(server: Server, *, projects: int, seconds: float) -> dict[str, Any]:
    """
    Statements in a second, with *projects*.

    Returns:
        statements: All of them; purge: the part of it that is the purges' share; said: what was
        asked, and how often in a second, most first.
    """
    name = database(server, OURS)
    url = server.url(name)
    server.admin.execute(f"alter database {name} set pg_stat_statements.track = 'top'")
    server.admin.execute("create extension if not exists pg_stat_statements")
    names = ["bench", *(f"bench-{n}" for n in range(1, projects))]
    with connect(url, name="bench") as conn:
        for number, project in enumerate(names):
            conn.execute(
                "select semel.run_start(%s, 'noop', jsonb_build_object('i', %s::int)::text)",
                (project, number),
            )
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        config = Path(folder, "semel.toml")
        told = (SOURCE.format(name=f"s{n}", project=p) for n, p in enumerate(names))
        config.write_text("".join(told))
        server.admin.execute("select pg_stat_statements_reset()")
        env = {"SEMEL_CONFIG": str(config), "SEMEL_PORT": str(free_port())}
        env |= {"SEMEL_PROJECT": "bench"}
        semel, _, app = OURS.worker
        processes = {}
        for what in PROCESSES:
            command = (semel, what, app) if what == "worker" else (semel, what)
            process = replace(OURS, worker=command).start(
                url, Path(folder, f"{what}.log"), **env
            )
            stack.callback(stop, process)
            processes[what] = process
        _await_rest(server, name, len(names), Path(folder))
        first = _calls(server, name)
        time.sleep(seconds)
        last = _calls(server, name)
        ended = [what for what, process in processes.items() if process.poll() is not None]
        if ended:
            raise RuntimeError(f"{ended} ended: {_logs(Path(folder))}")
    server.drop(name)
    said = {query: (n - first.get(query, 0)) / seconds for query, n in last.items()}
    purges = sum(n for query, n in first.items() if _is_purge(query))
    purges += sum(n for query, n in last.items() if _is_purge(query) and query not in first)
    steady = sum(rate for query, rate in said.items() if not _is_purge(query))
    ranked = sorted(said.items(), key=lambda item: -item[1])
    return {
        "statements": steady + purges / PURGE_SECONDS,
        "purge": purges / PURGE_SECONDS,
        "said": [(query, rate) for query, rate in ranked if rate and not _is_purge(query)],
    }


def _await_rest(server: Server, name: str, projects: int, folder: Path) -> None:
    """Wait until every project's run is finished and every project has been purged once."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    with connect(server.url(name), name="bench") as conn:
        conn.execute("set pg_stat_statements.track = 'none'")
        while time.monotonic() < deadline:
            [(live, purged)] = conn.execute(
                "select (select count(*) from semel.run),"
                " (select count(*) from semel.project where purged_at is not null)"
            ).fetchall()
            if live == 0 and purged >= projects:
                time.sleep(5.0)  # a worker's pause has grown to its longest
                return
            time.sleep(0.2)
    raise RuntimeError(f"{live} runs live, {purged} projects purged: {_logs(folder)}")


def _calls(server: Server, name: str) -> dict[str, int]:
    """How often each statement was sent to database *name* so far."""
    rows = server.admin.execute(
        "select s.query, sum(s.calls) from pg_stat_statements as s"
        " join pg_database as d on d.oid = s.dbid where d.datname = %s group by s.query",
        (name,),
    ).fetchall()
    return {query: int(calls) for query, calls in rows}


def _is_purge(query: str) -> bool:
    return any(f"semel.{purge}(" in query for purge in PURGES)


def _logs(folder: Path) -> str:
    return "\n".join(path.read_text()[-1000:] for path in folder.glob("*.log"))
