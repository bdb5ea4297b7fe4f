"""A router works on whatever pool a program has, and takes no more of it than half for one batch."""

import asyncio
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool

from connections import url
from fix_world import Conn
from trpc_shop import TABLES, Shop, shop

PAY = {"id": "a1", "cents": 5}


async def asyncpg_pool(dsn: str) -> tuple[Any, Any]:
    import asyncpg
    from psycopg.conninfo import conninfo_to_dict

    told = conninfo_to_dict(dsn)
    pool = await asyncpg.create_pool(
        host=told["host"],
        port=told["port"],
        user=told["user"],
        database=told["dbname"],
        min_size=1,
        max_size=4,
    )
    return pool, pool.close


async def psycopg_pool(dsn: str) -> tuple[Any, Any]:
    pool = AsyncConnectionPool(dsn, min_size=1, max_size=4, open=False)
    await pool.open()
    return pool, pool.close


async def finder(dsn: str) -> tuple[Any, Any]:
    pool, close = await psycopg_pool(dsn)
    return lambda: pool, close


async def factory(dsn: str) -> tuple[Any, Any]:
    pool, close = await psycopg_pool(dsn)
    return pool.connection, close


async def sessions(dsn: str) -> tuple[Any, Any]:
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

    engine = create_async_engine(url(dsn, "psycopg"), pool_size=4)
    return async_sessionmaker(engine), engine.dispose


async def engine(dsn: str) -> tuple[Any, Any]:
    from sqlalchemy.ext.asyncio import create_async_engine

    made = create_async_engine(url(dsn, "asyncpg"), pool_size=4)
    return made, made.dispose


@pytest.mark.parametrize(
    "make", [psycopg_pool, asyncpg_pool, finder, factory, sessions, engine]
)
def test_a_mutation_executes_once_on_every_pool(dsn: str, conn: Conn, make: Any) -> None:
    conn.execute(TABLES)
    with asyncio.Runner() as runner:
        pool, close = runner.run(make(dsn))
        try:
            here = Shop(runner, pool, shop(pool).asgi(), conn)
            batch = {str(n): {"id": str(n), "cents": n} for n in range(6)}
            paths, keys = ",".join(["pay"] * 6), [f"k{n}" for n in range(6)]
            first = here.ask(f"{paths}?batch=1", batch, keys=keys)
            assert [one["result"]["data"]["cents"] for one in first.json] == list(range(6))
            again = here.ask(f"{paths}?batch=1", batch, keys=keys)
            assert again.headers["idempotent-replayed"] == "true"
            conn.execute("insert into failing values ('a1')")
            assert here.ask("pay", PAY, key="f").status == 412
            assert here.row("f")[:2] == ("FAILED", 1)
            assert here.ask("pay", {"id": "plain", "cents": 1}).status == 200
            assert here.ask("paid", method="GET").json == {"result": {"data": 7}}
        finally:
            runner.run(close())


def test_one_batch_leaves_half_of_the_pool_to_others(dsn: str, conn: Conn) -> None:
    conn.execute(TABLES)
    seen = []

    async def play(pool: Any) -> None:
        router = shop(pool)
        going = 0
        enough = asyncio.Event()

        @router.mutation("wait")
        async def wait(ctx: Any) -> Any:
            nonlocal going
            going += 1
            seen.append(going)
            if going == 2:
                enough.set()
            await enough.wait()
            await asyncio.sleep(0)
            going -= 1

        from trpc_asking import ask

        answer = await ask(router.asgi(), "POST", f"/{','.join(['wait'] * 8)}?batch=1", b"{}")
        assert answer.status == 200

    with asyncio.Runner() as runner:
        pool, close = runner.run(psycopg_pool(dsn))
        try:
            runner.run(play(pool))
        finally:
            runner.run(close())
    assert max(seen) == 2
    assert len(seen) == 8
