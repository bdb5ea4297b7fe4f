"""The shop on FastAPI: a handler's session is the ledger's, awaited or not."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import psycopg
from fastapi import (
    APIRouter,
    BackgroundTasks,
    Depends,
    FastAPI,
    Form,
    Header,
    Request,
    UploadFile,
)
from fastapi.responses import FileResponse, Response, StreamingResponse
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from rest_shop import Answer, Shop, answer
from semel.fastapi import Once, OnceRoute, Operation


class Payment(BaseModel):
    cents: int = 0
    to: str = ""


def application(dsn: str, url: str, shop: Shop, *, driver: str, **rules: Any) -> FastAPI:  # noqa: C901, PLR0915 - an application is one function here
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        dsn, min_size=1, max_size=4, open=False, timeout=10
    )
    engine = create_async_engine(url, pool_size=4)

    async def user(x_user: Annotated[str | None, Header()] = None) -> str | None:
        return x_user

    async def allowed(x_forbid: Annotated[str | None, Header()] = None) -> None:
        if x_forbid:
            raise HTTPException(403, "not you")

    async def lent() -> AsyncIterator[Any]:
        async with pool.connection() as conn:
            yield conn

    def lent_sync() -> Iterator[Any]:
        with psycopg.connect(dsn) as conn:
            yield conn

    async def session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine) as session:
            yield session

    connection: Any = {"psycopg": lent, "sync": lent_sync, "sqlalchemy": session}[driver]
    once = Once(project="shop", connection=connection, actor=user, **rules)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with pool:
            yield
        await engine.dispose()

    app = FastAPI(lifespan=lifespan)
    router = APIRouter(route_class=OnceRoute)

    async def run(op: Operation, sql: str, *args: Any) -> Any:
        conn = op.connection
        if driver == "sqlalchemy":
            names = {f"a{n}": each for n, each in enumerate(args)}
            for name in names:
                sql = sql.replace("%s", f":{name}", 1)
            result = await conn.execute(text(sql), names)
            return result.first() if result.returns_rows else None
        if driver == "sync":
            cursor = await run_in_threadpool(conn.execute, sql, args)
            return cursor.fetchone() if cursor.description else None
        cursor = await conn.execute(sql, args)
        return await cursor.fetchone() if cursor.description else None

    async def act_on(op: Operation, act: str, body: bytes, tasks: BackgroundTasks) -> Any:
        [payment_id] = await run(
            op, "insert into payment (what) values (%s) returning id", act or "plain"
        )
        shop.fail(act)
        if sql := shop.sql(act):
            await run(op, sql)
        if act == "http-card":
            raise HTTPException(402, f"declined {payment_id}", headers={"ETag": '"e"'})
        if act == "http-refuse":
            raise HTTPException(404, "no such account")
        if act == "hold":
            await run_in_threadpool(shop.gate.wait)
        if act == "reply":
            op.reply({"replied": payment_id}, status=402, headers=[("X-Said", "1")])
        if act == "journal":
            op.journal("payments", {"id": payment_id})
        if act == "background":
            tasks.add_task(_note, dsn)
        if act == "model":
            return {"id": payment_id, "dropped": True}
        return _response(answer(act, payment_id, body))

    @router.api_route("/payments", methods=["POST", "PATCH"])
    async def pay(
        request: Request,
        op: Annotated[Operation, Depends(once)],
        _: Annotated[
            None, Depends(allowed)
        ],  # behind it: a replay must be refused all the same
        payment: Payment,
        tasks: BackgroundTasks,
        x_do: Annotated[str, Header()] = "",
    ) -> Any:
        return await act_on(op, x_do, await request.body(), tasks)

    @router.post("/others")
    async def other(
        request: Request, op: Annotated[Operation, Depends(once)], tasks: BackgroundTasks
    ) -> Any:
        return await act_on(op, "", await request.body(), tasks)

    @router.post("/accounts/{account}/deposit", status_code=201)
    async def deposit(
        account: int, op: Annotated[Operation, Depends(once)], tasks: BackgroundTasks
    ) -> Any:
        return await act_on(op, "model", b"", tasks)

    @router.post("/uploads")
    async def upload(
        name: Annotated[str, Form()],
        file: UploadFile,
        op: Annotated[Operation, Depends(once)],
        tasks: BackgroundTasks,
    ) -> Any:
        return await act_on(op, "", await file.read(), tasks)

    @router.post("/files")
    async def file(op: Annotated[Operation, Depends(once)]) -> FileResponse:
        await run(op, "insert into payment (what) values ('file')")
        return FileResponse(__file__, media_type="text/x-python")

    @router.post("/sync")
    def plainly(op: Annotated[Operation, Depends(once)]) -> dict[str, bool]:
        op.connection.execute("insert into payment (what) values ('sync')")
        return {"sync": True}

    @router.api_route("/payments", methods=["GET", "PUT", "DELETE"])
    async def others(request: Request) -> Response:
        async with pool.connection() as conn:
            await conn.execute("insert into payment (what) values (%s)", (request.method,))
        return Response()

    app.include_router(router)
    return app


def _note(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as own:
        own.execute("insert into note select id::text from payment")


def _response(said: Answer) -> Response:
    if said.stream:
        pieces = (said.body[n : n + 100] for n in range(0, len(said.body), 100))
        made: Response = StreamingResponse(pieces, said.status)
    else:
        made = Response(said.body if said.status != 204 else None, said.status)
    length = (
        [] if said.stream or said.status == 204 else [("content-length", str(len(said.body)))]
    )
    made.raw_headers = [(n.lower().encode(), v.encode()) for n, v in [*said.headers, *length]]
    return made
