"""A process that executes an operation is killed wherever it could be: it happened once, or not at all."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fix_world import Conn, one
from semel.db.ledger import drive
from semel.errors import InFlight
from ways import WAYS

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

PAY = Path(__file__).parents[1] / "programs" / "pay.py"
#: Whether what was paid is durable where the process dies.
STOPS = {
    "ledger.begin.before": False,
    "ledger.begin.after": False,
    "ledger.commit.before": False,
    "ledger.commit.after": True,
    "ledger.answer.before": True,
}


@pytest.fixture(autouse=True)
def _paid(conn: Conn) -> None:
    conn.execute("create table public.paid (key text)")


def pay(dsn: str, *words: str, stop: str = "") -> "subprocess.CompletedProcess[bytes]":
    env = {**os.environ, "SEMEL_DSN": dsn, "SEMEL_TESTING": "1", "SEMEL_STOP_AT": stop}
    return subprocess.run(
        [sys.executable, PAY, *words], env=env, capture_output=True, check=False
    )


def state(conn: Conn) -> tuple[Any, ...]:
    found = conn.execute("select status, attempts from semel.operation").fetchall()
    journal = one(conn, "select count(*) from semel.journal_pending")
    return (
        one(conn, "select count(*) from public.paid"),
        journal,
        *(found[0] if found else ()),
    )


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg", "session"])
@pytest.mark.parametrize("stop", STOPS)
def test_the_retry_of_who_was_killed_is_right(
    dsn: str, conn: Conn, driver: str, stop: str
) -> None:
    assert -signal.SIGKILL == pay(dsn, driver, "k", stop=stop).returncode
    assert ((1, 1, "SUCCEEDED", 1) if STOPS[stop] else (0, 0)) == state(conn)
    assert b'{"attempt":1,"key":"k"}' == pay(dsn, driver, "k").stdout
    assert (1, 1, "SUCCEEDED", 1) == state(conn)


@pytest.mark.parametrize("stop", ["ledger.begin.after", "ledger.commit.before"])
def test_who_was_killed_counts_for_nothing(dsn: str, conn: Conn, stop: str) -> None:
    for _ in range(3):
        assert b"ValueError: no money" in pay(dsn, "psycopg", "k", "no money").stderr
    assert (0, 0, "FAILED", 3) == state(conn)
    assert -signal.SIGKILL == pay(dsn, "psycopg", "k", stop=stop).returncode
    assert (0, 0, "FAILED", 3) == state(conn)
    assert b'{"attempt":4,"key":"k"}' == pay(dsn, "psycopg", "k").stdout
    assert (1, 1, "SUCCEEDED", 4) == state(conn)


@pytest.mark.parametrize("name", ["psycopg_async", "asyncpg"])
def test_a_backend_that_stalls_keeps_the_key_and_nothing_else(
    name: str, dsn: str, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped in the middle; the caller gives up, and others are told that it is in flight."""
    monkeypatch.setattr(drive, "PATIENCE_SECONDS", 0.2)
    [way] = [way for way in WAYS if way.name == name]

    async def pay_here(mine: Any, **told: Any) -> bytes:
        async with way.once(mine, **told) as op:
            if op.replay is None:
                await way.execute(mine, "insert into public.paid values ('k')")
        return op.response().body

    async def act(mine: Any) -> None:
        [[pid]] = await way.execute(mine, "select pg_backend_pid()")
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), way.once(mine):
                    await way.execute(mine, "insert into public.paid values ('k')")
                    os.kill(pid, signal.SIGSTOP)
            async with way.open(dsn) as other:
                with pytest.raises(InFlight):
                    await pay_here(other, wait=None)
        finally:
            os.kill(pid, signal.SIGCONT)
        async with way.open(dsn) as other:
            assert b"null" == await pay_here(other)

    way.play(dsn, act)
    [[status, attempts]] = conn.execute(
        "select status, attempts from semel.operation"
    ).fetchall()
    assert (1, "SUCCEEDED") == (one(conn, "select count(*) from public.paid"), status)
    assert 1 == attempts
