"""
Load: post events over keep-alive connections as fast as they are answered.

    load.py URL KIND CONNECTIONS SECONDS

A process of its own, and as little Python for each request as there can be: what is measured is
the server. Every answer must be a success; each event is a new one. Answers JSON: rate, p50_ms,
p99_ms, and the count of each status. KIND is api, alertmanager, or github, whose events are signed
with SECRET; "github again" sends each of AGAIN events many times.
"""

import asyncio
import hashlib
import hmac
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import uvloop

PAYLOAD = (
    '{"i":%d,"p":{"kind":1,'
    '"message":"somebody has to look at this, and it had better be soon"}}'
)
SECRET = b"it is signed with this"
AGAIN = 100
#: One firing alert, as Alertmanager 0.28 posts a group of one.
ALERT = (
    '{"version":"4","groupKey":"{}:{alertname=\\"A%(id)s\\"}","truncatedAlerts":0,"status":"firing",'
    '"receiver":"semel","groupLabels":{"alertname":"A%(id)s"},"commonLabels":{"alertname":"A%(id)s"},'
    '"commonAnnotations":{},"externalURL":"http://alerts","alerts":[{"status":"firing",'
    '"labels":{"alertname":"A%(id)s","severity":"page"},"annotations":{"summary":"it is down"},'
    '"startsAt":"%(at)s","endsAt":"0001-01-01T00:00:00Z","generatorURL":"http://prometheus/graph",'
    '"fingerprint":"%(id)s"}]}'
)


def requests(kind: str, head: str) -> Callable[[int], bytes]:
    """The n-th request of *kind*, whole."""
    born = time.time_ns() & 0xFFFFFFFF
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())

    def signed(n: int) -> bytes:
        if kind == "github again":
            n %= AGAIN
        # The same content within minutes would be taken for the same event, whatever its id.
        body = (PAYLOAD % (born % 10**6 * 10**7 + n)).encode()
        mac = hmac.digest(SECRET, body, hashlib.sha256).hex()
        key = f"{born:08x}-0000-4000-8000-{n:012x}"
        return (
            f"{head}X-GitHub-Event: issues\r\nX-GitHub-Delivery: {key}\r\n"
            f"X-Hub-Signature-256: sha256={mac}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    def request(n: int) -> bytes:
        key = f"{born:08x}{n:08x}"
        body = ALERT % {"id": key, "at": at} if kind == "alertmanager" else PAYLOAD % n
        return f"{head}Idempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    return signed if kind.startswith("github") else request


class Connection(asyncio.Protocol):
    """One request after the other."""

    def __init__(self, load: "Load") -> None:
        self._load = load
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:  # uvloop's is no asyncio.Transport
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._began = time.perf_counter()
        self._transport.write(self._load.next())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        self._load.answered(int(head[9:12]), time.perf_counter() - self._began)
        if time.perf_counter() < self._load.until:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        self._load.left()


class Load:
    """What all connections share."""

    def __init__(
        self, request: Callable[[int], bytes], connections: int, seconds: float
    ) -> None:
        self._request = request
        self._sent = 0
        self._open = connections
        self.statuses: Counter[int] = Counter()
        self.took: list[float] = []
        self.until = time.perf_counter() + seconds
        self.ended = asyncio.Event()

    def next(self) -> bytes:
        self._sent += 1
        return self._request(self._sent)

    def answered(self, status: int, took: float) -> None:
        self.statuses[status] += 1
        self.took.append(took)

    def left(self) -> None:
        self._open -= 1
        if not self._open:
            self.ended.set()


async def main(url: str, kind: str, connections: int, seconds: float) -> None:
    parts = urlsplit(url)
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        "Content-Type: application/json\r\nUser-Agent: bench\r\n"
    )
    load = Load(requests(kind, head), connections, seconds)
    began = time.perf_counter()
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: Connection(load), parts.hostname, parts.port)
    await asyncio.wait_for(load.ended.wait(), seconds + 30)
    whole = time.perf_counter() - began
    took = sorted(load.took)
    answer = {
        "rate": len(took) / whole,
        "p50_ms": took[len(took) // 2] * 1e3,
        "p99_ms": took[int(len(took) * 0.99)] * 1e3,
        "statuses": load.statuses,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
