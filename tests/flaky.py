"""An HTTP server on a socket of its own that answers, or fails to, as it is told."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

#: drop: the request is read, and the connection closed. cut: an answer breaks in its body.
#: hold: nothing is ever said.
Fault = Literal["drop", "cut", "hold"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole one."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)

    def raw(self) -> bytes:
        named = {"content-type": "application/json", **self.headers}
        named |= {"content-length": str(len(self.body)), "connection": "close"}
        head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        return f"HTTP/1.1 {self.status} Said\r\n{head}\r\n".encode() + self.body


def problem(status: int, code: str, *, retryable: bool = False, **more: Any) -> Answer:
    """A refusal."""
    body = {"title": "refused", "status": status, "code": code, "retryable": retryable, **more}
    media = {"content-type": "application/problem+json"}
    return Answer(status=status, body=json.dumps(body).encode(), headers=media)


@dataclass(frozen=True)
class Got:
    """One request as it came."""

    line: str
    headers: list[tuple[str, str]]  # names in lower case
    body: bytes

    @property
    def key(self) -> str | None:
        found = [value for name, value in self.headers if name == "idempotency-key"]
        assert len(found) <= 1
        return found[0] if found else None


class Flaky:
    """Does the next of *acts* at each request; after the last one, it answers 200."""

    def __init__(self) -> None:
        self.acts: list[Answer | Fault] = []
        self.got: list[Got] = []
        self.asked = threading.Event()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self._held: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for each in (self._door, *self._held):
            each.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                with suppress(OSError):
                    self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        with client.makefile("rb") as read:
            self.got.append(_request(read))
        self.asked.set()
        act = self.acts.pop(0) if self.acts else Answer()
        if act == "hold":
            self._held.append(client)
            return
        if act == "cut":
            client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        elif isinstance(act, Answer):
            client.sendall(act.raw())
        client.shutdown(socket.SHUT_RDWR)
        client.close()


def _request(read: Any) -> Got:
    line = read.readline().decode().strip()
    headers: list[tuple[str, str]] = []
    while text := read.readline().decode("latin-1").strip():
        name, _, value = text.partition(":")
        headers.append((name.lower(), value.strip()))
    told = dict(headers)
    if told.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(read.readline(), 16):
            body += read.read(size)
            read.readline()
        read.readline()
    else:
        body = read.read(int(told.get("content-length", 0)))
    return Got(line, headers, body)


@contextmanager
def flaky() -> Iterator[Flaky]:
    """One for a while."""
    here = Flaky()
    try:
        yield here
    finally:
        here.close()
