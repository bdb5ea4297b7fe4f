"""
Messages: an ASGI exchange whose answer is held back until it is committed.

Messages are forwarded, never rebuilt: what the application hangs on its response, such as
background tasks, stays there and runs after the last message was sent, hence after the commit.

Source: the ASGI specification, HTTP & WebSocket message format 2.5.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from semel.edges.rest import answer
from semel.errors import TooLarge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.types import Message, Receive, Scope, Send

#: Extensions by which an application would send past us.
_PAST_US = frozenset({"http.response.pathsend", "http.response.zerocopysend"})

Lines = list[tuple[str, str]]


async def whole(scope: Scope, receive: Receive, limit: int) -> bytes | None:
    """
    The body; None if the client went away in the middle of it.

    Raises:
        TooLarge: more than *limit* bytes. The rest is unread: close the connection.
    """
    large = TooLarge(f"the body passes {limit} bytes")
    declared = next((v for n, v in scope["headers"] if n.lower() == b"content-length"), b"0")
    if declared.isdigit() and int(declared[:20]) > limit:
        raise large
    body = bytearray()
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if len(body) > limit:
            raise large
        if not message.get("more_body", False):
            return bytes(body)
    return None


async def send_whole(
    send: Send, status: int, lines: Iterable[tuple[str, str]], body: bytes
) -> None:
    """Send one answer."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in lines]
    if answer.has_body(status):
        raw.append((b"content-length", str(len(body)).encode()))
    else:
        body = b""
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


class Held:
    """
    The two ends of an exchange as the application sees them.

    Args:
        body: The request's, read before; None where it was not.
        holds: Whether the answer is held, asked when it begins.
        limit: Bytes of an answer that are held; with the next one, *settle* is called without a
            body, and the answer goes out as it comes.
        settle: Commits status, header lines and body, and answers the lines to be added.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        body: bytes | None,
        limit: int,
        settle: Callable[[int, Lines, bytes | None], Awaitable[Lines]],
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        self._receive = receive
        self._send = send
        self._limit = limit
        self._settle = settle
        self._holds = holds
        self._was_read = body is not None
        self._request: Message | None = None
        if body is not None:
            self._request = {"type": "http.request", "body": body, "more_body": False}
        self._messages: list[Message] = []
        self._size = 0
        self._flowing = asyncio.Event()
        extensions = scope.get("extensions")
        if extensions:
            scope["extensions"] = {k: v for k, v in extensions.items() if k not in _PAST_US}

    @property
    def settled(self) -> bool:
        """Whether the outcome is committed and the answer on its way."""
        return self._flowing.is_set()

    async def receive(self) -> Message:
        """
        The request; afterwards what the server says, once the answer is on its way.

        A client that goes away in the middle of the work does not end it: it will ask again.
        """
        if self._request is not None:
            message, self._request = self._request, None
            return message
        if self._was_read:
            await self._flowing.wait()
        return await self._receive()

    async def send(self, message: Message) -> None:
        """Hold *message*, or settle and send all that was held."""
        if not self._messages and not self._holds():
            self._flowing.set()
        if self.settled:
            await self._send(message)
            return
        self._messages.append(message)
        if message["type"] != "http.response.body":
            return
        self._size += len(message.get("body", b""))
        if self._size > self._limit:
            await self._flow(None)
        elif not message.get("more_body", False):
            await self._flow(
                b"".join(
                    m.get("body", b"")
                    for m in self._messages
                    if m["type"] == "http.response.body"
                )
            )

    async def _flow(self, body: bytes | None) -> None:
        start = next(m for m in self._messages if m["type"] == "http.response.start")
        headers = [(bytes(n), bytes(v)) for n, v in start.get("headers", ())]
        lines = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in headers]
        more = await self._settle(start["status"], lines, body)
        start["headers"] = [
            *headers,
            *((n.lower().encode("latin-1"), v.encode("latin-1")) for n, v in more),
        ]
        self._flowing.set()
        messages, self._messages = self._messages, []
        for message in messages:
            await self._send(message)
