"""
HTTP/1.1 with limits on the request head, which the parser itself does not have.

A head that grows past the limit, or does not end in time, closes the connection. Bodies are
limited where they are read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from semel.errors import TooLarge

if TYPE_CHECKING:
    import asyncio

#: A head must be here this long after its first byte, and the first byte after connecting.
HEAD_SECONDS_MAX = 20.0


class Protocol(HttpToolsProtocol):
    """uvicorn's, with a limited head. `limited` makes one for a number of bytes."""

    head_bytes_max = 64 * 1024
    _head_bytes: int | None = 0  # None while no head is being read
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a head."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Refuse more of a head than the limit; a chunk that passes it is still looked at."""
        if self._head_bytes is not None:
            if self._head_bytes > self.head_bytes_max:
                self._refuse()
                return
            self._head_bytes += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._expect()

    def on_headers_complete(self) -> None:
        """The head has ended."""
        self._head_bytes = None
        self._cancel()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next bytes are a head again."""
        super().on_message_complete()
        self._head_bytes = 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._cancel()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._cancel()
        self._head_bytes = self._head_bytes or 0
        self._timer = self.loop.call_later(HEAD_SECONDS_MAX, self.transport.close)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self) -> None:
        said = json.dumps(
            {
                "type": f"urn:semel:error:{TooLarge.code}",
                "title": TooLarge.title,
                "status": 431,
                "detail": f"the request's head passes {self.head_bytes_max} bytes",
                "code": TooLarge.code,
                "retryable": False,
            }
        )
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
            b"content-type: application/problem+json\r\nconnection: close\r\n"
            + f"content-length: {len(said)}\r\n\r\n{said}".encode()
        )
        self.transport.close()


def limited(head_bytes_max: int) -> type[Any]:
    """A Protocol whose heads have at most about *head_bytes_max* bytes."""
    return type("LimitedProtocol", (Protocol,), {"head_bytes_max": head_bytes_max})
