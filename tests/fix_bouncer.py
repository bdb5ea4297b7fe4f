"""PgBouncer in transaction mode before a test's database."""

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

from fix_world import one, until
from semel.db.pool import connect

BINARY = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")

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
