"""What `once` costs in round trips over the plain mutation, on every driver."""

from typing import Any

import pytest

from counting import Counter, counted
from fix_world import Conn
from ways import WAYS, Way

#: Over BEGIN, two statements and COMMIT. asyncpg reads rows of one statement at a time; a session
#: makes its own savepoint, and releases it.
MORE = {
    "psycopg": 0,
    "psycopg_autocommit": 0,
    "psycopg_async": 0,
    "connection": 0,
    "django": 0,
    "django_async": 0,
    "asyncpg": 2,
    "connection_asyncpg": 2,
    "session": 2,
    "session_psycopg": 2,
    "session_asyncpg": 3,
}
UPDATE = "update public.account set balance = balance + 1 where id = 1"
INSERT = "insert into public.transfer values (1)"


async def spent(counter: Counter, way: Way, conn: Any, key: str | None) -> int:
    before = counter.trips
    async with way.once(conn, key=key) as op:
        await way.execute(conn, UPDATE)
        await way.execute(conn, INSERT)
        op.reply({"ok": True})
    return counter.trips - before


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_it_costs_no_more_round_trips_than_it_says(way: Way, dsn: str, conn: Conn) -> None:
    conn.execute("create table public.account as select 1 as id, 0 as balance")
    conn.execute("create table public.transfer (id int)")
    with counted(dsn) as counter:

        async def act(mine: Any) -> None:
            for n in range(8):  # drivers prepare what they have sent before
                await spent(counter, way, mine, str(n))
                await spent(counter, way, mine, None)
            plain = await spent(counter, way, mine, None)
            assert 4 == plain
            assert MORE[way.name] == await spent(counter, way, mine, "last") - plain
            before = counter.trips
            async with way.once(mine, key="last") as op:
                assert op.replay is not None
            assert counter.trips - before <= 4

        way.play(counter.dsn, act)


class Refused(Exception):
    """A business error."""


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_failure_is_told_on_the_connection_that_it_happened_on(
    way: Way, dsn: str, conn: Conn
) -> None:
    conn.execute("create table public.account as select 1 as id, 0 as balance")
    with counted(dsn) as counter:

        async def act(mine: Any) -> None:
            await spent(counter, way, mine, "warm")
            connected = counter.connections
            with pytest.raises(Refused):
                async with way.once(mine, key="refused"):
                    await way.execute(mine, UPDATE)
                    raise Refused
            assert connected == counter.connections

        conn.execute("create table public.transfer (id int)")
        way.play(counter.dsn, act)
    assert [("SUCCEEDED", 1), ("FAILED", 1)] == conn.execute(
        "select status, attempts from semel.operations order by created_at"
    ).fetchall()
