"""Whatever bytes come over a connection: answers with a code, or none, and a server that goes on."""

import json
import logging
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from random import Random
from typing import Any

import pytest
import uvicorn

import fuzzing
from consistency import faults
from fix_world import Conn, until
from fuzzing import TIMEOUT, fuzz
from modelling import Tally
from semel.config import Server, Source
from semel.ops.server import application, configured
from web import count, settings

pytestmark = pytest.mark.timeout(TIMEOUT)

#: How long an answer is waited for where perhaps none will come.
PATIENCE_SECONDS = 0.05
BODY = b'{"update_id":%d}'
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAA\r\n"
SPOILING = [
    b"Content-Length: 0\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Content-Length: -1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b"Host: \xff\r\n",
    b": empty\r\n",
    b"X\r\n",
    b" folded\r\n",
    b"X-A: " + b"a" * 70_000 + b"\r\n",
    b"Authorization: Bearer \xe4\x00\r\n",
    OFFER,
]


@pytest.fixture
def port(dsn: str, conn: Conn) -> Iterator[int]:
    """Where a server of our configuration listens, in a thread."""
    source = Source(name="bot", channel="telegram", agent="chat")
    told = settings(dsn, source, server=Server(pool=4, body_bytes_max=20_000))
    with closing(socket.create_server(("127.0.0.1", 0), backlog=200)) as listening:
        server = uvicorn.Server(configured(told, application(told)))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            until(lambda: count(conn, "sources") == 1)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)


def request(some: Random) -> bytes:
    """One good request, in one of its forms."""
    body = BODY % some.randrange(20)
    head = b"POST /in/default/bot HTTP/1.1\r\nHost: x\r\n" + some.choice([b"", b"", OFFER])
    match some.randrange(4):
        case 0:
            return b"GET /v1/default/runs?limit=1 HTTP/1.1\r\nHost: x\r\n\r\n"
        case 1:
            return head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (
                len(body),
                body,
            )
        case _:
            return head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def sent(some: Random) -> bytes:
    """Some requests behind one another, mostly spoilt."""
    raw = b"".join(request(some) for _ in range(some.choice([1, 1, 2, 3])))
    for _ in range(some.randrange(3)):
        lines = raw.split(b"\r\n")
        place = some.randrange(len(lines))
        match some.randrange(5):
            case 0:
                del lines[place]
            case 1:
                lines.insert(place, lines[some.randrange(len(lines))])
            case 2:
                lines.insert(place, some.choice(SPOILING).removesuffix(b"\r\n"))
            case 3:
                lines[place] = fuzzing.torn(some, lines[place])
            case _:
                query = fuzzing.text(some).encode("utf-8", "surrogatepass") + some.randbytes(2)
                lines[0] = lines[0].replace(b" HTTP", b"?" + query + b" HTTP")
        raw = b"\r\n".join(lines)
    return raw


def exchanged(port: int, pieces: list[bytes]) -> bytes:
    said = b""
    # It may answer and close before it was told everything.
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as client,
        suppress(ConnectionError, TimeoutError),
    ):
        for piece in pieces:
            client.sendall(piece)
        client.settimeout(PATIENCE_SECONDS)
        while chunk := client.recv(65536):
            said += chunk
    return said


def judge(said: bytes) -> None:
    """Each answer has a status that is no fault of ours, and a refusal has a code."""
    while said:
        head, found, rest = said.partition(b"\r\n\r\n")
        status = int(re.match(rb"HTTP/1\.1 (\d{3}) ?", head)[1])  # type: ignore[index]  # or it is none
        length = int(re.search(rb"(?i)content-length: (\d+)|$", head)[1] or 0)  # type: ignore[index]
        assert status < 500, said
        if not found or len(rest) < length:
            return  # cut off with the connection
        if status >= 400:
            assert b"content-type: application/problem+json" in head, said
            told: dict[str, Any] = json.loads(rest[:length])
            assert told["code"].startswith("E-")
            assert told["status"] == status
        said = rest[length:]


def test_no_bytes_harm_us(
    port: int, conn: Conn, caplog: pytest.LogCaptureFixture, record_property: Tally
) -> None:
    def case(some: Random) -> None:
        raw = sent(some)
        cut = sorted(some.randrange(len(raw) + 1) for _ in range(some.randrange(3)))
        pieces = [raw[a:b] for a, b in pairwise([0, *cut, len(raw)])]
        try:
            judge(exchanged(port, pieces))
        except BaseException as error:
            error.add_note(repr(raw[:2000]))
            raise

    record_property("cases", fuzz(case))
    good = BODY % 10**6
    head = b"POST /in/default/bot HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(good), good))
        assert client.recv(12) == b"HTTP/1.1 201"
    assert not faults(conn, arrivals=True)
    worse = [
        record
        for record in caplog.records
        if record.exc_info or record.levelno >= logging.ERROR
    ]
    assert not worse
