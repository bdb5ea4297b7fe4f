"""Requests whose COMMIT may have been done without anybody being told: none is executed twice."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import psycopg
import pytest
from fastapi import APIRouter, Depends, FastAPI
from flask import Flask, g
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from cut import cut
from fix_rest import Fronts, where_recorded
from fix_world import Conn
from rest_servers import Client, asgi, wsgi
from rest_shop import TABLES, Shop, operations, rows
from semel import fastapi, flask
from semel.asgi import Idempotency
from semel.errors import UnknownOutcome

INSERT = "insert into payment (what) values ('plain')"


def on_flask(dsn: str) -> Flask:
    app = Flask(__name__)

    def connection() -> Any:
        g.conn = psycopg.connect(dsn)
        return g.conn

    @app.post("/payments")
    @flask.once(project="shop", connection=connection, actor=lambda: "alice", require_key=False)
    def pay() -> str:
        g.conn.execute(INSERT)
        return ""

    @app.teardown_appcontext
    def close(_: Any) -> None:
        g.pop("conn").close()

    return app


def on_fastapi(dsn: str) -> FastAPI:
    async def connection() -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            yield conn

    once = fastapi.Once(
        project="shop", connection=connection, actor=lambda: "alice", require_key=False
    )
    Op = Annotated[fastapi.Operation, Depends(once)]  # noqa: N806 - a type
    router = APIRouter(route_class=fastapi.OnceRoute)

    @router.post("/payments")
    async def pay(op: Op) -> None:
        await op.connection.execute(INSERT)

    @router.post("/without")
    async def without() -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            await conn.execute(INSERT)
        raise UnknownOutcome("of an operation of its own")

    app = FastAPI()
    app.include_router(router)
    return app


@contextmanager
def on(front: str, dsn: str) -> Iterator[Client]:
    with wsgi(on_flask(dsn)) if front == "flask" else asgi(on_fastapi(dsn)) as client:
        yield client


@pytest.mark.parametrize("front", ["flask", "fastapi"])
def test_without_a_key_what_may_have_been_committed_is_not_repeated(
    front: str, dsn: str, conn: Conn
) -> None:
    conn.execute(TABLES)
    with cut(dsn) as between, on(front, between.dsn) as client:
        between.lose("answer")
        answer = client.post("/payments")
        assert between.lost
    assert (answer.status_code, answer.json()["code"]) == (503, "E-IDEMPOTENT-012")
    assert rows(conn) == 1


@pytest.mark.parametrize("way", ["sync", "async"])
def test_nor_by_a_view_of_django(way: str, fronts: Fronts, shop: Shop) -> None:
    del shop
    fronts.client("django")  # it sets Django up
    from django.http import HttpRequest
    from django.test import RequestFactory

    from semel.django import once

    executed: list[HttpRequest] = []

    def act(request: HttpRequest) -> Any:
        executed.append(request)
        raise UnknownOutcome("the connection was lost at COMMIT")

    async def aact(request: HttpRequest) -> Any:
        act(request)

    guard = once(project="shop", actor=lambda _: "alice", require_key=False)
    request = RequestFactory().post("/payments")
    answer = guard(act)(request) if way == "sync" else asyncio.run(guard(aact)(request))
    assert answer.status_code == 503
    assert len(executed) == 1


@pytest.mark.parametrize("key", [None, "k"])
def test_a_route_without_an_operation_is_not_repeated(
    key: str | None, dsn: str, conn: Conn
) -> None:
    conn.execute(TABLES)
    with on("fastapi", dsn) as client:
        assert client.post("/without", key=key).status_code == 503
    assert rows(conn) == 1


@where_recorded
@pytest.mark.parametrize("act", ["lost", "unknown"])
def test_a_recorded_handler_whose_commit_may_have_been_done_is_for_a_person(
    client: Client, ledger: Conn, act: str
) -> None:
    first = client.post("/payments", key="k", headers={"X-Do": act})
    assert first.status_code in (500, 503)
    again = client.post("/payments", key="k")
    assert (again.status_code, again.json()["code"]) == (409, "E-IDEMPOTENT-004")
    assert operations(ledger) == [("PROCESSING", 1)]


# -- one name for several paths -------------------------------------------------------------


async def shown(request: Request) -> Response:
    return JSONResponse({"path": request.url.path})


def test_the_path_counts_where_middleware_names_the_operation(dsn: str) -> None:
    """Behind a route, behind a mount, and behind nothing at all."""

    @asynccontextmanager
    async def lent() -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            yield conn

    def guarded(name: str) -> list[Middleware]:
        settings: Any = {"pool": lent, "project": "shop", "actor": lambda _: "alice"}
        return [Middleware(Idempotency, **settings, operation=name)]

    pay = Route("/{id}", shown, methods=["POST"])
    for app in (
        Starlette(
            routes=[Route("/a/{id}", shown, methods=["POST"], middleware=guarded("route"))]
        ),
        Starlette(routes=[Mount("/a", routes=[pay], middleware=guarded("mount"))]),
        Starlette(routes=[Mount("/a", routes=[pay])], middleware=guarded("all")),
    ):
        with asgi(app) as client:
            name = str(len(app.user_middleware)) + str(id(app))
            assert client.post("/a/1", key=name).json() == {"path": "/a/1"}
            assert client.post("/a/1", key=name).headers["idempotent-replayed"] == "true"
            other = client.post("/a/2", key=name)
            assert (other.status_code, other.json()["reason"]) == (422, "input_mismatch")


def test_what_a_route_of_django_takes_out_unnamed_counts(fronts: Fronts, shop: Shop) -> None:
    del shop
    fronts.client("django")
    from django.http import HttpRequest, HttpResponse
    from django.test import RequestFactory
    from django.urls import ResolverMatch

    from semel.django import once

    @once(project="shop", actor=lambda _: "alice", operation="deposit")
    def view(_: HttpRequest, account: str) -> HttpResponse:
        return HttpResponse(account)

    told = []
    for account in ("1", "1", "2"):
        request = RequestFactory().post("/", headers={"Idempotency-Key": "unnamed"})
        request.resolver_match = ResolverMatch(view, (account,), {})
        answer = view(request, account)
        told.append((answer.status_code, answer.headers.get("Idempotent-Replayed")))
    assert told == [(200, None), (200, "true"), (422, None)]
