"""
HTTP: tools that are routes of a plain HTTP API, as semel.toml names them.

Arguments are the query of a GET or HEAD, and the JSON body of any other. The key goes in
`Idempotency-Key`, the callback in `Semel-Callback`; 202 to a call with a callback says that the
answer comes there. GET, HEAD, PUT and DELETE may be repeated by their nature.

Source: RFC 9110, 9.2.2 (idempotent methods); draft-ietf-httpapi-idempotency-key-header-07.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import certifi
import httpcore

from semel.core.text import dump
from semel.edges.tools.server import (
    ANSWER_BYTES_MAX,
    SAID_CHARS_MAX,
    Unanswered,
    Unsent,
    failed,
    kept,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semel.config import ToolServer
    from semel.edges.tools.server import Answer, Sending

CONNECT_SECONDS_MAX = 5.0
PAUSE_SECONDS_MAX = 3600

_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_IN_QUERY = frozenset({"GET", "HEAD"})
_OK = range(200, 300)
#: Said by what stands before the tool, which may or may not have passed it on.
_GATEWAY = frozenset({502, 503, 504})
#: Not now: it was not executed, or is being executed under the same key.
_LATER = frozenset({HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_NEVER_LEFT = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout)


class Http:
    """One API."""

    def __init__(self, settings: ToolServer, environ: Mapping[str, str] = os.environ) -> None:
        self._settings = settings
        self._url = settings.where(environ)
        self._headers = settings.sent(environ)
        trust = ssl.create_default_context()
        trust.load_verify_locations(certifi.where())
        self._pool = httpcore.AsyncConnectionPool(ssl_context=trust)

    async def look(self, tool: str) -> bool | None:
        """See `Server.look`; a route is there when it is configured."""
        route = self._settings.routes.get(tool)
        if route is None:
            return None
        return route.partition(" ")[0] in _REPEATABLE or self._settings.honours(tool)

    async def send(self, sending: Sending) -> Answer:
        """See `Server.send`."""
        method, _, path = self._settings.routes[sending.tool].partition(" ")
        target, body = self._url.at(path).target, b""
        headers = {
            "Host": self._url.authority,
            "User-Agent": "semel",
            "Accept": "application/json",
            "Idempotency-Key": f'"{sending.key}"',
            **self._headers,
        }
        if sending.callback is not None:
            headers["Semel-Callback"] = sending.callback
        if method in _IN_QUERY:
            if sending.arguments:
                query = urlencode({k: _plain(v) for k, v in sending.arguments.items()})
                target += ("&" if "?" in target else "?") + query
        else:
            body = dump(sending.arguments).encode()
            headers["Content-Type"] = "application/json"
        try:
            async with asyncio.timeout(max(sending.seconds, 0.1)):
                return await self._exchange(method, target, headers, body, sending)
        except _NEVER_LEFT as error:
            raise Unsent(
                f"{self._settings.name} cannot be reached: {type(error).__name__}"
            ) from None
        except (
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.TimeoutException,
        ) as bad:
            raise Unanswered(f"the connection failed: {type(bad).__name__}") from None
        except TimeoutError:
            raise Unanswered("it gave no answer in time") from None

    async def meet(self) -> None:
        """See `Server.meet`; no route is asked for anything."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                _, writer = await asyncio.open_connection(self._url.host, self._url.port)
        except OSError as error:  # a timeout, too
            name = type(error).__name__
            raise Unsent(f"{self._settings.name} cannot be reached: {name}") from None
        writer.close()

    async def close(self) -> None:
        """See `Server.close`."""
        await self._pool.aclose()

    async def _exchange(
        self, method: str, target: str, headers: dict[str, str], body: bytes, sending: Sending
    ) -> Answer:
        async with self._pool.stream(
            method,
            httpcore.URL(
                scheme=self._url.scheme, host=self._url.host, port=self._url.port, target=target
            ),
            headers=[(name.encode(), value.encode()) for name, value in headers.items()],
            content=body,
            extensions={
                "timeout": {"connect": CONNECT_SECONDS_MAX, "pool": CONNECT_SECONDS_MAX}
            },
        ) as response:
            told = b""
            async for chunk in response.aiter_stream():
                told += chunk
                if len(told) > ANSWER_BYTES_MAX:
                    break
            return _judged(response, told, callback=sending.callback is not None)


def _judged(response: httpcore.Response, body: bytes, *, callback: bool) -> Answer:
    status = response.status
    if status == HTTPStatus.ACCEPTED and callback:
        return {"accepted": True}
    if status in _OK:
        if len(body) > ANSWER_BYTES_MAX:
            return failed(f"it answered more than {ANSWER_BYTES_MAX} bytes. What it did stands")
        if not body.strip():
            return kept(None)
        try:
            return kept(json.loads(body))
        except (ValueError, RecursionError):
            return failed(f"it answered {status} with what is no JSON. What it did stands")
    said = f"it answered {status}: {body[:SAID_CHARS_MAX].decode('utf-8', 'replace')}"
    if status in _LATER:
        raise Unsent(said, retry_after=_pause(response))
    in_flight = status == HTTPStatus.CONFLICT and _pause(response) is not None
    if status in _GATEWAY or in_flight:  # an earlier sending under this key is at work
        raise Unanswered(said)
    return failed(said, status=status)


def _pause(response: httpcore.Response) -> timedelta | None:
    headers = {name.lower(): value for name, value in response.headers}
    told = headers.get(b"retry-after", b"").strip()
    return timedelta(seconds=min(int(told[:9]), PAUSE_SECONDS_MAX)) if told.isdigit() else None


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else dump(value)
