"""
HTTP/1.1 with limits on the request head, which the parser itself does not have.

A head that grows past the limit, or does not end in time, closes the connection. Bodies are
limited where they are read. Another protocol is never switched to, whatever a client offers.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from semel.errors import BadRequest, TooLarge

if TYPE_CHECKING:
    import asyncio

    from semel.errors import SemelError

#: A head must be here this long after its first byte, and the first byte after connecting.
HEAD_SECONDS_MAX = 20.0

#: Without them a request offers no other protocol. They are for this connection only.
_OFFERS = frozenset({b"upgrade", b"http2-settings"})


class Parser:
    """
    httptools' parser, except that a request which offers another protocol is a request.

    At such a head httptools stops, takes the body for the other protocol and drops it. The head
    is then given to a parser of its own, without the offer, and what follows it is the body.

    Source: RFC 9110, 7.8: a server may ignore Upgrade and answer as if it was not there.
    """

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._renew()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> None:
        """Parse *data*; a proxy's CONNECT stays what it is to httptools."""
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                if not self.is_offered:
                    raise
                [parsed] = offer.args
                head = self._protocol.head_without_offer()
                self._renew()
                self._parser.feed_data(head)
                data = bytes(data)[parsed:]
            else:
                return

    @property
    def is_offered(self) -> bool:
        """Whether the head that has just ended offers another protocol."""
        return bool(self._parser.should_upgrade()) and self._parser.get_method() != b"CONNECT"

    def _renew(self) -> None:
        self._parser = httptools.HttpRequestParser(self._protocol)
        # As uvicorn sets it: what is pipelined behind a request that closes is no error.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)


class Protocol(HttpToolsProtocol):
    """uvicorn's, with a limited head. `limited` makes one for a number of bytes."""

    head_bytes_max = 64 * 1024
    parser: Any  # a Parser, which has all that uvicorn asks of httptools'
    _head_bytes: int | None = 0  # None while no head is being read
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.parser = Parser(self)
        self._asked: list[Any] = []  # uvicorn's cycles, one for each request; some are answered

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a head."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Refuse more of a head than the limit; a chunk that passes it is still looked at."""
        if self._head_bytes is not None:
            if self._head_bytes > self.head_bytes_max:
                large = TooLarge(f"the request's head passes {self.head_bytes_max} bytes")
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, large)
                return
            self._head_bytes += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._expect()

    def on_headers_complete(self) -> None:
        """The head has ended, unless it comes again without its offer."""
        if self.parser.is_offered:
            return
        self._head_bytes = None
        self._cancel()
        super().on_headers_complete()
        self._asked = [*self._unanswered(), self.cycle]

    def on_message_complete(self) -> None:
        """The next bytes are a head again."""
        if self.parser.is_offered:
            return
        super().on_message_complete()
        self._head_bytes = 0

    def head_without_offer(self) -> bytes:
        """The head that was read, as a client would send it that offers nothing."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (method, self.url, version)]
        for name, value in self.headers:
            said = value
            if name == b"connection":
                words = (word.strip() for word in value.split(b","))
                said = b", ".join(word for word in words if word.lower() not in _OFFERS)
            if name not in _OFFERS and (said or not value):
                lines.append(b"%s: %s" % (name, said))
        return b"\r\n".join([*lines, b"", b""])

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._cancel()
        self._abandon()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._cancel()
        self._head_bytes = self._head_bytes or 0
        self._timer = self.loop.call_later(HEAD_SECONDS_MAX, self.transport.close)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is refused in our words; *msg* is uvicorn's."""
        self._refuse(HTTPStatus.BAD_REQUEST, BadRequest(msg))

    def _unanswered(self) -> list[Any]:
        return [cycle for cycle in self._asked if not cycle.response_complete]

    def _abandon(self) -> None:
        """Tell every request that its client is gone; uvicorn tells the last of them only."""
        for cycle in self._unanswered():
            cycle.disconnected = True
            cycle.message_event.set()

    def _refuse(self, status: HTTPStatus, error: SemelError) -> None:
        """
        Answer a problem in the application's place, and close.

        Nothing is said while a request before it has no answer: it would be taken for that.
        """
        waiting = self._unanswered()
        in_body = waiting == [self.cycle] and self.cycle.more_body
        is_next = not waiting or (in_body and not self.cycle.response_started)
        self._abandon()
        if is_next:
            self._say(status, error)
        self.transport.close()

    def _say(self, status: HTTPStatus, error: SemelError) -> None:
        problem = {
            "type": f"urn:semel:error:{error.code}",
            "title": error.title,
            "status": status,
            "detail": str(error),
            "code": error.code,
            "retryable": error.retryable,
            "remedy": error.remedy,
        }
        said = json.dumps(problem)
        self.transport.write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
            + b"content-type: application/problem+json\r\nconnection: close\r\n"
            + f"content-length: {len(said)}\r\n\r\n{said}".encode()
        )


def limited(head_bytes_max: int) -> type[Any]:
    """A Protocol whose heads have at most about *head_bytes_max* bytes."""
    return type("LimitedProtocol", (Protocol,), {"head_bytes_max": head_bytes_max})
