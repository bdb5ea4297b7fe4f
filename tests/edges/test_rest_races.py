"""Requests that meet, clients that go away, commits that are slow, and processes that die."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Any

import asyncpg
import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import rest_fastapi
import rest_flask
import rest_starlette
from cut import cut
from fix_rest import RULES, everywhere, where_atomic, where_recorded
from fix_world import PROGRAMS, Conn, one, until
from rest_servers import Client, asgi, wsgi
from rest_shop import TABLES, Shop, operations, rows
from semel.asgi import Idempotency
from ways import url

HOLD: dict[str, Any] = {"key": "k", "headers": {"X-Do": "hold"}}


def replayed(response: httpx.Response) -> bool:
    return str(response.headers.get("idempotent-replayed")) == "true"


def waiting(conn: Conn) -> bool:
    """Whether a backend of this database waits for a lock."""
    return bool(
        one(
            conn,
            "select count(*) from pg_stat_activity"
            " where wait_event_type = 'Lock' and datname = current_database()",
        )
    )


@contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(count) as pool:
        yield pool


def held(pool: ThreadPoolExecutor, client: Client, shop: Shop) -> Future[httpx.Response]:
    """A request whose handler has written, and waits."""
    first = pool.submit(client.post, "/payments", **HOLD)
    assert shop.gate.reached.wait(20)
    return first


# -- in flight ------------------------------------------------------------------------------


@where_atomic
def test_a_retry_in_flight_waits_for_the_first_and_has_its_answer(
    client: Client, ledger: Conn, shop: Shop
) -> None:
    with threads(2) as pool:
        first = held(pool, client, shop)
        again = pool.submit(client.post, "/payments", **HOLD)
        until(lambda: waiting(ledger))
        shop.gate.open.set()

        assert first.result().status_code == again.result().status_code == 201
        assert first.result().content == again.result().content
        assert (replayed(first.result()), replayed(again.result())) == (False, True)
    assert rows(ledger) == 1
    assert operations(ledger) == [("SUCCEEDED", 1)]


@where_recorded
def test_a_retry_in_flight_is_told_to_come_back_and_another_input_that_it_is_one(
    client: Client, ledger: Conn, shop: Shop
) -> None:
    with threads(1) as pool:
        first = held(pool, client, shop)
        until(lambda: one(ledger, "select name <> '' from semel.operation_holder"))  # it beats
        again = client.post("/payments", **HOLD)
        assert (again.status_code, again.json()["code"]) == (409, "E-IDEMPOTENT-003")
        assert (again.json()["reason"], again.json()["retryable"]) == ("in_progress", True)
        assert again.headers["retry-after"] == "1"
        assert client.post("/payments", '{"cents": 9}', key="k").status_code == 422
        shop.gate.open.set()
        assert first.result().status_code == 201
    assert replayed(client.post("/payments", **HOLD))
    assert rows(ledger) == 1


@everywhere
def test_a_stampede_is_one_execution(client: Client, ledger: Conn) -> None:
    with threads(12) as pool:
        answers = [
            each.result()
            for each in [pool.submit(client.post, "/payments", key="k") for _ in range(24)]
        ]
    for answer in answers:
        if answer.status_code == 409:
            assert answer.headers["retry-after"]
            assert answer.json()["code"] == "E-IDEMPOTENT-003"
    done = [answer for answer in answers if answer.status_code != 409]
    assert {answer.status_code for answer in done} == {201}
    assert len({answer.content for answer in done}) == 1
    assert [replayed(answer) for answer in done].count(False) == 1
    assert rows(ledger) == 1
    assert operations(ledger) == [("SUCCEEDED", 1)]
    assert replayed(client.post("/payments", key="k"))


@everywhere
def test_requests_of_different_keys_do_not_wait_for_one_another(
    client: Client, ledger: Conn, shop: Shop
) -> None:
    with threads(1) as pool:
        first = held(pool, client, shop)
        assert client.post("/payments", key="another").status_code == 201
        shop.gate.open.set()
        assert first.result().status_code == 201


# -- clients that go away -------------------------------------------------------------------


@everywhere
def test_a_client_that_goes_away_leaves_nothing_stuck(
    client: Client, ledger: Conn, shop: Shop
) -> None:
    host, _, port = client.base.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as gone:
        head = (
            f"POST {client.prefix}/payments HTTP/1.1\r\nHost: x\r\nX-User: alice\r\n"
            "Idempotency-Key: k\r\nX-Do: hold\r\nContent-Type: application/json\r\n"
            "Content-Length: 2\r\n\r\n{}"
        )
        gone.sendall(head.encode())
        assert shop.gate.reached.wait(20)
    shop.gate.open.set()
    # Whether it went on, or was cancelled and undone: the retry has the one answer there is.
    until(lambda: client.post("/payments", **HOLD).status_code == 201)
    assert replayed(client.post("/payments", **HOLD))
    assert rows(ledger) == 1
    [(status, _)] = operations(ledger)
    assert status == "SUCCEEDED"


@everywhere
def test_a_client_that_goes_away_in_its_body_leaves_nothing(
    client: Client, ledger: Conn
) -> None:
    host, _, port = client.base.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as gone:
        head = (
            f"POST {client.prefix}/payments HTTP/1.1\r\nHost: x\r\nX-User: alice\r\n"
            "Idempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        gone.sendall(head.encode())
    assert client.post("/payments", key="k").status_code == 201
    assert rows(ledger) == 1
    assert operations(ledger) == [("SUCCEEDED", 1)]


def test_a_request_that_is_cancelled_as_it_is_claimed_hands_its_claim_back(
    dsn: str, conn: Conn
) -> None:
    requests: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def pool() -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as mine:
            yield mine
        requests.pop().cancel() if requests else None  # what it said is committed
        await asyncio.sleep(0)

    async def never(*_: Any) -> None:
        raise AssertionError("it was executed")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def go() -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/payments",
            "headers": [(b"idempotency-key", b"k"), (b"content-type", b"application/json")],
        }
        app = Idempotency(never, pool=pool, project="shop", actor=lambda _: "alice")
        request = asyncio.create_task(app(scope, receive, never))
        requests.append(request)
        with pytest.raises(asyncio.CancelledError):
            await request

    asyncio.run(go())
    assert operations(conn) == [("PENDING", 0)]


# -- commits --------------------------------------------------------------------------------


@contextmanager
def on(dsn: str, front: str) -> Iterator[Client]:
    shop = Shop()
    if front == "flask":
        app = rest_flask.application(
            dsn, "postgresql+psycopg://", shop, driver="psycopg", **RULES
        )
        with wsgi(app) as client:
            yield client
    elif front == "fastapi":
        url = "postgresql+asyncpg://"
        fastapi = rest_fastapi.application(dsn, url, shop, driver="psycopg", **RULES)
        with asgi(fastapi) as client:
            yield client
    else:
        with asgi(rest_starlette.application(dsn, shop, take=True, **RULES)) as client:
            yield client


@pytest.mark.parametrize("front", ["fastapi", "flask", "starlette"])
def test_nothing_is_answered_before_the_commit(dsn: str, conn: Conn, front: str) -> None:
    conn.execute(TABLES)
    with cut(dsn) as between, on(between.dsn, front) as client, threads(1) as pool:
        between.lose("held")
        answer = pool.submit(client.post, "/payments", key="k")
        until(lambda: between.lost)
        assert not answer.done()
        assert rows(conn) == 0
        between.let()
        assert answer.result().status_code == 201
    assert rows(conn) == 1


@pytest.mark.parametrize("front", ["fastapi", "flask", "starlette"])
def test_a_commit_whose_answer_is_lost_is_answered_all_the_same(
    dsn: str, conn: Conn, front: str
) -> None:
    conn.execute(TABLES)
    with cut(dsn) as between, on(between.dsn, front) as client:
        between.lose("answer")
        answer = client.post("/payments", key="k")
        assert between.lost
        assert answer.status_code == 201
        assert client.post("/payments", key="k").content == answer.content
    assert rows(conn) == 1
    assert operations(conn) == [("SUCCEEDED", 1)]


@pytest.mark.parametrize("take", [True, False])
def test_a_database_that_is_away_is_503_and_nothing_is_executed(
    dsn: str, conn: Conn, *, take: bool
) -> None:
    conn.execute(TABLES)
    with cut(dsn) as between:
        app = rest_starlette.application(between.dsn, Shop(), take=take, **RULES)
        with asgi(app) as client:
            assert client.post("/payments", key="k").status_code == 201
            between.close()
            answer = client.post("/payments", key="another")
            assert (answer.status_code, answer.json()["code"]) == (503, "E-DB-001")
            assert (answer.json()["retryable"], answer.headers["retry-after"]) == (True, "5")
    assert rows(conn) == 1


@pytest.mark.parametrize("name", ["psycopg", "asyncpg", "sqlalchemy"])
def test_a_pool_that_has_no_connection_left_is_503(dsn: str, conn: Conn, name: str) -> None:
    async def never(*_: Any) -> None:
        raise AssertionError("it was executed")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def go(pool: Any, lent: Any) -> int:
        said: list[Any] = []

        async def send(message: Any) -> None:
            said.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": [(b"idempotency-key", b"k")],
        }
        async with lent:
            app = Idempotency(never, pool=pool, project="shop", actor=lambda _: "alice")
            await app(scope, receive, send)
        return int(said[0]["status"])

    async def of_psycopg() -> int:
        async with AsyncConnectionPool(
            dsn, min_size=1, max_size=1, timeout=0.05, open=False
        ) as pool:
            return await go(pool, pool.connection(5))

    async def of_asyncpg() -> int:
        told = conninfo_to_dict(dsn)
        async with asyncpg.create_pool(
            host=told["host"],
            user=told["user"],
            database=told["dbname"],
            min_size=1,
            max_size=1,
        ) as pool:
            return await go(lambda: pool.acquire(timeout=0.05), pool.acquire())

    async def of_sqlalchemy() -> int:
        engine = create_async_engine(
            url(dsn, "asyncpg"), pool_size=1, max_overflow=0, pool_timeout=0.05
        )
        try:
            return await go(engine, engine.connect())
        finally:
            await engine.dispose()

    ways = {"psycopg": of_psycopg, "asyncpg": of_asyncpg, "sqlalchemy": of_sqlalchemy}
    assert asyncio.run(ways[name]()) == 503
    assert operations(conn) == []


# -- processes that die ---------------------------------------------------------------------


def test_a_handler_that_overlooks_that_it_cannot_have_the_operation_has_no_answer(
    dsn: str, conn: Conn
) -> None:
    handlers: list[
        Any
    ] = []  # the task of the handler, once for each connection that it borrows

    def pool() -> AbstractAsyncContextManager[Any]:
        if handlers and asyncio.current_task() is handlers[0]:
            handlers.append(handlers[0])
            if len(handlers) == 3:  # the claim is handed back, and cannot be made again
                raise psycopg.OperationalError("away")
        return connection()

    @asynccontextmanager
    async def connection() -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as mine:
            yield mine

    async def pay(request: Request) -> PlainTextResponse:
        if not handlers:
            handlers.append(asyncio.current_task())
        with suppress(Exception):
            await request.state.semel
        return PlainTextResponse("paid")

    app: Any = Idempotency(
        Starlette(routes=[Route("/payments", pay, methods=["POST"])]),
        pool=pool,
        project="shop",
        actor=lambda request: "alice",
    )
    with asgi(app) as client:
        answer = client.post("/payments", key="k")
        assert (answer.status_code, answer.json()["code"]) == (503, "E-DB-001")
        assert operations(conn) == [("PENDING", 0)]
        assert client.post("/payments", key="k").text == "paid"
    assert operations(conn) == [("SUCCEEDED", 1)]


@contextmanager
def process(
    front: str, dsn: str, stop: str = ""
) -> Iterator[tuple[Client, subprocess.Popen[bytes]]]:
    argv = [sys.executable, str(PROGRAMS / "rest.py"), front, dsn]
    env = {**os.environ, "SEMEL_TESTING": "1", "SEMEL_STOP_AT": stop}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env) as running:
        try:
            assert running.stdout
            port = int(running.stdout.readline())
            yield Client(f"http://127.0.0.1:{port}"), running
        finally:
            running.kill()


@pytest.mark.crash
@pytest.mark.parametrize("front", ["fastapi", "starlette-taken", "starlette"])
def test_a_process_that_dies_in_a_handler_is_never_a_second_execution(
    dsn: str, conn: Conn, front: str
) -> None:
    """Atomic: it never happened, and the retry executes. Recorded: a visible unknown."""
    conn.execute(TABLES)
    lock: dict[str, Any] = {"key": "k", "headers": {"X-Do": "lock"}}
    conn.execute("select pg_advisory_lock(1)")
    with process(front, dsn) as (client, running), threads(1) as pool:
        first = pool.submit(client.post, "/payments", **lock)
        until(lambda: waiting(conn))
        running.kill()
        with pytest.raises(httpx.TransportError):
            first.result()
    conn.execute("select pg_advisory_unlock(1)")
    until(lambda: not waiting(conn))
    with process(front, dsn) as (client, _):
        again = client.post("/payments", key="k")
        if front == "starlette":
            assert (again.status_code, again.json()["code"]) == (409, "E-IDEMPOTENT-003")
            conn.execute(
                "update semel.operation_holder set beat_at = beat_at - interval '31 s'"
            )
            again = client.post("/payments", key="k")
            assert (again.status_code, again.json()["code"]) == (409, "E-IDEMPOTENT-004")
            assert again.json()["reason"] == "unknown_outcome"
            assert operations(conn) == [("PROCESSING", 1)]
            return
        assert again.status_code == 201, json.loads(again.content)
        assert again.headers["idempotency-attempts"] == "1"
    assert rows(conn) == 1
    assert operations(conn) == [("SUCCEEDED", 1)]


@pytest.mark.crash
@pytest.mark.parametrize(
    ("front", "stop", "left"),
    [
        ("starlette", "ledger.begin.before", []),
        ("starlette", "ledger.begin.after", [("PROCESSING", 1)]),
        ("starlette", "ledger.commit.before", [("PROCESSING", 1)]),
        ("starlette", "ledger.commit.after", [("SUCCEEDED", 1)]),
        ("fastapi", "ledger.answer.before", [("SUCCEEDED", 1)]),
    ],
)
def test_l1_l2_another_process_answers_for_one_that_was_killed(
    dsn: str, conn: Conn, front: str, stop: str, left: list[tuple[str, int]]
) -> None:
    conn.execute(TABLES)
    with process(front, dsn, stop) as (dying, running), process(front, dsn) as (client, _):
        with pytest.raises(httpx.TransportError):
            dying.post("/payments", key="k")
        assert running.wait(60) == -signal.SIGKILL
        assert operations(conn) == left
        conn.execute("update semel.operation_holder set beat_at = beat_at - interval '31 s'")
        again = client.post("/payments", key="k")
        if left == [("PROCESSING", 1)]:
            assert (again.status_code, again.json()["code"]) == (409, "E-IDEMPOTENT-004")
            return
        assert (again.status_code, replayed(again)) == (201, bool(left))
    assert rows(conn) == 1
    assert operations(conn) == [("SUCCEEDED", 1)]
