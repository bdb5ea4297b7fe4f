"""What docs/ledger.md shows is what happens."""

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fix_world import Conn, one

PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"


@pytest.fixture
def page(conn: Conn) -> dict[str, Any]:
    """The program that docs/ledger.md is, and its tables."""
    conn.execute(
        "create table public.payment (id int generated always as identity, payer int, amount int)"
    )
    conn.execute("create table public.orders (id int generated always as identity)")
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    exec(compile("\n\n".join(blocks), "ledger.md", "exec"), names)
    return names


def test_a_payment_is_made_once_and_shown_to_who_may(
    page: dict[str, Any], dsn: str, conn: Conn
) -> None:
    with psycopg.connect(dsn) as mine:
        answers = [page["pay"](mine, 7, "k", b'{"amount": 40}') for _ in range(2)]
        with pytest.raises(PermissionError):
            page["pay"](mine, 0, "k", b'{"amount": 40}')
    assert [(201, b'{"id":1}')] * 2 == [(each.status, each.body) for each in answers]
    counts = "select (select count(*) from public.payment), (select count(*) from semel.runs)"
    assert [(1, 1)] == conn.execute(counts).fetchall()


def test_joined_and_pooled(page: dict[str, Any], dsn: str, conn: Conn) -> None:
    from psycopg_pool import ConnectionPool

    with psycopg.connect(dsn) as mine:
        assert b'{"paid":true}' == page["order"](mine, "k").body
    with ConnectionPool(dsn, min_size=1, open=True) as pool:
        assert {b'{"refunded":1}'} == {page["refund_once"](pool, "r").body for _ in range(2)}
    assert 0 == one(conn, "select count(*) from public.payment")
