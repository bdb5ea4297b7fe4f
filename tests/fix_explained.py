"""What the statements inside a call did: auto_explain tells of each, as a notice to this client."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from fix_world import LEASE, Conn
from semel.core import claims
from semel.core.call import Call
from semel.db.execute import run
from semel.db.pool import connect
from semel.model import Claim

#: Tables that grow; the others have a row for each project, agent or worker.
GROWN = {
    "run",
    "run_history",
    "run_input",
    "attempt",
    "dedupe",
    "delivery",
    "body",
    "step",
    "wait",
    "signal",
    "approval",
    "approval_token",
    "approval_vote",
    "fold",
}

FILL = """
insert into semel.run (project_id, run_id, agent, status, lane, priority, ready_at, due_at,
    deadline_at, input, source, created_at)
select 'p', semel.uuid_at(clock_timestamp()), 'a', 'PENDING', 5, 5,
    case when n % 10 > 0 then clock_timestamp() end,
    case when n % 10 = 0 then clock_timestamp() + interval '1 hour' end,
    case when n % 10 = 1 then clock_timestamp() + interval '1 hour' end,
    '{}', 'api', clock_timestamp() from generate_series(1, 50000) as n;
insert into semel.run_history (project_id, run_id, agent, status, priority, attempt_count,
    release_count, fence, worker_id, created_at, finished_at)
select 'p', semel.uuid_at(clock_timestamp()), 'a', 'COMPLETED', 5, 1, 0, 1, 'w', clock_timestamp(),
    clock_timestamp() from generate_series(1, 50000) as n;
insert into semel.attempt (project_id, run_id, fence, attempt, worker_id, outcome, claimed_at, ended_at)
select 'p', semel.uuid_at(clock_timestamp()), 1, 1, 'w', 'failed', clock_timestamp(),
    clock_timestamp() from generate_series(1, 50000) as n;
insert into semel.dedupe (project_id, dedupe_key, source, channel_type, provider_event_id, event_id,
    first_seen_at, last_seen_at)
select 'p', sha256(n::text::bytea), 's', 'api', n::text, gen_random_uuid(), clock_timestamp(),
    clock_timestamp() from generate_series(1, 50000) as n;
insert into semel.fold (project_id, source, fingerprint, status, starts_ns, ends_ns, episode, event_id,
    event_key, changed_at, seen_at, seen_digest)
select 'p', 'am', n::text, 'firing', 1, 0, gen_random_uuid(), gen_random_uuid(), 'k', clock_timestamp(),
    clock_timestamp(), 'd' from generate_series(1, 50000) as n;
"""


class Explained:
    """A connection that tells what the statements of each call did."""

    def __init__(self, conn: Conn) -> None:
        self.conn = conn
        self._said: list[str] = []
        conn.add_notice_handler(lambda said: self._said.append(said.message_primary or ""))
        conn.execute("load 'auto_explain'")
        for setting, value in {
            "log_min_duration": "0",
            "log_nested_statements": "on",
            "log_analyze": "on",
            "log_buffers": "on",
            "log_timing": "off",
            "log_format": "json",
            "log_level": "notice",
        }.items():
            conn.execute(f"set auto_explain.{setting} = {value}")

    def ask(self, call: Call[Any]) -> Any:
        self._said.clear()
        return run(self.conn, call)

    @property
    def plans(self) -> Iterator[dict[str, Any]]:
        """Every node of every statement of the last call."""
        for said in self._said:
            _, plan, text = said.partition("plan:\n")
            if plan:
                yield from _nodes(json.loads(text)["Plan"])

    @property
    def read(self) -> int:
        """Shared buffers that the statements inside the last call touched; planning is not counted."""
        tops = [
            json.loads(said.partition("plan:\n")[2]) for said in self._said if "plan:" in said
        ]
        return sum(
            int(top["Plan"]["Shared Hit Blocks"] + top["Plan"]["Shared Read Blocks"])
            for top in tops[:-1]
        )

    @property
    def buffers(self) -> int:
        """Shared buffers that the last call touched, all its statements together."""
        tops = [
            json.loads(said.partition("plan:\n")[2]) for said in self._said if "plan:" in said
        ]
        plans = [top["Plan"] for top in tops]
        return max(int(p["Shared Hit Blocks"] + p["Shared Read Blocks"]) for p in plans)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


@pytest.fixture
def explained(dsn: str) -> Iterator[Explained]:
    """A session that runs what workers run, with the plans that a session of long life has."""
    try:
        with connect(dsn) as conn:
            yield Explained(conn)
    except psycopg.errors.UndefinedFile:
        pytest.skip("this PostgreSQL has no auto_explain: install its contrib package")


def _table(node: dict[str, Any]) -> str:
    return str(node.get("Relation Name", "")).rstrip("0123456789").removesuffix("_")


def held(conn: Conn, worker: str, limit: int) -> list[Claim]:
    return run(conn, claims.run_claim("p", "a", worker, limit=limit, lease=LEASE, lanes=[5]))


def whole_tables(
    conn: Conn, explained: Explained, calls: Callable[[Conn, int], dict[str, Call[Any]]]
) -> dict[tuple[str, str], int]:
    """
    The large tables that a statement of *calls* reads from end to end, and how often.

    Seven times each, since PostgreSQL may change to a generic plan after five.
    """
    conn.execute("analyze")
    whole: Counter[tuple[str, str]] = Counter()

    for turn in range(7):
        for name, call in calls(conn, turn).items():
            explained.ask(call)
            nodes = list(explained.plans)
            assert nodes, name
            for node in nodes:
                if node["Node Type"] == "Seq Scan" and _table(node) in GROWN:
                    whole[name, node["Relation Name"]] += 1

    # A partition that is empty costs nothing to read.
    empty = {
        table
        for [table] in conn.execute(
            "select relname from pg_class where relnamespace = 'semel'::regnamespace"
            " and relkind = 'r' and pg_relation_size(oid) = 0"
        )
    }
    return {key: n for key, n in whole.items() if key[1] not in empty}
