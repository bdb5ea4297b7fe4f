"""
Api: one getUpdates at a time, over a connection that is kept.

The operator names the server, so no guard judges its addresses. No redirect is followed, no proxy
of the environment is used, and nothing that could hold the token leaves here in an error.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import TYPE_CHECKING

import httpcore

from semel.config.poll import PollSettings
from semel.edges.notifiers.post import trusted
from semel.edges.poller.answer import Unanswered, read

if TYPE_CHECKING:
    from semel.config import Source
    from semel.edges.poller.answer import Update

CONNECT_SECONDS_MAX = 10.0
#: After the time in which the server may wait for something.
ANSWER_SECONDS_MAX = 15.0
#: A server sends some 4 MiB at most.
ANSWER_BYTES_MAX = 32 * 1024 * 1024

_UNAUTHORIZED = 401


class Api:
    """
    The Bot API, as one source's bot.

    Of several tokens the first is used; one that is refused gives way to the next, since a renewed
    token ends the old one at once.
    """

    def __init__(self, source: Source, *, trust: ssl.SSLContext | None = None) -> None:
        self._settings = source.poll or PollSettings(source=source.name)
        self._tokens = [secret.reveal() for secret in source.secrets]
        self._limit = self._settings.limit
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trust or trusted(), max_connections=1, keepalive_expiry=5.0
        )

    async def updates(self, offset: int | None, *, wait: bool = True) -> list[Update]:
        """
        What comes from *offset* on, as soon as there is something; none in time is none.

        Args:
            offset: All below it is forgotten there. None: from the oldest, and nothing is.
            wait: For something to come, if nothing is there.

        Raises:
            Unanswered: the server did not answer with updates.
        """
        token = self._tokens[0]
        seconds = self._settings.timeout.total_seconds()
        asked = {
            "timeout": int(seconds) if wait else 0,
            "limit": self._limit,
            "allowed_updates": list(self._settings.allowed_updates),
        } | ({} if offset is None else {"offset": offset})
        origin = self._settings.server.origin
        try:
            async with asyncio.timeout(seconds + CONNECT_SECONDS_MAX + ANSWER_SECONDS_MAX):
                status, headers, body = await self._post(token, json.dumps(asked).encode())
        except TimeoutError:
            raise Unanswered("failing", f"{origin} gave no answer in time") from None
        except (
            httpcore.NetworkError,
            httpcore.TimeoutException,
            httpcore.ProtocolError,
            httpcore.ConnectionNotAvailable,
            OSError,
        ) as bad:
            # Its text may quote what was sent.
            distrusted = isinstance(bad.__context__, ssl.SSLCertVerificationError)
            why = "its certificate is not trusted" if distrusted else type(bad).__name__
            raise Unanswered("failing", f"{origin} cannot be reached: {why}") from None
        if body is None:
            self._limit = max(1, self._limit // 2)
            raise Unanswered("failing", f"an answer is above {ANSWER_BYTES_MAX} bytes")
        if status == _UNAUTHORIZED:
            self._tokens = [*self._tokens[1:], token]
        found = read(status, headers, body, token=token)
        self._limit = min(2 * self._limit, self._settings.limit)
        return found

    async def close(self) -> None:
        """Close the connection."""
        await self._pool.aclose()

    async def _post(self, token: str, body: bytes) -> tuple[int, dict[str, str], bytes | None]:
        url = self._settings.server.at(f"/bot{token}/getUpdates")
        sent = {
            "Host": url.authority,
            "User-Agent": "semel",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
        }
        seconds = self._settings.timeout.total_seconds() + ANSWER_SECONDS_MAX
        timeouts = {"connect": CONNECT_SECONDS_MAX, "read": seconds, "write": seconds}
        async with self._pool.stream(
            "POST",
            httpcore.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target),
            headers=[(name.encode(), value.encode()) for name, value in sent.items()],
            content=body,
            extensions={"timeout": {**timeouts, "pool": CONNECT_SECONDS_MAX}},
        ) as response:
            kept = bytearray()
            async for chunk in response.aiter_stream():
                kept += chunk
                if len(kept) > ANSWER_BYTES_MAX:
                    return response.status, {}, None
            headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in response.headers
            }
            return response.status, headers, bytes(kept)
