"""The Router and clients/js: no regrouping of batches executes anything twice."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from dropper import Dropper, dropper
from fix_node import HERE, NodeClient, run_node
from fix_world import Conn
from rest_servers import asgi
from semel.trpc import Context, Router

#: The first that needs the packages waits for npm.
pytestmark = pytest.mark.timeout(300)

TABLE = "create table sale (receipt serial primary key, path text, input jsonb)"
INSERT = "insert into sale (path, input) values (%s, %s) returning receipt"


class Shop:
    """A router whose two mutations sell, and where a test says what to lose."""

    def __init__(self, dsn: str) -> None:
        self.way: Dropper | None = None
        self._pool: Any = AsyncConnectionPool(
            dsn, min_size=4, max_size=4, open=False, kwargs={"autocommit": True}
        )
        router = Router(self._pool, project="shop", context=lambda _: {"actor": "alice"})
        for path in ("pay", "ship"):
            router.mutation(path)(self._sell)
        self.app = Starlette(
            routes=[
                Route("/lose", self._lose),
                Route("/rows", self._rows),
                Mount("/trpc", router.asgi()),
            ],
            lifespan=self._open,
        )

    @asynccontextmanager
    async def _open(self, _: Starlette) -> AsyncIterator[None]:
        async with self._pool:
            yield

    async def _sell(self, ctx: Context, given: Any) -> Any:
        found = await ctx.conn.execute(INSERT, (ctx.path, json.dumps(given)))
        (receipt,) = await found.fetchone()
        return {"receipt": receipt, "path": ctx.path, "input": given}

    async def _lose(self, request: Request) -> JSONResponse:
        assert self.way is not None
        self.way.lose(int(request.url.query))
        return JSONResponse(None)

    async def _rows(self, _: Request) -> JSONResponse:
        async with self._pool.connection() as conn:
            found = await conn.execute("select count(*) from sale")
            return JSONResponse((await found.fetchone())[0])


@pytest.mark.parametrize("version", ["11", "10"])
def test_mutations_are_executed_once(
    node: str, node_client: NodeClient, version: str, dsn: str, conn: Conn
) -> None:
    packages = node_client(version)
    conn.execute(TABLE)
    conn.commit()
    shop = Shop(dsn)
    with asgi(shop.app) as server, dropper(int(server.base.rpartition(":")[2])) as way:
        shop.way = way
        environ = {"SEMEL_URL": f"{way.url}/trpc", "SEMEL_CONTROL": server.base}
        run_node(node, packages, "--test", str(HERE / "router.test.mjs"), **environ)
    assert way.dropped > 50
    kept = conn.execute("select count(*), max(attempts) from semel.operations").fetchone()
    sold = conn.execute("select count(*) from sale").fetchone()
    assert kept is not None
    assert sold is not None
    assert kept == (sold[0], 1)
