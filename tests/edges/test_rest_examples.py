"""The shops under examples/, started as their first lines say, over real HTTP."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from fix_world import Conn, one, until
from rest_servers import Client
from rest_shop import operations

EXAMPLES = Path(__file__).parents[2] / "examples"
STARTS = {
    "fastapi": [
        "-m",
        "uvicorn",
        "--app-dir",
        str(EXAMPLES),
        "fastapi_shop:app",
        "--port",
        "{}",
    ],
    "flask": ["-m", "flask", "--app", str(EXAMPLES / "flask_shop.py"), "run", "--port", "{}"],
    "django": [str(EXAMPLES / "django_shop.py"), "runserver", "--noreload", "{}"],
}


@contextmanager
def running(shop: str, dsn: str, log: Path) -> Iterator[Client]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = [sys.executable, *(word.format(port) for word in STARTS[shop])]
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, env={**os.environ, "SEMEL_DSN": dsn}, stdout=out, stderr=out
        )
    client = Client(f"http://127.0.0.1:{port}")

    def up() -> bool:
        assert process.poll() is None, log.read_text()
        with suppress(httpx.ConnectError):
            return client.send("GET", "/orders").status_code == 200
        return False

    try:
        until(up)
        yield client
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("shop", STARTS)
def test_an_order_is_placed_once(shop: str, dsn: str, conn: Conn, tmp_path: Path) -> None:
    def left() -> int:
        return int(one(conn, f"select pieces from {shop}_stock"))

    with running(shop, dsn, tmp_path / "log") as client:
        first = client.post("/orders", '{"item": "lamp", "pieces": 2}', key="order-1")
        again = client.post("/orders", '{"pieces": 2, "item": "lamp"}', key='"order-1"')
        assert (first.status_code, first.json()) == (201, {"order": 1, "left": 8})
        assert (again.status_code, again.content) == (201, first.content)
        assert first.headers["location"] == again.headers["location"] == "/orders/1"
        assert again.headers["idempotent-replayed"] == "true"

        other = client.post("/orders", '{"item": "lamp", "pieces": 3}', key="order-1")
        assert (other.status_code, other.json()["code"]) == (422, "E-IDEMPOTENT-002")

        for _ in range(2):  # a business error is undone, and is no answer to be replayed
            short = client.post("/orders", '{"item": "lamp", "pieces": 99}', key="order-2")
            assert (short.status_code, left()) == (409, 8)
        conn.execute(f"update {shop}_stock set pieces = 100")
        assert (
            client.post("/orders", '{"item": "lamp", "pieces": 99}', key="order-2").json()[
                "left"
            ]
            == 1
        )

        assert client.post("/orders", '{"item": "x", "pieces": 1}', key="x").status_code == 404
        assert client.post("/orders", "{}", key="y", user=None).status_code == 401
        assert len(client.send("GET", "/orders").json()) == 2
    assert operations(conn) == [("SUCCEEDED", 1), ("SUCCEEDED", 3), ("FAILED", 1)]
    assert one(conn, f"select count(*) from {shop}_order") == 2
    assert one(conn, "select count(*) from semel.journal") == 2
