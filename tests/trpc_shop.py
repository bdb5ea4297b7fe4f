"""A shop behind tRPC on a real database: what it does is one row for each execution."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg_pool import AsyncConnectionPool

from fix_world import Conn
from semel.core.operations import base_id
from semel.trpc import UNDEFINED, Context, Request, Router, TRPCError
from trpc_asking import JSON, Answered, ask

PROJECT = "shop"


def who(request: Request) -> dict[str, Any]:
    """The user says who he is, and is believed."""
    return {"actor": request.headers.get("x-user")}


def shop(pool: Any, **options: Any) -> Router:
    """Its procedures; `pay` fails while `failing` has the id."""
    router = Router(pool, project=PROJECT, context=who, **options)
    note = Router()

    @router.mutation("pay")
    async def pay(ctx: Context, given: Any) -> Any:
        await _execute(
            ctx.conn,
            "insert into paid (id, cents) values ($1, $2)",
            given["id"],
            given["cents"],
        )
        if await _value(ctx.conn, "select count(*) from failing where id = $1", given["id"]):
            raise TRPCError("PRECONDITION_FAILED", "no money")
        ctx.op.journal("payments", {"id": given["id"]})
        return {"receipt": given["id"], "cents": given["cents"]}

    @router.mutation("ship")
    async def ship(ctx: Context, given: Any) -> Any:
        await _execute(ctx.conn, "insert into shipped (id) values ($1)", given["id"])
        return {"parcel": given["id"]}

    @router.mutation("void")
    async def void(ctx: Context) -> Any:
        await _execute(ctx.conn, "insert into shipped (id) values ('void')")
        return UNDEFINED

    @router.query("paid")
    async def paid(ctx: Context) -> Any:
        async with ctx.connect() as conn:
            return await _value(conn, "select count(*) from paid")

    @note.mutation("letters")
    async def letters(ctx: Context) -> Any:
        await _execute(ctx.conn, "insert into shipped (id) values ('letters')")
        yield "a"
        yield {"b": 1}

    router.include("note", note)
    return router


TABLES = """
create table paid (n serial, id text, cents int);
create table shipped (n serial, id text);
create table failing (id text)
"""


class Shop:
    """The shop, its event loop and a look at its tables."""

    def __init__(self, runner: asyncio.Runner, pool: Any, app: Any, conn: Conn) -> None:
        self.run = runner.run
        self.pool = pool
        self.app = app
        self.conn = conn

    async def asking(
        self,
        target: str,
        given: Any = UNDEFINED,
        *,
        key: str | None = None,
        keys: Sequence[str] = (),
        user: str | None = "alice",
        method: str = "POST",
        headers: Sequence[tuple[str, str]] = (),
    ) -> Answered:
        lines = [JSON, *headers]
        if key is not None:
            lines.append(("Idempotency-Key", f'"{key}"'))
        if keys:
            lines.append(("Idempotency-Keys", ", ".join(f'"{each}"' for each in keys)))
        if user is not None:
            lines.append(("X-User", user))
        body = (
            b""
            if given is UNDEFINED
            else given
            if isinstance(given, bytes)
            else json.dumps(given).encode()
        )
        return await ask(self.app, method, f"/{target}", body, lines)

    def ask(self, target: str, given: Any = UNDEFINED, **more: Any) -> Answered:
        return self.run(self.asking(target, given, **more))

    def count(self, table: str = "paid") -> int:
        [(count,)] = self.conn.execute(f"select count(*) from {table}").fetchall()
        return int(count)

    def row(self, key: str, path: str = "pay", user: str | None = "alice") -> Any:
        """status, attempts, result of the operation."""
        return self.conn.execute(
            "select status, attempts, result from semel.operations where project_id = %s and request_id = %s",
            (PROJECT, f"{base_id(PROJECT, user, key)}:{path}"),
        ).fetchone()


@contextmanager
def open_shop(
    dsn: str, conn: Conn, make: Callable[..., Router] = shop, *, size: int = 4, **options: Any
) -> Iterator[Shop]:
    conn.execute(TABLES)
    with asyncio.Runner() as runner:
        pool = AsyncConnectionPool(dsn, min_size=size, max_size=size, open=False)
        runner.run(pool.open())
        try:
            yield Shop(runner, pool, make(pool, **options).asgi(), conn)
        finally:
            runner.run(pool.close())


async def _execute(conn: Any, sql: str, *args: Any) -> Any:
    """On psycopg, asyncpg and SQLAlchemy alike."""
    if type(conn).__module__.startswith("asyncpg"):
        return await conn.fetch(sql, *args)
    if type(conn).__module__.startswith("sqlalchemy"):
        from sqlalchemy import text

        named = {f"a{n}": arg for n, arg in enumerate(args, 1)}
        for n in range(1, len(args) + 1):
            sql = sql.replace(f"${n}", f":a{n}")
        result = await conn.execute(text(sql), named)
        return result.fetchall() if result.returns_rows else []
    for n in range(1, len(args) + 1):
        sql = sql.replace(f"${n}", "%s")
    cursor = await conn.execute(sql, args)
    return await cursor.fetchall() if cursor.description else []


async def _value(conn: Any, sql: str, *args: Any) -> Any:
    return (await _execute(conn, sql, *args))[0][0]
