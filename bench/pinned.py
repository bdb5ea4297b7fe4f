"""
Pinned: ours while a snapshot is held, and with a long history behind it.

A snapshot that somebody holds keeps every dead row and index entry from being removed. What is
asked here is whether a claim still looks at no more than before: its buffers in the first and in
the last tenth of a drain, and the drain's rate beside one without a snapshot.
"""

import json
import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
from contestants import Contestant
from drain import at_work, database, drained
from server import Server

from semel.db.pool import connect

HISTORY = 1_000_000
#: What a worker's statements and the sweeps read, by what stands in their text.
STATEMENTS = {
    "claim": "semel.run_claim(",
    "hint, from marks": "semel.run_hint($1::text[], $2::text[]",
    "hint, from the start": "semel.run_hint($1::text[], p_now",
    "complete": "semel.run_complete(",
}
SWEEPS = {
    "reap": "select * from semel.run_reap('bench', '30 s')",
    "due": "select semel.run_due('bench')",
    "overdue": "select * from semel.run_overdue('bench')",
}


@contextmanager
def snapshot(url: str) -> Generator[None]:
    """Hold a snapshot of the database, as a forgotten session or a long report does."""
    with psycopg.connect(url) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select count(*) from semel.run")
        yield


def pinned(server: Server, who: Contestant, *, jobs: int) -> dict[str, Any]:
    """A drain under a snapshot: rate, buffers first and last, worst claim, time in looks."""
    name = database(server, who)
    url = server.url(name)
    server.admin.execute(f"alter database {name} set pg_stat_statements.track = 'top'")
    who.ask(url, "fill", jobs)
    with connect(url, name="bench") as conn:
        conn.execute("create extension if not exists pg_stat_statements")
        conn.execute("select pg_stat_statements_reset()")
        server.settle()
        with snapshot(url), at_work(who, url, jobs=jobs) as crew:
            tenths = [_buffers(conn)]
            sweeps = []
            for share in (0.1, 0.9):
                while sum(note["count"] for note in crew.notes()) < share * jobs:
                    time.sleep(0.002)
                tenths.append(_buffers(conn))
                sweeps.append(_sweeps(conn))
            began, ended = crew.finish(conn, jobs)
            tenths.append(_buffers(conn))
            crew.prove(jobs)
            for process in crew.processes:
                process.terminate()
                process.wait(20)
            said = _stopped("".join(path.read_text() for path in crew.folder.glob("*.log")))
    server.drop(name)
    return {
        "rate": jobs / (ended - began),
        "buffers": {
            **{
                what: (_each(tenths[0], tenths[1], what), _each(tenths[2], tenths[3], what))
                for what in STATEMENTS
            },
            **{what: (sweeps[0][what], sweeps[1][what]) for what in SWEEPS},
        },
        "worst_claim_ms": said.get("claim_seconds_max", float("nan")) * 1e3,
        "look_share": said.get("look_seconds", float("nan")) / (ended - began),
    }


def _buffers(conn: psycopg.Connection[Any]) -> dict[str, tuple[int, int]]:
    """(calls, buffers) of each of STATEMENTS so far."""
    rows = conn.execute(
        "select query, calls, shared_blks_hit + shared_blks_read from pg_stat_statements"
        " where dbid = (select oid from pg_database where datname = current_database())"
    ).fetchall()
    found = {}
    for what, text in STATEMENTS.items():
        mine = [(calls, blocks) for query, calls, blocks in rows if text in query]
        found[what] = (sum(calls for calls, _ in mine), sum(blocks for _, blocks in mine))
    return found


def _each(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]], what: str
) -> float | None:
    """Buffers of one call between the two readings; None when there was none."""
    calls = after[what][0] - before[what][0]
    return (after[what][1] - before[what][1]) / calls if calls else None


def _sweeps(conn: psycopg.Connection[Any]) -> dict[str, int]:
    """Buffers of one call of each of SWEEPS, by EXPLAIN."""
    found = {}
    for what, sql in SWEEPS.items():
        rows = conn.execute(
            f"explain (analyze, buffers, timing off, format json) {sql}"
        ).fetchall()
        plan = rows[0][0][0]["Plan"]
        found[what] = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return found


def _stopped(log: str) -> dict[str, float]:
    """What the worker said of itself when it stopped, in JSON or as key=value."""
    line = next((line for line in reversed(log.splitlines()) if "worker.stopped" in line), "")
    if line.startswith("{"):
        fields = json.loads(line)
        return {name: value for name, value in fields.items() if isinstance(value, float)}
    return {name: float(value) for name, value in re.findall(r"(\w+)=([0-9.]+)(?=\s|$)", line)}


def beside_history(server: Server, who: Contestant, *, jobs: int) -> dict[str, float]:
    """A drain with HISTORY finished runs there already."""
    template, name = f"{who.name}_million", f"{who.name}_work"
    if not server.exists(template):
        server.drop(name)
        database(server, who)
        with connect(server.url(name), name="bench") as conn:
            _remember(conn)
            conn.execute("vacuum (analyze) semel.run_history")
        server.admin.execute(f"alter database {name} rename to {template}")
    server.make(name, of=template)
    who.ask(server.url(name), "fill", jobs)
    with connect(server.url(name), name="bench") as conn:
        figures = drained(server, who, conn, jobs=jobs)
    server.drop(name)
    return figures


def _remember(conn: psycopg.Connection[Any]) -> None:
    """HISTORY runs that finished over the last day."""
    conn.execute(
        "insert into semel.run_history (project_id, run_id, agent, status, priority, attempt_count,"
        " max_attempts, release_count, fence, worker_id, claimed_at, input, result, source,"
        " created_at, started_at, finished_at)"
        " select 'bench', semel.uuid_at(at), 'noop', 'COMPLETED', 5, 1, 3, 0, 1, 'old', at,"
        " jsonb_build_object('i', n), 'null', 'api', at, at, at"
        " from (select n, now() - n * interval '86 ms' as at"
        " from generate_series(1, %s) as n) as h",
        (HISTORY,),
    )
