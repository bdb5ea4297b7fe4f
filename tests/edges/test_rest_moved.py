"""Requests that a router sends to the same path with or without its last slash."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from fix_world import Conn
from rest_servers import asgi
from rest_shop import operations
from semel.asgi import Idempotency
from semel.edges.rest.moved import is_moved


def test_a_client_that_follows_a_redirect_of_slashes_is_executed(dsn: str, conn: Conn) -> None:
    executed: list[str] = []

    async def pay(request: Request) -> Response:
        executed.append(request.url.path)
        return Response("paid")

    async def on(_: Request) -> Response:
        return RedirectResponse("/payments", 307)

    @asynccontextmanager
    async def lent() -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as mine:
            yield mine

    routes = [
        Route("/payments", pay, methods=["POST"]),
        Route("/refunds/", pay, methods=["POST"]),
        Route("/on", on, methods=["POST"]),
    ]
    settings: Any = {"pool": lent, "project": "shop", "actor": lambda _: "alice"}
    app = Starlette(routes=routes, middleware=[Middleware(Idempotency, **settings)])
    with asgi(app) as client:
        for path in ("/payments/", "/refunds"):
            for replayed in (None, "true"):
                answer = client.post(path, key=path, follow_redirects=True)
                assert (answer.status_code, answer.text) == (200, "paid")
                assert answer.headers.get("idempotent-replayed") == replayed
        assert executed == ["/payments", "/refunds/"]
        assert operations(conn) == [("SUCCEEDED", 1)] * 2

        assert client.post("/on", key="on").status_code == 307  # a handler's own is an answer
        assert client.post("/on", key="on").headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize(
    ("path", "status", "location", "moved"),
    [
        ("/a", 307, "/a/", True),
        ("/a/", 308, "https://shop.example/a", True),
        ("/%C3%A9", 307, "http://shop/é/?x=1", True),
        ("/a", 303, "/a/", False),
        ("/a", 307, "/a", False),
        ("/a", 307, "/b/", False),
        ("/a", 307, None, False),
    ],
)
def test_only_a_slash_at_the_end_makes_it_one(
    path: str, status: int, location: str | None, *, moved: bool
) -> None:
    lines = [] if location is None else [("Location", location)]
    assert is_moved(path, status, lines) is moved
