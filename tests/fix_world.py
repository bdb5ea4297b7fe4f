"""Builders, real processes, and the one way to wait: on what the database says."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from semel.core import runs
from semel.db.execute import run
from semel.db.pool import connect

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LEASE = timedelta(minutes=5)
DEAD = timedelta(seconds=30)
PROGRAMS = Path(__file__).parent / "programs"

Conn = psycopg.Connection[Any]


def second(seconds: float) -> datetime:
    """NOW and some seconds."""
    return NOW + timedelta(seconds=seconds)


def until(seen: Callable[[], Any], within: float = 30.0) -> Any:
    """Poll *seen* until it is true; fail loudly when it never is."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if found := seen():
            return found
        time.sleep(0.02)
    raise AssertionError(f"never saw it within {within} s")


def until_blocked(conn: Conn, pid: int) -> None:
    """Return once backend *pid* waits for a lock."""
    until(lambda: conn.execute("select pg_blocking_pids(%s)", (pid,)).fetchall()[0][0])


def start_run(
    conn: Conn, agent: str = "a", value: Any = None, *, project: str = "p", **more: Any
) -> UUID:
    """Start a run; answers its id."""
    return run(conn, runs.run_start(project, agent, value, **more)).run_id


def status(conn: Conn, run_id: UUID) -> str:
    """The run's state, from the public view."""
    return str(one(conn, "select status from semel.runs where run_id = %s", run_id))


def one(conn: Conn, sql: Any, *args: Any) -> Any:
    """The single value that *sql* answers."""
    [[value]] = conn.execute(sql, args).fetchall()
    return value


def row(conn: Conn, run_id: UUID) -> dict[str, Any]:
    """The run's row of the public view."""
    cursor = conn.execute("select * from semel.runs where run_id = %s", (run_id,))
    [values] = cursor.fetchall()
    assert cursor.description is not None
    return {
        column.name: value for column, value in zip(cursor.description, values, strict=True)
    }


class Programs:
    """Real processes of ours on one database; none outlives its test."""

    def __init__(self, dsn: str, logs: Path) -> None:
        self._dsn = dsn
        self._logs = logs
        self._all: list[subprocess.Popen[bytes]] = []

    def worker(self, program: str = "agents.py", **settings: str) -> subprocess.Popen[bytes]:
        """Start a worker of a program in programs/."""
        return self._start([str(PROGRAMS / "work.py"), str(PROGRAMS / program)], settings)

    def skewed(
        self, seconds: float, program: str = "agents.py", **settings: str
    ) -> subprocess.Popen[bytes]:
        """Start a worker on a machine whose clock is *seconds* ahead."""
        argv = [str(PROGRAMS / "skewed.py"), str(seconds), str(PROGRAMS / program)]
        return self._start(argv, settings)

    def semel(self, *words: str, **settings: str) -> subprocess.Popen[bytes]:
        """Start `semel WORDS`."""
        return self._start(["-m", "semel", *words], settings)

    def program(self, name: str, *words: str, **settings: str) -> subprocess.Popen[bytes]:
        """Start a program in programs/."""
        return self._start([str(PROGRAMS / name), *words], settings)

    def upkeep(self, **settings: str) -> subprocess.Popen[bytes]:
        """Start an upkeep."""
        return self._start([str(PROGRAMS / "keep.py")], settings)

    def _start(self, argv: list[str], settings: dict[str, str]) -> subprocess.Popen[bytes]:
        name = f"{len(self._all)}-{Path(argv[0]).stem}.log"
        env = {k: v for k, v in os.environ.items() if not k.startswith("SEMEL_")}
        env |= {
            "SEMEL_DSN": self._dsn,
            **{f"SEMEL_{k.upper()}": v for k, v in settings.items()},
        }
        with (self._logs / name).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *argv], env=env, stdout=log, stderr=log, start_new_session=True
            )
        self._all.append(process)
        return process

    def log(self) -> str:
        """What all of them said."""
        return "".join(file.read_text() for file in sorted(self._logs.glob("*.log")))

    def end(self) -> None:
        """SIGKILL whatever is left."""
        for process in self._all:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def programs(dsn: str, tmp_path: Path, conn: Conn) -> Iterator[Programs]:
    """Starts real workers and upkeeps; public.started has a row for each handler start."""
    conn.execute(
        "create table public.started (run_id uuid, attempt int, fence bigint, word text, pid int,"
        " at timestamptz default clock_timestamp())"
    )
    running = Programs(dsn, tmp_path)
    yield running
    running.end()


@pytest.fixture
def other(dsn: str) -> Iterator[Conn]:
    """A second connection, for the other side of a race."""
    with connect(dsn) as connection:
        yield connection
