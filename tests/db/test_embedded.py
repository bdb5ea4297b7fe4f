"""The embedded server: shared, found, refused, and gone when nobody needs it."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import semel
from semel.db.embedded import EmbeddedError, keep, locks, psql, staging, status, stop, use
from semel.db.embedded import binaries as binaries_room
from semel.db.embedded import home as home_room
from semel.db.embedded.binaries import find_binaries
from semel.db.embedded.home import Home

FAST = {"fsync": "off"}
SOURCE = Path(semel.__file__).parent.parent
USER = """
import sys
from pathlib import Path
from semel.db.embedded import use
with use(Path(sys.argv[1]), settings={"fsync": "off"}) as server:
    print(server.postmaster_pid, flush=True)
    sys.stdin.read()
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root switches accounts")


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
        assert conn.execute("show server_version").fetchone() == (server.version,)


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


@pytest.mark.parametrize("name", ["long" * 30, "comma,quote'"], ids=["long", "list"])
def test_a_home_whose_name_fits_no_socket_gets_a_short_folder_that_goes_again(
    tmp_path: Path, name: str
) -> None:
    home = tmp_path / name
    with use(home, settings=FAST) as server:
        folder = server.socket_dir
        assert home not in folder.parents
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert answer(server.dsn) == 42
        assert status(home).socket_dir == folder
    until(lambda: status(home).state == "stopped")
    assert not folder.exists()


def test_data_of_another_version_is_refused_and_not_touched(home: Path) -> None:
    with use(home, settings=FAST):
        pass
    until(lambda: status(home).state == "stopped")
    stamp = home / "data" / "PG_VERSION"
    stamp.write_text("13\n")
    before = sorted((path, path.stat().st_mtime_ns) for path in (home / "data").rglob("*"))

    with pytest.raises(EmbeddedError, match=r"PostgreSQL 13.*SEMEL_PG_BIN.*postgres\.log"):
        use(home, settings=FAST)

    assert before == sorted((p, p.stat().st_mtime_ns) for p in (home / "data").rglob("*"))


def test_a_folder_that_is_no_data_directory_is_refused(home: Path) -> None:
    (home / "data").mkdir(parents=True)
    if not os.geteuid():
        os.chown(home / "data", *pwd.getpwnam("nobody")[2:4])
    with pytest.raises(EmbeddedError, match="move it away"):
        use(home, settings=FAST)


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


def test_without_binaries_the_message_names_the_three_ways_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries_room, "WHEELS", ())
    monkeypatch.setattr(binaries_room, "SYSTEM_GLOBS", ())
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("SEMEL_PG_BIN", raising=False)
    with pytest.raises(EmbeddedError) as caught:
        use(home)
    for word in ("semel[embedded]", "SEMEL_PG_BIN", "SEMEL_DSN", "postgres.log"):
        assert word in str(caught.value)


def test_a_wrong_semel_pg_bin_is_refused_not_passed_over(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMEL_PG_BIN", "/nowhere")
    with pytest.raises(EmbeddedError, match="SEMEL_PG_BIN=/nowhere"):
        use(home)


def test_binaries_of_the_system_are_used_when_no_wheel_is_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries_room, "WHEELS", ())
    monkeypatch.delenv("SEMEL_PG_BIN", raising=False)
    try:
        expected = find_binaries(Home(home), os.environ)
    except EmbeddedError:
        pytest.skip("this system has no PostgreSQL of its own")
    with use(home, settings=FAST) as server:
        assert server.version == expected.version
        assert answer(server.dsn) == 42


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


@as_root
def test_a_home_out_of_reach_for_the_servers_account_changes_no_folder_above_it(
    tmp_path: Path,
) -> None:
    closed = tmp_path / "closed"
    home = closed / "below" / "home"
    home.parent.mkdir(parents=True)
    closed.chmod(0o700)
    before = [(path, path.stat().st_mode, path.stat().st_uid) for path in home.parents]

    with use(home, settings=FAST) as server, psycopg.connect(server.dsn) as conn:
        conn.execute("create table t()")
        assert (home / "data" / "PG_VERSION").exists()

    assert before == [(path, path.stat().st_mode, path.stat().st_uid) for path in home.parents]
    stop(home)


@as_root
def test_binaries_out_of_reach_are_copied_once_and_no_folder_changes(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_binaries(Home(home), os.environ)
    if found.bin.parent.name != "pginstall":
        pytest.skip("only a wheel's folder can be moved")
    package = found.bin.parent.parent
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for folder in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, closed / folder.name, copy_function=os.link)
    stage = Path(tempfile.mkdtemp(prefix="semel-stage-"))
    stage.chmod(0o755)
    monkeypatch.setattr(staging, "STAGES", (stage,))
    monkeypatch.setenv("SEMEL_PG_BIN", str(closed / package.name / "pginstall" / "bin"))
    try:
        for _ in range(2):
            with use(home, settings=FAST) as server:
                assert answer(server.dsn) == 42
            stop(home)
        [copy] = stage.iterdir()
        assert found.version in copy.name
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    finally:
        stop(home)
        shutil.rmtree(stage)


@as_root
def test_a_home_of_another_account_is_refused_with_both_names(home: Path) -> None:
    home.mkdir()
    os.chown(home, *pwd.getpwnam("nobody")[2:4])
    with pytest.raises(EmbeddedError, match=r"belongs to nobody.*we are root.*SEMEL_HOME"):
        use(home)
    os.chown(home, 0, 0)


@as_root
def test_an_account_that_does_not_exist_is_refused_not_made(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMEL_PG_USER", "semel-nobody-has-this")
    with pytest.raises(EmbeddedError, match="SEMEL_PG_USER"):
        use(home)


@as_root
def test_an_ordinary_user_runs_the_server_as_themselves() -> None:
    """Another account needs a Python and the sources; below /root it reaches neither."""
    nobody = pwd.getpwnam("nobody")
    base = Path(tempfile.mkdtemp(prefix="semel-"))
    os.chown(base, nobody.pw_uid, nobody.pw_gid)
    home = base / "h"
    program = (
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from semel.db.embedded import psql, stop, use\n"
        "home = Path(sys.argv[1])\n"
        "with use(home, settings={'fsync': 'off'}) as server:\n"
        "    out = subprocess.check_output([*psql(home), '-Atc', 'select 42'], text=True)\n"
        "    print(out.strip(), (home / 'data').stat().st_uid, os.geteuid(), stop(home))\n"
    )
    tried = []
    try:
        for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
            try:
                done = subprocess.run(
                    [python, "-c", program, str(home)],
                    user=nobody.pw_uid,
                    group=nobody.pw_gid,
                    extra_groups=[],
                    cwd="/",
                    capture_output=True,
                    text=True,
                    check=False,
                    env={
                        "PATH": os.environ["PATH"],
                        "PYTHONPATH": str(SOURCE),
                        "PYTHONNOUSERSITE": "1",
                        "PYTHONDONTWRITEBYTECODE": "1",
                        "SEMEL_PG_BIN": str(find_binaries(Home(home), os.environ).bin),
                    },
                )
            except OSError as error:
                tried.append(f"{python}: {error}")
                continue
            if done.returncode and "Error" in done.stderr and not (home / "data").exists():
                tried.append(f"{python}: {done.stderr.splitlines()[-1]}")
                continue
            assert done.stdout.split() == ["42", str(nobody.pw_uid), str(nobody.pw_uid), "True"]
            break
        else:
            pytest.skip(f"account nobody cannot run semel here: {tried}")
    finally:
        shutil.rmtree(base)
