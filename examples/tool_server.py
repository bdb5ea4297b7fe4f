"""
A tool server that honours the idempotency key: what it did for a key once, it does not do again.

It speaks MCP over stdio and is started by the worker, as examples/tools.toml says. What it did is
in tool_server.db beside it; a real one would keep the key in the transaction that pays.
"""

import sqlite3
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import ToolAnnotations

BOOKS = sqlite3.connect(
    Path(__file__).with_name("tool_server.db"), isolation_level=None, check_same_thread=False
)
BOOKS.execute(
    "create table if not exists refund (key text primary key, order_id int, cents int)"
)

mcp = MCPServer("shop")


@mcp.tool(annotations=ToolAnnotations(read_only_hint=True))
def find_order(order: int) -> dict[str, int]:
    """An order, by its number."""
    return {"order": order, "cents": 100 * order}


@mcp.tool()
def refund(order: int, cents: int, ctx: Context) -> str:
    """Pay cents back, once for each key."""
    meta: Any = ctx.request_context.meta
    key = meta["idempotency_key"]
    BOOKS.execute("insert or ignore into refund values (?, ?, ?)", (key, order, cents))
    [[paid]] = BOOKS.execute("select cents from refund where key = ?", (key,))
    return f"refunded {paid}"


if __name__ == "__main__":
    mcp.run("stdio")
