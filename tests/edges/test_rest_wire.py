"""What every front end of the ledger answers over real HTTP, on a real PostgreSQL."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest
from psycopg.conninfo import conninfo_to_dict

import rest_django
import rest_fastapi
import rest_flask
import rest_starlette
from fix_world import Conn
from rest_servers import Client, asgi, wsgi
from rest_shop import LINKS, TABLES, Shop, ledger, rows

KEPT = ("content-type", "location", "etag")
#: Those whose handler and ledger share a transaction.
ATOMIC = [
    "starlette-taken",
    "fastapi",
    "fastapi-sync",
    "fastapi-sqlalchemy",
    "django",
    "django-async",
    "flask",
    "flask-sqlalchemy",
]
#: Those whose handler commits by itself.
RECORDED = ["starlette", "django-middleware", "django-middleware-async"]


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def client(
    request: pytest.FixtureRequest, dsn: str, conn: Conn, shop: Shop
) -> Iterator[Client]:
    conn.execute(TABLES)
    marker = request.node.get_closest_marker("rules")
    with serving(
        request.param, dsn, shop, **({} if marker is None else marker.kwargs)
    ) as client:
        yield client


def serving(name: str, dsn: str, shop: Shop, **rules: Any) -> AbstractContextManager[Client]:
    framework, _, way = name.partition("-")
    match framework:
        case "starlette":
            return asgi(rest_starlette.application(dsn, shop, take=way == "taken", **rules))
        case "fastapi":
            driver = way or "psycopg"
            there = url(dsn, "asyncpg")
            return asgi(rest_fastapi.application(dsn, there, shop, driver=driver, **rules))
        case "flask":
            there = url(dsn, "psycopg")
            driver = way or "psycopg"
            return wsgi(rest_flask.application(dsn, there, shop, driver=driver, **rules))
        case _:
            way = way and f"-{way}"
            return rest_django.serving(dsn, shop, way=way, **rules)


def url(dsn: str, driver: str) -> str:
    parts = conninfo_to_dict(dsn)
    return f"postgresql+{driver}://{parts['user']}@/{parts['dbname']}?host={parts['host']}"


everywhere = pytest.mark.parametrize("client", [*ATOMIC, *RECORDED], indirect=True)
where_atomic = pytest.mark.parametrize("client", ATOMIC, indirect=True)
where_recorded = pytest.mark.parametrize("client", RECORDED, indirect=True)


def replayed(response: httpx.Response) -> bool:
    return response.headers.get("idempotent-replayed") == "true"


def code(response: httpx.Response) -> str:
    assert response.headers["content-type"] == "application/problem+json"
    return str(response.json()["code"])


@everywhere
def test_a_retry_is_answered_by_the_first_answer_to_the_byte(
    client: Client, conn: Conn
) -> None:
    first = client.post("/payments", '{"cents": 5, "to": "bob"}', key="k")
    again = client.post("/payments", '{"to":"bob","cents":5.0}', key='"k"')

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.content == again.content
    assert [first.headers[n] for n in KEPT] == [again.headers[n] for n in KEPT]
    assert [v for n, v in again.headers.multi_items() if n == "link"] == [v for _, v in LINKS]
    assert (replayed(first), replayed(again)) == (False, True)
    assert first.headers["idempotency-attempts"] == again.headers["idempotency-attempts"] == "1"
    assert rows(conn) == 1
    assert ledger(conn) == [("SUCCEEDED", 1)]
    assert "set-cookie" in first.headers
    assert "set-cookie" not in again.headers
    assert "x-own" not in again.headers
