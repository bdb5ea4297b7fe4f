"""
Pinned: ours while a snapshot is held, and with a long history behind it.

A snapshot that somebody holds keeps every dead row and index entry from being removed. What is
asked here is whether a claim, a hint from the marks and a sweep still look at no more than before:
buffers of one call in the first and in the last tenth of a drain, and the drain's rate beside one
without a snapshot. A look from the start and the sweep of leases do walk dead entries: the one
is as rare as it is dear, the other comes once a minute. What counts of them is their time.
"""

import functools
import json
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from contestants import Contestant
from drain import Crew, at_work, database, drained
from server import Server

from semel.db.pool import connect

HISTORY = 1_000_000
#: What a worker's statements read, by what stands in their text.
STATEMENTS = {
    "claim": "semel.run_claim(",
    "complete": "semel.run_complete(",
    "look from the start": "semel.run_hint($1::text[], $2::text[], p_now",
}
#: What this session asks now and then; the worker asks for a hint only when it has nothing left.
HINT = (
    "select * from semel.run_hint(array['noop'], array[''], array['bench'], array['noop'],"
    " array[''], array[5], array[%s::timestamptz])"
)
SWEEPS = {
    "reap": "select * from semel.run_reap('bench', '30 s')",
    "due": "select semel.run_due('bench')",
    "overdue": "select * from semel.run_overdue('bench')",
}
#: The sweep judges, has a dead worker to look for, and looks at leases where told.
JUDGING = """
update semel.project set swept_at = now(), blind_until = null,
    leases_at = case when not %s then now() end
where project_id = 'bench'
"""
DEAD = """
update semel.worker set stopped_at = null, beat_at = now() - interval '1 hour'
where project_id = 'bench' and worker_id = 'dead'
"""
REGISTER = """
select semel.worker_register('bench', 'dead', 'h', 1, 1, array['noop'], array[3], array[null::int],
    array['async'])
"""


@contextmanager
def snapshot(url: str) -> Generator[None]:
    """Hold a snapshot of the database, as a forgotten session or a long report does."""
    with psycopg.connect(url) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select count(*) from semel.run")
        yield


def pinned(server: Server, who: Contestant, *, jobs: int) -> dict[str, Any]:
    """
    A drain under a snapshot.

    Returns:
        rate; buffers: by call, in the first and in the last tenth; worst_claim_ms; look_share: of
        the drain's time, in looks from the start; lease_sweep_ms: one, in the first and last tenth.
    """
    name = database(server, who)
    url = server.url(name)
    server.admin.execute(f"alter database {name} set pg_stat_statements.track = 'top'")
    who.ask(url, "fill", jobs)
    with connect(url, name="bench") as conn:
        conn.execute("create extension if not exists pg_stat_statements")
        conn.execute("vacuum analyze semel.run")
        conn.execute(REGISTER)
        for _ in range(2):  # plans are made, catalogs read
            Sample(conn)
        conn.execute("select pg_stat_statements_reset()")
        server.settle()
        with snapshot(url), at_work(who, url, jobs=jobs) as crew:
            start = _buffers(conn)
            first = _sampled(conn, crew, from_=0.0, to=0.1 * jobs)
            early = _buffers(conn)
            last = _sampled(conn, crew, from_=0.85 * jobs, to=0.95 * jobs)
            late = _buffers(conn)
            began, ended = crew.finish(conn, jobs)
            end = _buffers(conn)
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
                what: (_each(start, early, what), _each(late, end, what)) for what in STATEMENTS
            },
            **{what: (first.buffers[what], last.buffers[what]) for what in first.buffers},
        },
        "lease_sweep_ms": (first.lease_sweep_ms, last.lease_sweep_ms),
        "worst_claim_ms": said.get("claim_seconds_max", float("nan")) * 1e3,
        "look_share": said.get("look_seconds", float("nan")) / (ended - began),
    }


class Sample:
    """
    What a hint from the mark and the sweeps read now, by EXPLAIN (ANALYZE, BUFFERS).

    Each three times in a row, and the middle one counts: a plan that is made anew, as after an
    autovacuum, reads catalogs.
    """

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn
        [(mark,)] = conn.execute("select min(ready_at) from semel.run").fetchall()
        self.buffers: dict[str, float] = {}
        if mark is not None:  # else no run waits, and there is no first
            self.buffers["hint"] = self._middle(lambda: _explained(conn, HINT, mark))[0]
        for what, sql in SWEEPS.items():
            self.buffers[what] = self._middle(functools.partial(self._sweep, sql))[0]
        leases = functools.partial(self._sweep, SWEEPS["reap"], leases=True)
        self.buffers["sweep of leases"], self.lease_sweep_ms = self._middle(leases)

    def _sweep(self, sql: str, *, leases: bool = False) -> tuple[int, float]:
        self._conn.execute(JUDGING, (leases,))
        self._conn.execute(DEAD)
        return _explained(self._conn, sql)

    def _middle(self, ask: Callable[[], tuple[int, float]]) -> tuple[int, float]:
        return sorted(ask() for _ in range(3))[1]


def _sampled(conn: psycopg.Connection[Any], crew: Crew, *, from_: float, to: float) -> Sample:
    """One sample at the middle between *from_* and *to* handled jobs; returns at *to*."""
    _await(crew, (from_ + to) / 2)
    sample = Sample(conn)
    _await(crew, to)
    return sample


def _await(crew: Crew, count: float) -> None:
    while sum(note["count"] for note in crew.notes()) < count:
        crew.alive()
        time.sleep(0.002)


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
    before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]], what: str
) -> float | None:
    """Buffers of one call between the two readings; None when there was none."""
    calls = after[what][0] - before[what][0]
    return (after[what][1] - before[what][1]) / calls if calls else None


def _explained(conn: psycopg.Connection[Any], sql: str, *args: object) -> tuple[int, float]:
    """Buffers and ms of one call, all its statements together."""
    rows = conn.execute(f"explain (analyze, buffers, format json) {sql}", args).fetchall()
    [told] = rows[0][0]
    plan = told["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], told["Execution Time"]


def _stopped(log: str) -> dict[str, float]:
    """What the worker said of itself when it stopped, in JSON or as key=value."""
    line = next((line for line in reversed(log.splitlines()) if "worker.stopped" in line), "")
    if line.startswith("{"):
        fields = json.loads(line)
        return {name: value for name, value in fields.items() if isinstance(value, float)}
    return {name: float(value) for name, value in re.findall(r"(\w+)=([0-9.]+)(?=\s|$)", line)}


def beside_snapshot(server: Server, who: Contestant, *, jobs: int) -> dict[str, float]:
    """A drain under a snapshot, with nobody looking on."""
    name = database(server, who)
    who.ask(server.url(name), "fill", jobs)
    with connect(server.url(name), name="bench") as conn, snapshot(server.url(name)):
        figures = drained(server, who, conn, jobs=jobs)
    server.drop(name)
    return figures


def beside_history(server: Server, who: Contestant, *, jobs: int) -> dict[str, float]:
    """A drain with HISTORY finished runs there already; `remember` has made them."""
    name = f"{who.name}_work"
    server.make(name, of=f"{who.name}_million")
    who.ask(server.url(name), "fill", jobs)
    with connect(server.url(name), name="bench") as conn:
        figures = drained(server, who, conn, jobs=jobs)
    server.drop(name)
    return figures


def remember(server: Server, who: Contestant) -> None:
    """Make the database that `beside_history` copies, in good time: a disk needs a rest then."""
    name = database(server, who)
    with connect(server.url(name), name="bench") as conn:
        _remember(conn)
        conn.execute("vacuum (analyze) semel.run_history")
    server.admin.execute(f"alter database {name} rename to {who.name}_million")
    server.settle()


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
