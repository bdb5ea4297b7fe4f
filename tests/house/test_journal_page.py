"""What docs/journal.md shows is what happens."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from fix_world import Conn, one, until
from journals import kept
from semel.testing import World

PAGE = Path(__file__).parents[2] / "docs" / "journal.md"


@pytest.fixture
def page(conn: Conn) -> dict[str, Any]:
    """The program that the page is, from its first line to its last, and its tables."""
    conn.execute("create table parcel (run_id uuid)")
    conn.execute("create table counted (seq bigint, parcel text)")
    conn.execute("create table customer (id int, name text)")
    conn.execute("insert into customer values (1, 'Ann')")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile("\n\n".join(blocks), "journal.md", "exec"), names)
    return names


def test_a_transaction_says_it_and_a_consumer_counts_it_once(
    page: dict[str, Any], dsn: str, conn: Conn
) -> None:
    async def story() -> None:
        async with World(page["app"], dsn, project="shop") as world:
            for order in (17, 18):
                await world.start("ship", order)
            await world.drain()
        counting = asyncio.create_task(page["count_parcels"](dsn))
        await asyncio.to_thread(until, lambda: one(conn, "select count(*) from counted") == 2)
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)

    asyncio.run(story())
    assert [("17",), ("18",)] == conn.execute(
        "select parcel from counted order by parcel"
    ).fetchall()
    assert 2 == one(conn, "select count(*) from parcel")


def test_any_transaction_says_it_and_any_takes_it(page: dict[str, Any], conn: Conn) -> None:
    with conn.transaction():
        page["rename"](conn, 1, "Anna")
    conn.execute(
        """select semel.journal_append('shop', null, null, '[{"topic": "parcels", "payload": 1}]')"""
    )

    assert [2, 0] == [page["count_some"](conn) for _ in range(2)]
    assert [{"id": 1, "name": "Anna"}, 1] == kept(conn, "shop")
    assert [(1, "customers"), (2, "parcels")] == conn.execute(
        "select * from counted"
    ).fetchall()


def test_what_is_done_elsewhere_has_a_key(page: dict[str, Any], dsn: str, conn: Conn) -> None:
    with conn.transaction():
        page["rename"](conn, 1, "Anna")
        page["rename"](conn, 1, "Annika")
    posted: list[tuple[str, str]] = []

    async def post(topic: str, payload: Any, *, key: str) -> None:
        posted.append((key, payload["name"]))

    async def story() -> None:
        announcing = asyncio.create_task(page["announce"](dsn, post))
        done = "select count(*) from semel.consumers where seq = 2"
        await asyncio.to_thread(until, lambda: one(conn, done))
        announcing.cancel()
        await asyncio.gather(announcing, return_exceptions=True)

    asyncio.run(story())
    assert [("shop-1", "Anna"), ("shop-2", "Annika")] == posted
