"""The shop on Starlette: behind the middleware, its handlers' transactions their own or taken."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from rest_shop import Shop, answer
from semel.asgi import Idempotency


def application(dsn: str, shop: Shop, *, take: bool, **rules: Any) -> Any:  # noqa: C901 - an application is one function here
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        dsn, min_size=1, max_size=4, open=False, timeout=10, kwargs={"autocommit": True}
    )

    async def pay(request: Request) -> Response:
        body = await request.body()
        if request.headers.get("content-type", "").startswith("multipart"):
            async with request.form() as form:
                body = await form["file"].read()  # type: ignore[union-attr]
        act = request.headers.get("x-do", "")
        if take:
            op = await request.state.semel
            return await act_on(op.connection, act, body, op)
        async with pool.connection() as conn, conn.transaction():
            return await act_on(conn, act, body, None)

    async def act_on(conn: Any, act: str, body: bytes, op: Any) -> Response:
        cursor = await conn.execute(
            "insert into payment (what) values (%s) returning id", (act or "plain",)
        )
        [payment_id] = await cursor.fetchone()
        shop.fail(act)
        if sql := shop.sql(act):
            await conn.execute(sql)
        if act == "hold":
            await run_in_threadpool(shop.gate.wait)
        if act == "reply":
            op.reply({"replied": payment_id}, status=402, headers=[("X-Said", "1")])
        if act == "journal":
            op.journal("payments", {"id": payment_id})
        said = answer(act, payment_id, body)

        async def later() -> None:
            async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as own:
                await own.execute("insert into note select id::text from payment")

        background = BackgroundTask(later) if act == "background" else None
        if said.stream:
            made: Response = StreamingResponse(
                (said.body[n : n + 100] for n in range(0, len(said.body), 100)),
                said.status,
                background=background,
            )
        else:
            made = Response(said.body, said.status, background=background)
        made.raw_headers = [
            *((n.lower().encode(), v.encode()) for n, v in said.headers),
            *([] if said.stream or said.status == 204 else [(b"content-length", str(len(said.body)).encode())]),
        ]  # fmt: skip
        return made

    async def other(request: Request) -> Response:
        async with pool.connection() as conn:
            await conn.execute("insert into payment (what) values (%s)", (request.method,))
        return Response(status_code=200)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with pool:
            yield

    return Starlette(
        routes=[
            Route("/payments", pay, methods=["POST", "PATCH"]),
            Route("/payments", other, methods=["GET", "PUT", "DELETE"]),
            Route("/others", pay, methods=["POST"]),
            Route("/uploads", pay, methods=["POST"]),
            Route("/accounts/{id}/deposit", pay, methods=["POST"]),
        ],
        lifespan=lifespan,
        middleware=[
            Middleware(
                Idempotency,
                pool=pool,
                project="shop",
                actor=lambda request: request.headers.get("x-user"),
                **rules,
            )
        ],
    )
