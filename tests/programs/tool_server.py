"""
A real MCP server, over stdio, or over HTTP with `--http`: `python tool_server.py FOLDER [--http]`.

Each execution is a line of FOLDER/executed. A call whose key was executed before is answered out of
FOLDER/done, which only those who ask for it with a key that is honoured come to see. The address of
the HTTP server is FOLDER/url.
"""

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, RequestStateSecurity
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    TextContent,
    ToolAnnotations,
)

FOLDER = Path(sys.argv[1])
mcp = MCPServer("cluster", request_state_security=RequestStateSecurity(keys=["k" * 32]))


def meta(ctx: Any) -> dict[str, Any]:
    return dict(ctx.request_context.meta or {})


def execute(tool: str, ctx: Any) -> str:
    """Do it, unless it was done under this key before."""
    key = str(meta(ctx)["idempotency_key"])
    with (FOLDER / "executed").open("a") as log:
        log.write(json.dumps([tool, key, os.getpid()]) + "\n")
    return key


async def held() -> None:
    """Until the test lets go."""
    while (FOLDER / "hold").exists():  # noqa: ASYNC110 - another process makes and takes it away
        await asyncio.sleep(0.02)


@mcp.tool(annotations=ToolAnnotations(read_only_hint=True))
def list_pods(ns: str) -> list[str]:
    return [f"{ns}-1", f"{ns}-2"]


@mcp.tool()
async def charge(amount: int, ctx: Context) -> dict[str, Any]:
    """Honours the key: executes once for each."""
    done = FOLDER / f"done-{meta(ctx)['idempotency_key']}"
    if not done.exists():
        execute("charge", ctx)
        done.write_text(json.dumps({"charged": amount}))
        await held()
    told: dict[str, Any] = json.loads(done.read_text())
    return told


@mcp.tool()
async def zap(ctx: Context) -> str:
    """Honours nothing."""
    execute("zap", ctx)
    await held()
    return "zapped"


@mcp.tool()
def sour() -> str:
    raise ToolError("no such pod")


@mcp.tool()
def big() -> str:
    return "x" * (1024 * 1024 + 1)


@mcp.tool()
def later(ctx: Context) -> CallToolResult:
    """Accepts, and says where it was told to answer."""
    (FOLDER / "callback").write_text(meta(ctx)["semel/callback"])
    return CallToolResult(content=[], _meta={"semel/accepted": True})


@mcp.tool()
def refund(amount: int, ctx: Context) -> CallToolResult | InputRequiredResult:
    """Wants a person's consent first."""
    if ctx.request_state is None:
        asked = ElicitRequestFormParams(
            message=f"Refund {amount}?",
            requested_schema={
                "type": "object",
                "properties": {"sure": {"type": "boolean"}},
                "required": ["sure"],
            },
        )
        return InputRequiredResult(
            input_requests={"sure": ElicitRequest(params=asked)}, request_state="refund-1"
        )
    key = execute("refund", ctx)
    answered = ctx.input_responses
    assert answered
    return CallToolResult(content=[TextContent(text=f"refunded {amount} {key != ''}")])


def serve() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    app = mcp.streamable_http_app(stateless_http=True, json_response=True)
    (FOLDER / "url.new").write_text(f"http://127.0.0.1:{port}/mcp")
    (FOLDER / "url.new").rename(FOLDER / "url")
    config = uvicorn.Config(app, log_level="error")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


if __name__ == "__main__":
    if "--http" in sys.argv:
        serve()
    else:
        mcp.run("stdio")
