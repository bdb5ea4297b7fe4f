"""What only FastAPI has: dependencies in any order, models, files, declared streams, routers."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import psycopg
import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import StreamingResponse

from fix_rest import Fronts
from fix_world import Conn, one
from rest_servers import Client, asgi
from rest_shop import TABLES, Shop, operations, rows
from semel.asgi import Idempotency
from semel.errors import BadConfig
from semel.fastapi import Once, OnceRoute, Operation


@pytest.fixture
def client(fronts: Fronts, shop: Shop, ledger: Conn) -> Client:
    return fronts.client("fastapi")


def nobody() -> str:
    return "alice"


def nowhere() -> Iterator[None]:
    yield None


once = Once(project="shop", connection=nowhere, actor=nobody)
Op = Annotated[Operation, Depends(once)]


def test_who_may_not_ask_gets_no_replay(client: Client, ledger: Conn) -> None:
    """Whatever the order in which a handler names what it depends on."""
    assert client.post("/payments", key="k").status_code == 201
    answer = client.post("/payments", key="k", headers={"X-Forbid": "1"})
    assert (answer.status_code, answer.json()) == (403, {"detail": "not you"})
    assert operations(ledger) == [("SUCCEEDED", 1)]


def test_what_fails_validation_leaves_no_row_and_its_key_is_free(
    client: Client, ledger: Conn
) -> None:
    bad = client.post("/payments", '{"cents": "many"}', key="k")
    assert (bad.status_code, bad.json()["detail"][0]["loc"]) == (422, ["body", "cents"])
    assert operations(ledger) == []
    assert client.post("/payments", '{"cents": 1}', key="k").status_code == 201


def test_a_raised_outcome_is_kept_as_the_application_says_it(
    client: Client, ledger: Conn
) -> None:
    answers = [client.post("/payments", key="k", headers={"X-Do": "http-card"}) for _ in "12"]
    assert [answer.status_code for answer in answers] == [402, 402]
    assert [answer.json() for answer in answers] == [{"detail": "declined 1"}] * 2
    assert answers[1].headers["etag"] == '"e"'
    assert rows(ledger) == 1
    assert operations(ledger) == [("SUCCEEDED", 1)]


def test_a_file_is_kept(client: Client, ledger: Conn) -> None:
    first, again = (client.post("/files", key="k") for _ in "12")
    assert len(first.content) > 2000  # above the limit: sent whole, and once
    assert (first.status_code, again.status_code) == (200, 409)
    assert again.json()["code"] == "E-IDEMPOTENT-005"
    assert rows(ledger) == 1


def test_a_handler_in_a_thread_is_executed_once(fronts: Fronts, ledger: Conn) -> None:
    client = fronts.client("fastapi-sync")
    first, again = (client.post("/sync", key="k") for _ in "12")
    assert first.json() == again.json() == {"sync": True}
    assert again.headers["idempotent-replayed"] == "true"
    assert rows(ledger) == 1


def test_the_row_is_the_envelope_the_procedure_and_the_actor(
    client: Client, ledger: Conn
) -> None:
    from semel import input_digest
    from semel.core.operations import base_id

    client.post("/payments", '{"to":"bob","cents":5}', key='"k"')
    found = ledger.execute(
        "select request_id, target, event_type, actor_user_id, payload from semel.operations"
    ).fetchone()
    digest = input_digest(b'{"cents":5,"to":"bob"}')
    assert found == (
        base_id("shop", "alice", "k"),
        "API",
        "POST /payments",
        "alice",
        {"version": 2, "digest": digest},
    )


def test_a_route_that_answers_before_its_commit_is_refused(
    capfd: pytest.CaptureFixture[str],
) -> None:
    app = FastAPI()

    @app.post("/")
    async def pay(op: Op) -> None: ...

    with asgi(app) as client:
        assert client.post("/", key="k").status_code == 500
    assert "route_class=semel.fastapi.OnceRoute" in capfd.readouterr().err


def test_a_declared_stream_is_refused_before_anything_is_executed() -> None:
    router = APIRouter(route_class=OnceRoute)
    with pytest.raises(BadConfig, match="streams its answer"):

        @router.post("/", response_class=StreamingResponse)
        async def declared(op: Op) -> None: ...

    with pytest.raises(BadConfig, match="streams its answer"):

        @router.post("/")
        async def lines(op: Op) -> Any:
            yield {}

    @router.post("/")
    async def untouched() -> Any:  # without Once a route may do as it likes
        yield {}


def test_a_route_without_once_is_like_any_other(dsn: str, conn: Conn) -> None:
    conn.execute(TABLES)
    app = FastAPI()
    app.router.route_class = OnceRoute

    @app.post("/free")
    def free(cents: int = 0) -> dict[str, int]:
        return {"cents": cents}

    with asgi(app) as client:
        answer = client.post("/free?cents=3", key="k")
    assert (answer.status_code, answer.json()) == (200, {"cents": 3})
    assert "idempotency-attempts" not in answer.headers
    assert operations(conn) == []


def test_without_a_key_where_none_is_required_work_is_committed_and_no_row_made(
    dsn: str, conn: Conn
) -> None:
    conn.execute(TABLES)

    def lent() -> Iterator[Any]:
        with psycopg.connect(dsn) as mine:
            yield mine

    free = Once(project="shop", connection=lent, actor=nobody, require_key=False)
    app = FastAPI()
    app.router.route_class = OnceRoute

    @app.post("/free")
    def pay(op: Annotated[Operation, Depends(free)]) -> dict[str, int]:
        op.connection.execute("insert into payment (what) values ('free')")
        return {"paid": 1}

    with asgi(app) as client:
        answers = [client.post("/free") for _ in range(2)]
    assert [answer.json() for answer in answers] == [{"paid": 1}] * 2
    assert rows(conn) == 2
    assert operations(conn) == []


def test_anonymous_requests_may_share_one_scope_and_cookies_be_kept(
    dsn: str, conn: Conn
) -> None:
    conn.execute(TABLES)
    import rest_starlette

    rules: dict[str, Any] = {"anonymous": "shared", "keep": ("set-cookie",)}
    with asgi(rest_starlette.application(dsn, Shop(), take=True, **rules)) as client:
        first, again = (client.post("/payments", key="k", user=None) for _ in "12")
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers.get_list("set-cookie") == first.headers.get_list("set-cookie")
    assert one(conn, "select actor_user_id from semel.operations") is None


def test_a_route_behind_the_middleware_too_is_told_so(dsn: str, conn: Conn) -> None:
    """Not to come back later: the claim that it would wait for is its own request's."""

    @asynccontextmanager
    async def lent() -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as mine:
            yield mine

    app = FastAPI()
    app.router.route_class = OnceRoute

    @app.post("/payments")
    async def pay(op: Op) -> None:
        pass

    app.add_middleware(Idempotency, pool=lent, project="shop", actor=lambda _: "alice")
    with asgi(app) as client:
        assert [client.post("/payments", key="k").status_code for _ in "12"] == [500, 500]
    assert operations(conn) == [("FAILED", 2)]
    assert "one of the two" in one(conn, "select error from semel.operations")
