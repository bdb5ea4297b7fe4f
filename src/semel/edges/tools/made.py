"""Made: the servers of a worker, of its settings and its program, and the agent that calls."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from semel.core.tools import APP
from semel.edges.tools.agent import Caller
from semel.edges.tools.functions import Functions
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from semel.config import Settings, ToolServer
    from semel.edges.tools.agent import Database, ToolRun
    from semel.edges.tools.functions import Function
    from semel.edges.tools.server import Answer, Server


def tool_agent(
    settings: Settings,
    functions: Mapping[str, Function],
    database: Database,
    environ: Mapping[str, str] = os.environ,
) -> tuple[Callable[[ToolRun], Awaitable[Answer]], Callable[[], Awaitable[None]]]:
    """
    The async handler of `semel.tool`, and what ends the servers that it has met.

    Raises:
        BadConfig: a secret is not there, or what speaks to a server is not installed.
    """
    servers: dict[str, Server] = {
        name: made(each, environ) for name, each in settings.tools.items()
    }
    servers[APP] = Functions(functions)

    async def end() -> None:
        async with AsyncExitStack() as stack:
            for server in servers.values():
                stack.push_async_callback(server.close)

    return Caller(servers, database, links=settings.links).__call__, end


async def reach(server: Server) -> None:
    """
    Return once *server* has answered, and let go of it.

    Raises:
        ToolDown: it does not.
    """
    try:
        await server.meet()
    finally:
        await server.close()


def made(settings: ToolServer, environ: Mapping[str, str] = os.environ) -> Server:
    """
    The server that *settings* describe; nothing is opened yet.

    Raises:
        BadConfig: as `tool_agent`.
    """
    extra = "notify" if settings.http is not None else "mcp"
    try:
        if settings.http is not None:
            from semel.edges.tools.http import Http  # noqa: PLC0415 - the notify extra

            return Http(settings, environ)
        from semel.edges.tools import mcp  # noqa: PLC0415 - the mcp extra

        if settings.url is not None:
            return mcp.over_http(settings, environ)
        return mcp.over_stdio(settings, environ)
    except ImportError as missing:
        raise BadConfig(
            f"[tools.{settings.name}] needs {missing.name}: pip install 'semel[{extra}]'"
        ) from None
