"""
Reading a request: whole, and never more of it than the limits allow.

A chunked body has no length to judge by, so reading stops at the limit. What was left unread
would be taken for the next request; the caller closes the connection.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from semel.errors import BadRequest, TooLarge

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

    from semel.config import Server
    from semel.errors import SemelError

#: A body must be here this long after its headers.
BODY_SECONDS_MAX = 30.0


class Unread(Exception):
    """A request that was not read to its end: why, and the status to answer."""

    def __init__(self, error: SemelError, status: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.status = status


async def whole(scope: Scope, receive: Receive, limits: Server) -> bytes | None:
    """
    The body; None if the client went away in the middle of it.

    Raises:
        Unread: the body or the header lines together pass their limit, or it took too long.
    """
    size, declared = 0, b"0"
    for name, value in scope["headers"]:
        size += len(name) + len(value) + 4
        if name == b"content-length":
            declared = value
    if size > limits.header_bytes_max:
        large = TooLarge(f"the header lines pass {limits.header_bytes_max} bytes")
        raise Unread(large, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    large = TooLarge(f"the body passes {limits.body_bytes_max} bytes")
    if not declared.isdigit() or int(declared[:20]) > limits.body_bytes_max:
        raise Unread(large, large.http_status)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            while (message := await receive())["type"] == "http.request":
                body += message.get("body", b"")
                if len(body) > limits.body_bytes_max:
                    raise Unread(large, large.http_status)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        slow = BadRequest(f"the body took longer than {BODY_SECONDS_MAX:g} s")
        raise Unread(slow, HTTPStatus.REQUEST_TIMEOUT) from None
    return None
