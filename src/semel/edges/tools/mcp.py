"""
MCP: a server of tools over streamable HTTP or stdio, by the official SDK.

One connection is kept and shared by all calls; a broken one is left to those on it, and the next
call opens another. The list of tools is asked for again when it is old, since what a tool says of
itself there decides whether a call may be repeated.

Source: Model Context Protocol 2026-07-28, tools; mcp 2.3.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import ValidationError

from semel.edges.tools import leash
from semel.edges.tools.server import (
    META_ACCEPTED,
    META_CALLBACK,
    META_KEY,
    Unanswered,
    Unsent,
    failed,
    kept,
    said_of,
)
from semel.edges.tools.wire import (
    ANSWER_BYTES_MAX,
    CONNECT_SECONDS_MAX,
    LOST,
    REFUSED,
    UNSENT,
    WRITE_SECONDS_MAX,
    Wire,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from semel.config import ToolServer
    from semel.edges.tools.server import Answer, Sending

#: These say what they could not read of an answer, which is not for our log.
_TALKATIVE = ("mcp.client", "mcp.shared")
#: A server must answer to be met, and to list its tools, within this.
MEET_SECONDS_MAX = 15.0
#: A list this old is asked for again before a call. Over a pipe it always is: it costs nothing,
#: and says that the process is there.
LIST_SECONDS_MAX = 30.0
PAGES_MAX = 100
#: After the caller has given up we do, too.
PATIENCE_SECONDS = 2.0

#: What came back is no word of the tool's.
_NO_ANSWER = frozenset(
    {LOST, types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT, types.PARSE_ERROR}
)


@dataclass(slots=True, eq=False)
class _Connection:
    """A client in a task of its own, which alone may enter and leave it."""

    ready: asyncio.Future[Client]
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    tools: dict[str, types.Tool] = field(default_factory=dict)
    listed_at: float = float("-inf")
    calls: int = 0  # on it now
    stale: bool = False  # takes no more of them

    @property
    def usable(self) -> bool:
        """Whether a call may use it."""
        return not self.stale and self.task is not None and not self.task.done()

    def leave(self) -> None:
        """A call has left it."""
        self.calls -= 1
        if self.stale and not self.calls:
            self.ended.set()

    def spoil(self) -> None:
        """It is broken: it goes when the calls on it have."""
        self.stale = True
        if not self.calls:
            self.ended.set()


class Mcp:
    """
    One MCP server.

    Args:
        meet: Opens a client.
        piped: Whether over stdio.
    """

    def __init__(
        self,
        settings: ToolServer,
        meet: Callable[[], AbstractAsyncContextManager[Client]],
        *,
        piped: bool,
    ) -> None:
        self._settings = settings
        self._meet = meet
        self._list_seconds_max = 0.0 if piped else LIST_SECONDS_MAX
        self._connection: _Connection | None = None
        self._all: set[asyncio.Task[None]] = set()
        for name in _TALKATIVE:
            logging.getLogger(name).propagate = False
            logging.getLogger(name).addHandler(logging.NullHandler())
        self._turn = asyncio.Lock()

    async def look(self, tool: str) -> bool | None:
        """See `Server.look`."""
        met = self._met()
        try:
            async with asyncio.timeout(MEET_SECONDS_MAX):
                listed = await self._listed(tool)
        except TimeoutError:
            if met is not None:
                met.spoil()  # it was there all this time, and said nothing
            raise Unsent(
                f"{self._settings.name} gave no sign in {MEET_SECONDS_MAX:g} s"
            ) from None
        except MCPError as error:
            self._spoil()
            raise Unsent(f"{self._settings.name}: {said_of(error)}") from None
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            self._spoil()
            raise Unsent(f"{self._settings.name}: {type(error).__name__}") from None
        if listed is None:
            return None
        says = listed.annotations
        return self._settings.honours(tool) or bool(
            says and (says.idempotent_hint or says.read_only_hint)
        )

    async def meet(self) -> None:
        """See `Server.meet`."""
        await self.look("")

    async def send(self, sending: Sending) -> Answer:
        """See `Server.send`."""
        connection = await self._connected()
        connection.calls += 1
        try:
            return await self._exchange(connection, sending)
        finally:
            connection.leave()

    async def close(self) -> None:
        """See `Server.close`."""
        if self._connection is not None:
            self._connection.stale = True
            self._connection.ended.set()
        if self._all:
            _, slow = await asyncio.wait(self._all, timeout=MEET_SECONDS_MAX)
            for task in slow:
                task.cancel()

    async def _exchange(self, connection: _Connection, sending: Sending) -> Answer:
        client = connection.ready.result()
        meta: dict[str, Any] = {META_KEY: sending.key}
        if sending.callback is not None:
            meta[META_CALLBACK] = sending.callback
        try:
            result = await client.session.call_tool(
                sending.tool,
                sending.arguments,
                max(sending.seconds, 0.0) + PATIENCE_SECONDS,
                meta=cast("types.RequestParamsMeta", meta),
                request_state=sending.state,
                input_responses=_responses(sending.inputs),
                allow_input_required=True,
            )
        except MCPError as error:
            return self._failed(connection, error)
        except RuntimeError as bad:
            return failed(f"it answered what its own schema does not allow: {bad}")
        except ValidationError:
            raise Unanswered("what it answered is no answer of a tool") from None
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            connection.spoil()
            raise Unanswered(f"the connection failed: {type(error).__name__}") from None
        if isinstance(result, types.InputRequiredResult):
            return {"input": _wanted(result)}
        return _answer(result, connection.tools.get(sending.tool))

    def _failed(self, connection: _Connection, error: MCPError) -> Answer:
        if error.code == UNSENT:
            connection.spoil()
            raise Unsent(f"{self._settings.name}: {said_of(error)}") from None
        if error.code in _NO_ANSWER:
            if error.code == types.CONNECTION_CLOSED:
                connection.spoil()
            raise Unanswered(said_of(error)) from None
        if error.code == types.HEADER_MISMATCH:
            connection.listed_at = float("-inf")
            raise Unsent(
                f"{self._settings.name} has changed the tool: {said_of(error)}"
            ) from None
        if error.code == REFUSED:
            return {"refused": said_of(error)}
        return failed(str(error), code=error.code)

    async def _listed(self, tool: str) -> types.Tool | None:
        connection = await self._connected()
        age = time.monotonic() - connection.listed_at
        if age > self._list_seconds_max or tool not in connection.tools:
            tools: dict[str, types.Tool] = {}
            cursor: str | None = None
            for _ in range(PAGES_MAX):
                params = types.PaginatedRequestParams(cursor=cursor)
                page = await connection.ready.result().session.list_tools(params=params)
                tools.update((one.name, one) for one in page.tools)
                cursor = page.next_cursor
                if cursor is None:
                    break
            connection.tools, connection.listed_at = tools, time.monotonic()
        return connection.tools.get(tool)

    async def _connected(self) -> _Connection:
        """The connection, made if there is none that can be used."""
        async with self._turn:
            if self._connection is None or not self._connection.usable:
                self._connection = _Connection(asyncio.get_running_loop().create_future())
                task = asyncio.create_task(self._hold(self._connection))
                self._connection.task = task
                self._all.add(task)
                task.add_done_callback(self._all.discard)
            connection = self._connection
            await asyncio.shield(connection.ready)
            return connection

    async def _hold(self, connection: _Connection) -> None:
        """Open a client, keep it until it is to end or breaks, and close it."""
        ready = connection.ready
        try:
            async with AsyncExitStack() as stack:
                # A server that hangs must not be waited for by every later call.
                async with asyncio.timeout(MEET_SECONDS_MAX):
                    client = await stack.enter_async_context(self._meet())
                ready.set_result(client)
                await connection.ended.wait()
        except BaseException as error:  # noqa: BLE001 - of any kind, from the tasks of the SDK
            if not ready.done():
                ready.set_exception(Unsent(f"{self._settings.name}: {_cause(error)}"))
                ready.exception()  # that nobody waits for it any more is no fault
        finally:
            connection.stale = True

    def _met(self) -> _Connection | None:
        """The connection, if its server has answered on it and calls may use it."""
        here = self._connection
        return here if here is not None and here.usable and here.ready.done() else None

    def _spoil(self) -> None:
        if self._connection is not None:
            self._connection.spoil()


def over_http(settings: ToolServer, environ: Mapping[str, str] = os.environ) -> Mcp:
    """
    The server at the url of *settings*.

    Raises:
        BadConfig: a secret is not where it should be.
    """
    settings.where(environ)
    url = settings.value("url", settings.url or "", environ)
    headers = settings.sent(environ)

    @asynccontextmanager
    async def meet() -> AsyncGenerator[Client]:
        waits = httpx2.Timeout(CONNECT_SECONDS_MAX, read=None, write=WRITE_SECONDS_MAX)
        wire = Wire(httpx2.AsyncHTTPTransport())
        async with httpx2.AsyncClient(transport=wire, headers=headers, timeout=waits) as http:
            transport = streamable_http_client(
                url, http_client=http, max_sse_event_size=ANSWER_BYTES_MAX
            )
            async with _client(transport) as client:
                yield client

    return Mcp(settings, meet, piped=False)


def over_stdio(settings: ToolServer, environ: Mapping[str, str] = os.environ) -> Mcp:
    """
    The server that the command of *settings* starts; it never outlives this process.

    Raises:
        BadConfig: a secret is not where it should be.
    """
    own = {
        name: settings.value(f"env {name}", text, environ)
        for name, text in settings.env.items()
    }
    script = str(Path(leash.__file__))
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-I", "-S", script, settings.command or "", *settings.args],
        env=own,
        cwd=settings.cwd,
    )
    return Mcp(settings, lambda: _client(stdio_client(parameters)), piped=True)


@asynccontextmanager
async def _client(transport: Any) -> AsyncGenerator[Client]:
    # Said to be able to ask a person, since a tool asks only then; whoever asks in the middle of
    # a call, as older protocols did, cannot be kept waiting for one.
    async with Client(transport, elicitation_callback=_decline, cache=None) as client:
        yield client


async def _decline(context: Any, params: Any) -> types.ElicitResult:
    del context, params
    return types.ElicitResult(action="decline")


def _responses(inputs: Mapping[str, Mapping[str, Any]] | None) -> types.InputResponses | None:
    if inputs is None:
        return None
    return {key: types.ElicitResult.model_validate(each) for key, each in inputs.items()}


def _wanted(result: types.InputRequiredResult) -> dict[str, Any]:
    requests = result.input_requests or {}
    return {
        "state": result.request_state,
        "requests": {
            key: each.model_dump(mode="json", by_alias=True, exclude_none=True)
            for key, each in requests.items()
        },
    }


def _answer(result: types.CallToolResult, tool: types.Tool | None) -> Answer:
    texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
    if result.is_error:
        return failed("\n".join(texts) or "it failed and does not say why")
    if (result.meta or {}).get(META_ACCEPTED) is True:
        return {"accepted": True}
    value = result.structured_content
    if value is None:
        if len(texts) == len(result.content):
            return kept(texts[0] if len(texts) == 1 else texts or None)
        return kept([_block(block) for block in result.content])
    # What is no object is sent inside one, whose only member the schema calls result.
    schema = (tool.output_schema if tool else None) or {}
    wrapped = list(schema.get("properties") or ()) == ["result"]
    if wrapped and isinstance(value, dict) and list(value) == ["result"]:
        value = value["result"]
    return kept(value)


def _block(block: Any) -> Any:
    return block.model_dump(mode="json", by_alias=True, exclude_none=True)


def _cause(error: BaseException) -> str:
    """Why a server was not met: the first real reason in a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it gave no sign in {MEET_SECONDS_MAX:g} s"
    with suppress(Exception):
        if isinstance(error, MCPError | OSError):
            return said_of(error)
    return f"it cannot be met: {type(error).__name__}"
