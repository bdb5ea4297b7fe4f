"""
The ASGI door of a router: reads a request whole, answers it, and streams where that was asked.

A client that leaves stops the queries it asked for. A mutation that has begun goes on to its end:
the answer is kept, and the retry gets it.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from semel import log
from semel.edges.trpc import jsonl
from semel.edges.trpc.answers import headers_of, status_of, whole
from semel.edges.trpc.context import Request
from semel.edges.trpc.errors import TRPCError, of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from semel.edges.trpc.answers import Outcome
    from semel.edges.trpc.execution import Execution
    from semel.edges.trpc.procedures import Procedure
    from semel.edges.trpc.wire import Reading

#: A body must be here this long after its headers.
BODY_SECONDS_MAX = 30.0
_JSON, _PROBLEM = "application/json", "application/problem+json"
#: What version 11 says of an answer to a request that it could not take apart.
_TEXT = "text/plain;charset=UTF-8"

Headers = list[tuple[str, str]]


class Application:
    """
    A router as an ASGI application, mounted anywhere.

    Args:
        prefix: Of its paths where nothing has taken it off, such as "/trpc".
    """

    def __init__(
        self,
        procedures: Mapping[str, Procedure],
        execution: Execution,
        context: Callable[[Request], Any] | None,
        prefix: str,
    ) -> None:
        self._procedures = procedures
        self._execution = execution
        self._context = context
        self._prefix = prefix.strip("/")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request; there is nothing to start or to stop."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "HEAD":  # a warm-up, and never a call
            await _send(send, 204, [], b"")
            return
        request = self._request(scope)
        limit = self._execution.rules.body_bytes_max
        try:
            body = await _body(receive, limit)
        except TRPCError as bad:
            await self._refuse(send, bad, request)
            return
        if body is None:
            return
        try:
            wire = self._execution.wire
            reading = wire.read(
                request, body, self._procedures, self._execution.writer.transformer
            )
            values = await self._values(request)
            wire.check(reading)
        except Exception as error:  # noqa: BLE001 - the context is a program's; it is told
            await self._refuse(send, _logged(of(error), request), request)
            return
        calls = self._execution.begin(request, reading, values)
        if reading.mode == "whole":
            await self._whole(send, reading, calls)
        else:
            await self._stream(receive, send, reading, calls)

    async def _whole(
        self, send: Any, reading: Reading, calls: Sequence[asyncio.Task[Outcome]]
    ) -> None:
        outcomes = [whole(outcome) for outcome in await asyncio.gather(*calls)]
        writer = self._execution.writer
        texts = [
            writer.envelope(outcome, call.path)
            for outcome, call in zip(outcomes, reading.calls, strict=True)
        ]
        first = outcomes[0]
        problem = not reading.batch and isinstance(first, TRPCError) and bool(first.problem)
        headers = [
            ("content-type", _PROBLEM if problem else _JSON),
            *self._execution.wire.vary("whole"),
            *headers_of(outcomes),
        ]
        text = f"[{','.join(texts)}]" if reading.batch else texts[0]
        await _send(send, status_of(outcomes), headers, text.encode())

    async def _stream(
        self, receive: Any, send: Any, reading: Reading, calls: list[asyncio.Task[Outcome]]
    ) -> None:
        """Send each answer when it is there, and stop when nobody reads."""
        paths = [call.path for call in reading.calls]
        make = jsonl.lines if reading.mode == "jsonl" else jsonl.members
        parts = make(calls, paths, self._execution.writer)
        sending = asyncio.create_task(self._send_parts(send, reading, parts))
        leaving = asyncio.create_task(_gone(receive))
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for task in (sending, leaving):
            task.cancel()
        if not reading.mutates:
            for call in calls:
                call.cancel()
        with suppress(asyncio.CancelledError):
            await sending
        await asyncio.gather(*calls, leaving, return_exceptions=True)

    async def _send_parts(
        self, send: Any, reading: Reading, parts: AsyncGenerator[str, None]
    ) -> None:
        headers = [("content-type", _JSON), *self._execution.wire.vary(reading.mode)]
        await send(_start(200, headers))
        try:
            async for part in parts:
                message = {"body": part.encode(), "more_body": True}
                await send({"type": "http.response.body", **message})
        finally:
            await parts.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _refuse(self, send: Any, error: TRPCError, request: Request) -> None:
        """Answer a request that has no calls, with one object whatever it asked for."""
        writer = self._execution.writer
        vary = self._execution.wire.vary("whole")
        media = _PROBLEM if error.problem else _TEXT if vary else _JSON
        path = request.path if error.code == "PAYLOAD_TOO_LARGE" else None
        text = writer.envelope(error, path)
        if path is not None:
            media = _JSON
            if request.query.get("batch") == "1":
                text = f"[{','.join(writer.envelope(error, each) for each in path.split(','))}]"
        headers = [("content-type", media), *vary, *error.headers]
        await _send(send, error.status, headers, text.encode())

    async def _values(self, request: Request) -> Mapping[str, Any]:
        if self._context is None:
            return {}
        values = self._context(request)
        if inspect.isawaitable(values):
            values = await values
        return values or {}

    def _request(self, scope: Any) -> Request:
        path = scope["path"].removeprefix(scope.get("root_path", "")).strip("/")
        if self._prefix:
            path = path.removeprefix(self._prefix).lstrip("/")
        query: dict[str, str] = {}
        told = scope.get("query_string", b"").decode("latin-1")
        for name, value in parse_qsl(told, keep_blank_values=True, errors="replace"):
            query.setdefault(name, value)
        lines = tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in scope["headers"]
        )
        return Request(scope["method"], path, query, lines, scope)


async def _body(receive: Any, limit: int) -> bytes | None:
    """
    The body; None if the client went away in the middle of it.

    Raises:
        TRPCError: it passes *limit*, or takes too long.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            while (message := await receive())["type"] == "http.request":
                body += message.get("body", b"")
                if len(body) > limit:
                    raise TRPCError("PAYLOAD_TOO_LARGE")
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise TRPCError("TIMEOUT") from None
    return None


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Any, send: Any) -> None:
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})


def _start(status: int, headers: Headers) -> dict[str, Any]:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {"type": "http.response.start", "status": status, "headers": raw}


async def _send(send: Any, status: int, headers: Headers, body: bytes) -> None:
    length = [("content-length", str(len(body)))] if body else []
    await send(_start(status, [*headers, *length]))
    await send({"type": "http.response.body", "body": body})


def _logged(error: TRPCError, request: Request) -> TRPCError:
    if error.code == "INTERNAL_SERVER_ERROR":
        log.event(
            "request.failed",
            method=request.method,
            route=request.path,
            error=type(error.__cause__ or error).__name__,
            sqlstate=getattr(error.__cause__, "sqlstate", None),
        )
    return error
