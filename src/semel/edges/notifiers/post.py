"""
Post: one request over one connection, to an address that the guard has judged.

httpcore asks us for each connection and nobody else for an address; the Host header, SNI and
the certificate stay those of the URL. No proxy of the environment is used, no redirect followed,
no connection kept.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import certifi
import httpcore

from semel.edges.notifiers.notifier import Answer, NotifyLater, NotifyRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from semel.config.url import Url
    from semel.edges.notifiers.guard import Guard

CONNECT_SECONDS_MAX = 5.0
#: From the look-up of the name to the end of the answer.
TOTAL_SECONDS_MAX = 15.0
ANSWER_BYTES_MAX = 64 * 1024


class Guarded(httpcore.AsyncNetworkBackend):
    """Connects where the guard lets it; nothing else knows how to."""

    def __init__(self, guard: Guard, inner: httpcore.AsyncNetworkBackend | None = None) -> None:
        self._guard = guard
        self._inner = inner or cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of httpcore
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to one of the addresses of *host*, tried in turn within *timeout*."""
        loop = asyncio.get_running_loop()
        end = loop.time() + min(timeout or CONNECT_SECONDS_MAX, CONNECT_SECONDS_MAX)
        try:
            async with asyncio.timeout_at(end):
                addresses = await self._guard.addresses(host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout("the name was not resolved in time") from None
        except (OSError, UnicodeError):  # a label that is too long is no name
            raise httpcore.ConnectError("the name has no address") from None
        failed: Exception = httpcore.ConnectTimeout("no time is left")
        for tried, address in enumerate(addresses):
            share = (end - loop.time()) / (len(addresses) - tried)
            if share <= 0:
                break
            try:
                return await self._inner.connect_tcp(
                    address, port, share, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed


class Post:
    """
    Sends requests for one notifier.

    Args:
        inner: How to connect to an address; a test's own.
        trust: The certificates to trust; the system's and Mozilla's if None.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        inner: httpcore.AsyncNetworkBackend | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._backend = Guarded(guard, inner)
        self._trust = trust

    async def __call__(self, url: Url, headers: Mapping[str, str], body: bytes) -> Answer:
        """
        What *url* answers to *body*, whatever its status.

        Raises:
            NotifyRefused: the guard's, or what no header can hold.
            NotifyLater: nothing could be sent, or no answer came in time; it may have been read.
        """
        try:
            async with asyncio.timeout(TOTAL_SECONDS_MAX):
                return await self._exchange(url, headers, body)
        except TimeoutError:
            raise NotifyLater(
                f"{url.origin} gave no answer within {TOTAL_SECONDS_MAX:g} s"
            ) from None
        except httpcore.LocalProtocolError:
            raise NotifyRefused(
                "a token or address of the notifier has a character that no header may have"
            ) from None
        except (
            httpcore.NetworkError,
            httpcore.TimeoutException,
            httpcore.ProtocolError,
        ) as bad:
            # Its text may quote what was sent.
            distrusted = isinstance(bad.__context__, ssl.SSLCertVerificationError)
            why = "its certificate is not trusted" if distrusted else type(bad).__name__
            raise NotifyLater(f"{url.origin} cannot be reached: {why}") from None

    async def _exchange(self, url: Url, headers: Mapping[str, str], body: bytes) -> Answer:
        sent = {"Host": url.authority, "User-Agent": "semel", **headers}
        timeouts = {"connect": CONNECT_SECONDS_MAX, "read": TOTAL_SECONDS_MAX}
        async with (
            httpcore.AsyncConnectionPool(
                ssl_context=self._trust or trusted(), network_backend=self._backend
            ) as pool,
            pool.stream(
                "POST",
                httpcore.URL(
                    scheme=url.scheme, host=url.host, port=url.port, target=url.target
                ),
                headers=[(name.encode(), value.encode()) for name, value in sent.items()],
                content=body,
                extensions={"timeout": {**timeouts, "write": TOTAL_SECONDS_MAX}},
            ) as response,
        ):
            return Answer(
                status=response.status,
                headers={
                    name.decode("latin-1").lower(): value.decode("latin-1")
                    for name, value in response.headers
                },
                body=await _beginning(response),
            )


async def _beginning(response: httpcore.Response) -> bytes:
    """The answer's body as far as it is read; the connection goes with the rest of it."""
    kept = b""
    async for chunk in response.aiter_stream():
        kept += chunk
        if len(kept) >= ANSWER_BYTES_MAX:
            break
    return kept[:ANSWER_BYTES_MAX]


@cache
def trusted() -> ssl.SSLContext:
    """Mozilla's certificates and the system's."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
