"""
semel.trpc: procedures for @trpc/client, whose mutations execute once.

    router = Router(pool, project="shop", context=who)

    @router.mutation("payment.create")
    async def pay(ctx, input):
        await ctx.conn.execute("insert into payment values (%s, %s)", (input["id"], ctx.actor))
        return {"id": input["id"]}

    app = router.asgi()
"""

from semel.edges.trpc.context import Context, Request
from semel.edges.trpc.errors import TRPCError
from semel.edges.trpc.inputs import File, Form
from semel.edges.trpc.router import Router
from semel.edges.trpc.values import UNDEFINED, BigInt, Map, Set, Url

__all__ = [
    "UNDEFINED",
    "BigInt",
    "Context",
    "File",
    "Form",
    "Map",
    "Request",
    "Router",
    "Set",
    "TRPCError",
    "Url",
]
