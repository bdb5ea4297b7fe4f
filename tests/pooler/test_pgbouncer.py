"""Everything that Semel runs works behind PgBouncer in transaction mode."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fix_bouncer import BINARY
from fix_world import Conn, Programs, one, until
from semel.config import Source
from semel.core import runs
from semel.db.execute import run
from semel.db.pool import connect
from web import Web, settings, web

RUNS = 300

pytestmark = pytest.mark.skipif(
    BINARY is None, reason="no pgbouncer: apt-get install pgbouncer, or brew install pgbouncer"
)

_KILL = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and application_name like 'semel-%' limit 1
"""


@pytest.fixture
def behind(bouncer: str, tmp_path: Path) -> Iterator[Programs]:
    """Starts workers and upkeeps that know the database only through the pooler."""
    programs = Programs(bouncer, tmp_path)
    yield programs
    programs.end()


def deliver(server: Web, update_id: int) -> int:
    """Send it as providers do: again while the answer is 503."""
    for _ in range(20):
        answer = server.post("/in/p/bot", {"update_id": update_id})
        if answer.status_code != 503:
            return answer.status_code
    raise AssertionError(answer.text)


def errors(log: str) -> list[str]:
    """The lines that a person would be called for."""
    lines = [line for line in log.splitlines() if not line.startswith("{")]
    told = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return lines + [
        json.dumps(one_) for one_ in told if one_.get("level") in {"error", "critical"}
    ]


def test_everything_works_behind_a_transaction_pooler(
    conn: Conn, bouncer: str, behind: Programs
) -> None:
    """A server, two workers and upkeep share three sessions, one of which is killed now and then."""
    source = Source(project="p", name="bot", channel="telegram", agent="noop")
    for _ in range(2):
        behind.worker(pooler="true", worker_poll="50ms")
    behind.upkeep(pooler="true")

    answers: list[int] = []
    with web(settings(bouncer, source, pooler=True)) as server:
        for n in range(RUNS):
            answers.append(deliver(server, n))
            assert 200 == deliver(server, n // 2)
            if n % 60 == 30:
                conn.execute(_KILL)
        with connect(bouncer, prepare=False) as producer:
            for n in range(RUNS):
                run(producer, runs.run_start("p", "noop", n, key=str(n)))

    assert answers.count(201) >= RUNS - 5  # a killed one may have been accepted before its 503
    done = "select count(*) from semel.runs where status = 'COMPLETED'"
    until(lambda: one(conn, done) == 2 * RUNS, 45)
    assert 0 == one(conn, "select count(*) from semel.run")
    assert 2 * RUNS == one(conn, "select count(*) from semel.events")
    until(lambda: one(conn, "select count(*) from semel.project where swept_at is not null"))
    assert "prepared statement" not in behind.log()
    assert [] == errors(behind.log())
