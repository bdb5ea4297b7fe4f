"""examples/trpc_shop.py as a process of its own, asked over HTTP, and killed where it hurts."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fix_world import Conn, until

EXAMPLE = Path(__file__).parents[3] / "examples" / "trpc_shop.py"
pytestmark = pytest.mark.crash

#: The stop points of an operation; whether it is committed by then.
STOPS = {
    "ledger.begin.before": False,
    "ledger.begin.after": False,
    "ledger.commit.before": False,
    "ledger.commit.after": True,
    "ledger.answer.before": True,
}


@contextmanager
def serving(dsn: str, **environ: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLE)],
        env={**os.environ, "DATABASE_URL": dsn, "PORT": str(port), **environ},
    )
    base = f"http://127.0.0.1:{port}/trpc"
    try:
        until(lambda: answers(base))
        yield base, process
    finally:
        process.terminate()
        process.wait()


def answers(base: str) -> bool:
    try:
        return httpx.head(f"{base}/order.total").status_code == 204
    except httpx.TransportError:
        return False


def pay(base: str, key: str, cents: Any = 500, user: str | None = "alice") -> httpx.Response:
    headers = {"idempotency-key": f'"{key}"', **({"x-user": user} if user else {})}
    return httpx.post(f"{base}/order.pay", json={"id": "o1", "cents": cents}, headers=headers)


def total(base: str, user: str = "alice") -> Any:
    return httpx.get(f"{base}/order.total", headers={"x-user": user}).json()["result"]["data"]


def test_the_shop_pays_once_conflicts_and_refuses_in_that_order(dsn: str, conn: Conn) -> None:
    with serving(dsn) as (base, _):
        first = pay(base, "k1")
        assert first.json() == {"result": {"data": {"receipt": 1, "cents": 500}}}
        again = pay(base, "k1")
        assert again.json() == {
            "result": {"data": {"receipt": 1, "cents": 500}, "replayed": True}
        }
        assert again.headers["idempotent-replayed"] == "true"
        assert total(base) == 500
        assert pay(base, "k1", 501).status_code == 409
        assert pay(base, "k1", user=None).status_code == 403  # no replay for who may not ask
        assert (
            pay(base, "k2", 1.5).json()["error"]["message"] == "cents is a whole number above 0"
        )
        assert pay(base, "k3", 200_000).status_code == 412
        assert pay(base, "k3", 200_000).status_code == 412
        assert total(base) == 500
        assert pay(base, "k1", user="bob").json()["result"]["data"]["receipt"] > 1
    rows = conn.execute(
        "select actor_user_id, status, attempts from semel.operations order by created_at"
    )
    assert rows.fetchall() == [
        ("alice", "SUCCEEDED", 1),
        ("alice", "FAILED", 2),
        ("bob", "SUCCEEDED", 1),
    ]
    assert conn.execute("select count(*) from semel.journal").fetchone() == (2,)


@pytest.mark.parametrize("stop", STOPS)
def test_a_shop_killed_anywhere_has_paid_once_when_the_retry_is_answered(
    dsn: str, conn: Conn, stop: str
) -> None:
    with serving(dsn, SEMEL_TESTING="1", SEMEL_STOP_AT=stop) as (base, process):
        with pytest.raises(httpx.TransportError):
            pay(base, "k")
        assert process.wait() == -9
    committed = STOPS[stop]
    left = conn.execute("select status, attempts from semel.operations").fetchall()
    assert left == ([("SUCCEEDED", 1)] if committed else [])
    assert conn.execute("select count(*) from payment").fetchone() == (int(committed),)
    with serving(dsn) as (base, _):
        answer = pay(base, "k")
        assert answer.status_code == 200
        assert answer.json()["result"].get("replayed", False) is committed
        assert total(base) == 500
    row = conn.execute("select status, attempts, result from semel.operations").fetchone()
    assert row == ("SUCCEEDED", 1, answer.json()["result"]["data"])
    assert json.loads(answer.text)["result"]["data"]["cents"] == 500
