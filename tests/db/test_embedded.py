"""The embedded server: shared while one needs it, gone when nobody does."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from semel.db.embedded import EmbeddedError, keep, locks, psql, status, stop, use
from semel.db.embedded import home as home_room

FAST = {"fsync": "off"}
USER = """
import sys
from pathlib import Path
from semel.db.embedded import use
with use(Path(sys.argv[1]), settings={"fsync": "off"}) as server:
    print(server.postmaster_pid, flush=True)
    sys.stdin.read()
"""


class User:
    """A process that uses a home until its input ends."""

    def __init__(self, home: Path, group: int | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=group,
        )

    def postmaster(self) -> int:
        assert self.process.stdout
        return int(self.process.stdout.readline())

    def leave(self) -> None:
        self.process.communicate()


def until(promise: Callable[[], bool], seconds_max: float = 8) -> None:
    deadline = time.monotonic() + seconds_max
    while not promise():
        assert time.monotonic() < deadline, "the promise was not kept in time"
        time.sleep(0.01)


def answer(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute("select 42").fetchone()
    assert row
    return int(row[0])


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "h"
    stop(tmp_path / "h")


def test_two_processes_share_one_server(home: Path) -> None:
    first = User(home)
    second = User(home)
    assert first.postmaster() == second.postmaster()

    first.leave()
    assert status(home).state == "running"
    second.leave()
    until(lambda: status(home).state == "stopped")


def test_twenty_processes_at_once_share_one_server(home: Path) -> None:
    users = [User(home) for _ in range(20)]
    try:
        assert len({user.postmaster() for user in users}) == 1
    finally:
        for user in users:
            user.leave()


def test_threads_of_one_process_share_one_server(home: Path) -> None:
    seen: list[int] = []

    def work() -> None:
        with use(home, settings=FAST) as server:
            seen.append(server.postmaster_pid)
            together.wait()

    together = threading.Barrier(8)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(seen) == 8
    assert len(set(seen)) == 1


def test_a_server_is_reached_over_its_socket_and_keeps_rows_between_lives(home: Path) -> None:
    with use(home, settings=FAST) as server, psycopg.connect(server.dsn) as conn:
        conn.execute("create table kept as select 42 as n")
    until(lambda: status(home).state == "stopped")

    with use(home, settings=FAST) as server, psycopg.connect(server.dsn) as conn:
        assert conn.execute("select n from kept").fetchone() == (42,)
        assert conn.execute("show listen_addresses").fetchone() == ("",)
        row = conn.execute("show server_version").fetchone()
        assert row
        assert str(row[0]).startswith(server.version)


def test_a_server_is_durable_unless_a_test_asks_otherwise(home: Path) -> None:
    with use(home) as server, psycopg.connect(server.dsn) as conn:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            assert conn.execute(f"show {setting}").fetchone() == ("on",)


def test_a_kept_server_stays_without_users_until_stop(home: Path) -> None:
    keep(home, settings=FAST)

    until(lambda: not status(home).users)
    found = status(home)
    assert found.state == "running"
    assert found.kept
    assert found.data.is_dir()
    assert found.log.read_text()
    with use(home) as server:
        assert server.postmaster_pid == found.postmaster_pid

    assert stop(home)
    assert not stop(home)
    found = status(home)
    assert (found.state, found.kept, found.error) == ("stopped", False, None)


def test_stop_ends_a_server_with_users_who_may_start_it_again(home: Path) -> None:
    with use(home, settings=FAST) as server, psycopg.connect(server.dsn) as conn:
        assert status(home).users
        assert stop(home)
        with pytest.raises(psycopg.OperationalError):
            conn.execute("select 1")
        with use(home, settings=FAST) as again:
            assert again.postmaster_pid != server.postmaster_pid
            assert answer(again.dsn) == 42


def test_status_of_no_home_is_stopped_and_makes_nothing(home: Path) -> None:
    assert status(home).state == "stopped"
    assert not stop(home)
    assert not home.exists()


def test_psql_opens_the_running_server(home: Path) -> None:
    with pytest.raises(EmbeddedError, match="semel db start"):
        psql(home)
    with use(home, settings=FAST):
        said = subprocess.run(
            [*psql(home), "-Atc", "select 42"], capture_output=True, text=True, check=True
        )
    assert said.stdout == "42\n"


def test_a_setting_the_server_refuses_is_an_error_with_the_end_of_the_log(home: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"(?s)postgres\.log.*invalid value for") as e:
        use(home, settings={**FAST, "shared_buffers": "much"})
    assert e.value.log.exists()
    assert status(home).error == e.value.problem

    with use(home, settings=FAST) as server:
        assert answer(server.dsn) == 42


def test_use_never_waits_longer_than_it_was_told(home: Path) -> None:
    with use(home, settings=FAST), locks.held(home / "door.lock", deadline=time.monotonic()):
        begun = time.monotonic()
        with pytest.raises(EmbeddedError, match=r"not ready within 0\.3 s.*postgres\.log"):
            use(home, start_seconds_max=0.3)
        assert time.monotonic() - begun < 2


def test_a_grown_log_is_set_aside_at_the_next_start(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_room, "LOG_BYTES_MAX", 10)
    for _ in range(2):
        with use(home, settings=FAST):
            pass
        until(lambda: status(home).state == "stopped")
    assert (home / "postgres.log.1").stat().st_size > 10


def test_ctrl_c_in_a_users_terminal_leaves_the_server_to_the_others(home: Path) -> None:
    user = User(home, group=0)
    pid = user.postmaster()
    with use(home) as server:
        os.killpg(user.process.pid, signal.SIGINT)
        user.process.wait()
        user.leave()
        assert server.postmaster_pid == pid
        assert answer(server.dsn) == 42


def test_what_a_user_forks_does_not_hold_the_server(home: Path) -> None:
    with use(home, settings=FAST):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)  # Until the test closes its end.
            os._exit(0)
    try:
        until(lambda: status(home).state == "stopped")
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(child, 0)
