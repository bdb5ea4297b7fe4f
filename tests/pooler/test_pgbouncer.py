"""Everything that Semel runs works behind PgBouncer in transaction mode."""

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fix_world import Conn, Programs, one, until
from semel.config import Source
from semel.core import runs
from semel.db.execute import run
from semel.db.pool import connect
from web import Web, settings, web

BINARY = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
RUNS = 300

pytestmark = pytest.mark.skipif(
    BINARY is None, reason="no pgbouncer: apt-get install pgbouncer, or brew install pgbouncer"
)

_KILL = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and application_name like 'semel-%' limit 1
"""
#: Three sessions for everybody: each statement may come to another one.
CONFIG = """
[databases]
* = host={host} port={port} user={user}

[pgbouncer]
pool_mode = transaction
default_pool_size = 3
max_client_conn = 100
auth_type = any
listen_addr =
unix_socket_dir = {home}
listen_port = 6432
logfile = {home}/log
pidfile = {home}/pid
"""


@pytest.fixture
def bouncer(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The conninfo of the test's database behind a PgBouncer of its own."""
    told = conninfo_to_dict(dsn)
    # It refuses to be root, and must enter the server's socket folder: it runs as its owner.
    owner = pwd.getpwuid(Path(str(told["host"])).stat().st_uid)
    switch: Any = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    home = Path(os.environ["SEMEL_TEST_HOME"]) / f"bouncer-{os.getpid()}"
    home.mkdir(exist_ok=True)
    home.chmod(0o755)
    config = home / "pgbouncer.ini"
    config.write_text(CONFIG.format(home=home, **told))
    if os.geteuid() == 0:
        shutil.chown(home, owner.pw_name)
    else:
        switch = {}
    assert BINARY
    process = subprocess.Popen(
        [BINARY, "-q", str(config)], cwd="/", stderr=subprocess.DEVNULL, **switch
    )
    pooled = make_conninfo(dsn, host=str(home), port=6432)
    try:
        until(lambda: process.poll() is not None or _answers(pooled))
        assert process.poll() is None, (home / "log").read_text()
        yield pooled
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(home)


def _answers(dsn: str) -> bool:
    try:
        with connect(dsn, prepare=False) as conn:
            return bool(one(conn, "select true"))
    except psycopg.OperationalError:
        return False


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
