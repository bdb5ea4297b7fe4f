"""The embedded server's places: its home, its binaries, its account, its socket."""

import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import semel
from semel.db.embedded import EmbeddedError, staging, status, stop, use
from semel.db.embedded import binaries as binaries_room
from semel.db.embedded.binaries import find_binaries
from semel.db.embedded.home import Home

FAST = {"fsync": "off"}
SOURCE = Path(semel.__file__).parent.parent
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root switches accounts")


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
