"""
Wire: the HTTP below an MCP connection, which tells what never left from what may have arrived.

The SDK ends a whole connection, with every call on it, when one request fails to connect; and it
takes a gateway's page for the server's own word. So each failure of a request becomes an error
answer to that request alone, with a code that says what may have become of it.

Source: JSON-RPC 2.0, 5.1 (codes beyond -32000 to -32099 are nobody's); MCP, streamable HTTP.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httpx2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

#: It never reached a tool; it may have; it was read, and will not be executed.
UNSENT, LOST, REFUSED = -31001, -31002, -31003
CONNECT_SECONDS_MAX = 5.0
WRITE_SECONDS_MAX = 30.0
#: Of a JSON answer, with what surrounds the tool's own.
ANSWER_BYTES_MAX = 4 * 1024 * 1024

_NEVER_LEFT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_READ = ("application/json", "text/event-stream")
#: Answers of a front that has not passed the request on.
_NOT_YET = frozenset({HTTPStatus.TOO_MANY_REQUESTS})
_MENDS: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "it wants a token: say token or headers in its section",
    HTTPStatus.FORBIDDEN: "the token does not allow it",
    HTTPStatus.NOT_FOUND: "there is nothing at its url",
}


class Wire(httpx2.AsyncBaseTransport):
    """One server's HTTP."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer to *request*; an error as one where it is a JSON-RPC request."""
        if not _is_asked(request):
            return await self._inner.handle_async_request(request)
        try:
            response = await self._inner.handle_async_request(request)
            return await _judged(request, response)
        except _NEVER_LEFT as error:
            return _told(request, UNSENT, f"it cannot be reached: {type(error).__name__}")
        except httpx2.TransportError as error:
            return _told(request, LOST, f"the connection failed: {type(error).__name__}")

    async def aclose(self) -> None:
        """Close its connections."""
        await self._inner.aclose()


class _Quiet(httpx2.AsyncByteStream):
    """A stream that ends where it breaks: the SDK answers for what it had not brought."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                yield chunk
        except httpx2.TransportError:
            return

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _judged(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    status = response.status_code
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/event-stream" and status == HTTPStatus.OK:
        response.stream = _Quiet(response.stream)
        return response
    body = await _whole(response)
    if body is None:
        return _told(request, LOST, f"it answered more than {ANSWER_BYTES_MAX} bytes")
    if kind == "application/json" and (status == HTTPStatus.OK or _is_error(response, body)):
        return httpx2.Response(status, headers=response.headers, content=body, request=request)
    return _told(
        request, *_verdict(status, kind, in_session="mcp-session-id" in request.headers)
    )


def _verdict(status: int, kind: str, *, in_session: bool) -> tuple[int, str]:
    """What has become of a request that was answered with no JSON-RPC."""
    said = f"it answered {status}"
    if status in _NOT_YET:
        return UNSENT, said
    if status == HTTPStatus.NOT_FOUND and in_session:
        return UNSENT, "it has forgotten our session"
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return REFUSED, f"{said}: {_MENDS.get(status, 'mend its url')}"
    return LOST, f"{said} with {kind or 'no type'}, which is no answer"


async def _whole(response: httpx2.Response) -> bytes | None:
    """The body, still encoded; None where it is too long."""
    body = bytearray()
    stream: Any = response.stream
    try:
        async for chunk in stream:
            body += chunk
            if len(body) > ANSWER_BYTES_MAX:
                return None
    finally:
        await response.aclose()
    return bytes(body)


def _is_asked(request: httpx2.Request) -> bool:
    """Whether it is a JSON-RPC request, and no notification, answer or stream."""
    if request.method != "POST":
        return False
    try:
        message = json.loads(request.content)
    except (ValueError, RecursionError, httpx2.RequestNotRead):
        return False
    return isinstance(message, dict) and "id" in message and "method" in message


def _is_error(response: httpx2.Response, body: bytes) -> bool:
    """Whether a refusal says so in JSON-RPC."""
    if "content-encoding" in response.headers:
        return False
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get("jsonrpc") == "2.0" and "error" in told


def _told(request: httpx2.Request, code: int, said: str) -> httpx2.Response:
    error = {
        "jsonrpc": "2.0",
        "id": json.loads(request.content)["id"],
        "error": {"code": code, "message": said},
    }
    return httpx2.Response(503, json=error, request=request)
