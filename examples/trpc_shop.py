"""
A shop behind tRPC: a retried payment is made once, whatever became of its answer.

    export DATABASE_URL=$(semel db start --json | jq -r .dsn)    # or your own database's
    SEMEL_DSN=$DATABASE_URL semel migrate && python examples/trpc_shop.py

    curl localhost:8000/trpc/order.pay -H 'content-type: application/json' -H 'x-user: alice' \
         -H 'idempotency-key: "k1"' -d '{"id": "o1", "cents": 500}'

The same line again prints the same receipt, marked as replayed; with other cents, a conflict. A
client of @trpc/client sends a key for each call with the links of clients/js.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from psycopg_pool import AsyncConnectionPool
from starlette.applications import Starlette
from starlette.routing import Mount

from semel.trpc import Context, Request, Router, TRPCError

pool = AsyncConnectionPool(
    os.environ.get("DATABASE_URL", ""), min_size=8, max_size=8, open=False
)

CARD_CENTS_MAX = 100_000


def who(request: Request) -> dict[str, Any]:
    """Who asks: here whoever says so; a real shop looks into its session."""
    return {"actor": request.headers.get("x-user")}


def signed_in(ctx: Context, _given: Any) -> bool:
    """Asked before anything is executed or replayed."""
    return ctx.actor is not None


def payment(given: Any) -> dict[str, Any]:
    """The input of a payment; what this raises is BAD_REQUEST."""
    if not isinstance(given, dict) or not isinstance(given.get("id"), str):
        raise TRPCError("BAD_REQUEST", "id is missing")
    if not isinstance(given.get("cents"), int) or given["cents"] <= 0:
        raise ValueError("cents is a whole number above 0")
    return given


orders = Router()


@orders.query("total")
async def total(ctx: Context) -> int:
    async with ctx.connect() as conn:
        found = await conn.execute(
            "select coalesce(sum(cents), 0) from payment where buyer = %s", (ctx.actor,)
        )
        return int((await found.fetchone())[0])


@orders.mutation("pay", input=payment, require_key=True)
async def pay(ctx: Context, given: dict[str, Any]) -> dict[str, Any]:
    # ctx.conn is in the transaction that also keeps this answer: both are committed, or neither.
    if given["cents"] > CARD_CENTS_MAX:
        raise TRPCError("PRECONDITION_FAILED", "the card refused that much")
    made = await ctx.conn.execute(
        "insert into payment (order_id, buyer, cents) values (%s, %s, %s) returning payment_id",
        (given["id"], ctx.actor, given["cents"]),
    )
    receipt = (await made.fetchone())[0]
    ctx.op.journal("payments", {"receipt": receipt, "order": given["id"]})
    return {"receipt": receipt, "cents": given["cents"]}


router = Router(pool, project="shop", context=who, authorize=signed_in)
router.include("order", orders)


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[None]:
    async with pool:
        async with pool.connection() as conn:
            await conn.execute(
                "create table if not exists payment (payment_id serial primary key,"
                " order_id text not null, buyer text not null, cents int not null)"
            )
        yield


app = Starlette(routes=[Mount("/trpc", router.asgi())], lifespan=lifespan)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")), log_level="warning")
