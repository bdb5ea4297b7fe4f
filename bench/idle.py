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

import psycopg
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
    "content_expire",
    "leftovers_drop",
    "worker_expire",
    "fold_stale",
    "partitions_make",
    "partitions_drop",
)
READY_SECONDS_MAX = 120.0

_PARK = """
select semel.run_park('bench', 'asker', %s, %s, jsonb_build_array(jsonb_build_object(
    'key', 'ok', 'kind', 'approval', 'due', '1 hour', 'approval', jsonb_build_object(
        'id', gen_random_uuid(), 'title', 't', 'action', 1, 'digest', 'd')))::text)
"""

SOURCE = """
[sources.{name}]
project = "{project}"
channel = "api"
agent = "noop"
authenticate = "none"
"""


def idle(server: Server, *, projects: int, seconds: float, asking: int = 0) -> dict[str, Any]:
    """
    Statements in a second, with *projects*.

    Args:
        asking: Runs of the first project that wait for an approval all the while.

    Returns:
        statements: All of them; buffers: those they read, in a second; purge: the part of the
        statements that is the purges' share; said: what was asked, and how often in a second,
        most first.
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
        if asking:
            _ask(conn, asking)
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
        first, read = _calls(server, name), _buffers(server, name)
        time.sleep(seconds)
        last, read = _calls(server, name), _buffers(server, name) - read
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
        "buffers": read / seconds,
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
                "select (select count(*) from semel.run where status <> 'WAITING_APPROVAL'),"
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


def _ask(conn: psycopg.Connection[Any], runs: int) -> None:
    """Have *runs* runs ask, as their worker would: started, claimed and parked."""
    for _ in range(runs):
        conn.execute("select semel.run_start('bench', 'asks', 'null')")
    for _ in range(0, runs, 100):
        claimed = conn.execute(
            "select run_id, fence from semel.run_claim('bench', 'asks', 'asker', 100, '1 hour')"
        ).fetchall()
        for run_id, fence in claimed:
            conn.execute(_PARK, (run_id, fence))
    conn.execute("select semel.worker_stop('bench', 'asker')")
    conn.execute("vacuum analyze semel.run")


def _buffers(server: Server, name: str) -> int:
    """Buffers that statements on database *name* have read so far."""
    [(read,)] = server.admin.execute(
        "select coalesce(sum(s.shared_blks_hit + s.shared_blks_read), 0)::bigint"
        " from pg_stat_statements as s join pg_database as d on d.oid = s.dbid"
        " where d.datname = %s and s.query not like '%%_expire%%' and s.query not like '%%_drop%%'",
        (name,),
    ).fetchall()
    return int(read)


def _is_purge(query: str) -> bool:
    return any(f"semel.{purge}(" in query for purge in PURGES)


def _logs(folder: Path) -> str:
    return "\n".join(path.read_text()[-1000:] for path in folder.glob("*.log"))
