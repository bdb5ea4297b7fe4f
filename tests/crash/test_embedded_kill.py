"""The embedded server under SIGKILL: of users, supervisor, postmaster, initdb, and at once."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from semel.db.embedded import Server, guarded, locks, status, stop, use
from semel.db.embedded.account import choose_account
from semel.db.embedded.home import Home

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc"),
]

USER = """
import sys
from pathlib import Path
from semel.db.embedded import use
server = use(Path(sys.argv[1]))
print(server.postmaster_pid, flush=True)
sys.stdin.read()
"""


def user(home: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", USER, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said_pid(process: "subprocess.Popen[str]") -> int:
    assert process.stdout
    return int(process.stdout.readline())


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def supervisor(home: Path) -> int:
    until(lambda: (home / "supervisor.lock").read_text() != "")
    return int((home / "supervisor.lock").read_text())


def gone(pid: int) -> bool:
    """A zombie is gone: the first process of a container may reap late or never."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def until(promise: Callable[[], bool], seconds_max: float = 8) -> None:
    deadline = time.monotonic() + seconds_max
    while not promise():
        assert time.monotonic() < deadline, "the promise was not kept in time"
        time.sleep(0.01)


def write(server: Server) -> None:
    with psycopg.connect(server.dsn) as conn:
        conn.execute("create table if not exists kept (n int)")
        conn.execute("insert into kept values (42)")


def rows(server: Server) -> int:
    with psycopg.connect(server.dsn) as conn:
        row = conn.execute("select count(*) from kept").fetchone()
    assert row
    return int(row[0])


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "h"
    stop(tmp_path / "h")


def test_the_server_ends_when_its_last_user_is_killed(home: Path) -> None:
    first, last = user(home), user(home)
    pid = said_pid(first)
    assert said_pid(last) == pid

    kill(first)
    assert not gone(pid)
    kill(last)
    until(lambda: gone(pid))
    until(lambda: status(home).state == "stopped")
    assert "shut down" in status(home).log.read_text()


def test_a_killed_supervisor_takes_the_server_down_and_the_next_use_starts_both(
    home: Path,
) -> None:
    with use(home) as server:
        write(server)
        os.kill(supervisor(home), signal.SIGKILL)

        with use(home) as again:  # At once: the fast shutdown is still under way.
            assert gone(server.postmaster_pid)
            assert rows(again) == 1
    assert "fast shutdown" in server.log.read_text()


def test_stop_waits_for_a_server_whose_supervisor_was_killed(home: Path) -> None:
    with use(home) as server:
        os.kill(supervisor(home), signal.SIGKILL)
        stop(home)
        assert locks.is_free(home / "server.lock")
        assert not server.socket_dir.joinpath(".s.PGSQL.5432").exists()


def test_a_killed_postmaster_is_started_again_for_the_users_that_remain(home: Path) -> None:
    with use(home) as server:
        write(server)
        os.kill(server.postmaster_pid, signal.SIGKILL)

        until(lambda: status(home).postmaster_pid not in {None, server.postmaster_pid})
        assert rows(server) == 1  # Over the same dsn.


def test_use_right_after_the_kill_of_the_postmaster_returns_a_recovered_server(
    home: Path,
) -> None:
    with use(home) as server:
        write(server)
        os.kill(server.postmaster_pid, signal.SIGKILL)
        with use(home) as again:
            assert again.postmaster_pid != server.postmaster_pid
            assert rows(again) == 1


def test_a_backend_that_outlives_its_postmaster_does_not_block_the_next(home: Path) -> None:
    """
    A backend that computes does not look whether its postmaster lives, and a server
    beside it would be refused by PostgreSQL.
    """
    with use(home) as server:
        write(server)
        busy = subprocess.Popen(
            [sys.executable, "-c", BUSY, server.dsn], stdout=subprocess.PIPE, text=True
        )
        backend = said_pid(busy)
        with psycopg.connect(server.dsn) as conn:
            until(lambda: conn.execute(LOOPS, [backend]).fetchone() == (True,))
        os.kill(supervisor(home), signal.SIGSTOP)  # Nobody may tidy up before the kill.
        os.kill(server.postmaster_pid, signal.SIGKILL)
        os.kill(supervisor(home), signal.SIGKILL)
        assert not gone(backend)

        with use(home) as again:
            assert gone(backend)
            assert rows(again) == 1
        kill(busy)


LOOPS = "select state = 'active' and query like 'do %%' from pg_stat_activity where pid = %s"
BUSY = """
import sys, psycopg
conn = psycopg.connect(sys.argv[1])
print(conn.info.backend_pid, flush=True)
conn.execute("do $$ begin loop perform 1; end loop; end $$")
"""


def test_a_server_whose_home_was_removed_ends_with_its_last_user(home: Path) -> None:
    with use(home) as server:
        shutil.rmtree(home)
    until(lambda: gone(server.postmaster_pid))


def test_a_killed_initdb_never_looks_finished(home: Path) -> None:
    process = user(home)
    until(lambda: any(home.glob("data.new-*/base")), seconds_max=20)
    os.kill(supervisor(home), signal.SIGKILL)
    kill(process)
    assert not (home / "data").exists()

    with use(home) as server:
        write(server)
    assert not list(home.glob("data.new-*"))


def test_a_user_killed_during_the_first_start_leaves_no_server_behind(home: Path) -> None:
    process = user(home)
    until(lambda: any(home.glob("data.new-*/base")), seconds_max=20)
    kill(process)

    until(lambda: status(home).state == "stopped", seconds_max=20)
    assert locks.is_free(home / "server.lock")


def test_a_pid_file_whose_number_another_process_has_now_is_no_obstacle(home: Path) -> None:
    with use(home):
        pass
    until(lambda: status(home).state == "stopped")
    account = choose_account(Home(home.resolve()), os.environ)
    stranger = subprocess.Popen(["sleep", "60"], **account.switch)
    try:
        lines = [str(stranger.pid), str(home / "data"), "1", "5432", "/", "", "0 0", "ready"]
        (home / "data" / "postmaster.pid").write_text("\n".join(lines))
        with use(home, start_seconds_max=8) as server:
            assert server.postmaster_pid != stranger.pid
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_server_that_is_killed_again_and_again_is_given_up_with_the_log_named(
    home: Path,
) -> None:
    with use(home, settings={"fsync": "off"}) as server:
        deadline = time.monotonic() + 20
        while (found := status(home)).error is None:
            assert time.monotonic() < deadline
            if found.postmaster_pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(found.postmaster_pid, signal.SIGKILL)
        assert "SIGKILL" in found.error

        with use(home, settings={"fsync": "off"}) as again:  # A new call is a new chance.
            assert again.postmaster_pid != server.postmaster_pid


def test_a_guarded_server_comes_back_when_its_supervisor_was_killed(home: Path) -> None:
    with guarded(use(home)) as server:
        with psycopg.connect(server.dsn, autocommit=True) as conn:
            conn.execute("create table kept as select 1 as x")
        os.kill(supervisor(home), signal.SIGKILL)

        until(lambda: gone(server.postmaster_pid))
        until(lambda: answers(server))
        # A guard in the middle of its call would start it once more: it came after the first stop.
        until(lambda: not stop(home) and status(home).halted)
    assert status(home).state == "stopped"


def answers(server: Server) -> bool:
    try:
        with psycopg.connect(server.dsn) as conn:
            return conn.execute("select x from kept").fetchone() == (1,)
    except psycopg.OperationalError:
        return False
