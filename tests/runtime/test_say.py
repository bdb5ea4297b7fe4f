"""semel.signal is part of the caller's transaction, and says who heard."""

import asyncio
from uuid import uuid4

import psycopg
import pytest

import semel
from fix_world import Conn, one, start_run
from semel.core import transitions
from semel.db.execute import run
from semel.errors import BadRequest, NoSuchRun, RunRefused


class Boom(Exception):
    """Rolls a transaction back."""


def test_a_signal_is_heard_with_the_commit_and_once_for_its_key(dsn: str, conn: Conn) -> None:
    run_id = start_run(conn)
    with psycopg.connect(dsn) as mine:
        with pytest.raises(Boom), mine.transaction():
            semel.signal(mine, project="p", run_id=run_id, name="go", key="k")
            raise Boom
        assert one(conn, "select count(*) from semel.signals") == 0
        with mine.transaction():
            told = [
                semel.signal(mine, project="p", run_id=run_id, name="go", content=n, key="k")
                for n in range(2)
            ]
    assert told == ["won", "duplicate"]
    assert one(conn, "select content from semel.signals") == 0


def test_an_async_connection_is_awaited(dsn: str, conn: Conn) -> None:
    run_id = start_run(conn)

    async def go() -> str:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as mine:
            return await semel.signal(mine, project="p", run_id=run_id, name="go")

    assert asyncio.run(go()) == "won"


def test_nobody_is_told_who_cannot_hear(conn: Conn) -> None:
    run_id = start_run(conn)
    with pytest.raises(BadRequest, match="1 to 255 bytes"):
        semel.signal(conn, project="p", run_id=run_id, name="")
    with pytest.raises(BadRequest, match="above 262144 bytes"):
        semel.signal(conn, project="p", run_id=run_id, name="go", content="x" * 262_144)
    with pytest.raises(NoSuchRun):
        semel.signal(conn, project="p", run_id=uuid4(), name="go")
    run(conn, transitions.run_cancel("p", run_id))
    with pytest.raises(RunRefused, match="is CANCELLED"):
        semel.signal(conn, project="p", run_id=run_id, name="go")
