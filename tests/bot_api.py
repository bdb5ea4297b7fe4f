"""
A Bot API server over real HTTP: the queue of one bot, and getUpdates as Telegram answers it.

What it imitates, from telegram-bot-api's Client.cpp and td's TQueue.cpp: to ask from an offset
forgets all below it; an offset more than 10 above the tail is none, and the oldest are
answered; a negative one forgets all but the last ones; the same again within half a second gets one
update; a question that waits is answered 409 when another comes; 409 while a webhook is set.
`answers` are sent instead of anything else, first come first served.
"""

import json
import random
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TOKEN = "123456:AAbot-token_of_tests"
AGAIN_SECONDS = 0.5
PENDING_MAX = 100_000


class BotApi:
    """One bot's queue, and what was asked of it."""

    def __init__(self, token: str = TOKEN) -> None:
        self.tokens = {token}
        self.webhook = ""
        self.answers: list[tuple[int, Mapping[str, str], bytes]] = []
        self.asked: list[dict[str, Any]] = []  # of getUpdates
        self.calls: list[str] = []
        self.conflicts = 0
        self._queue: list[tuple[int, bytes]] = []
        self._tail = random.randrange(2_000_001, 1_000_000_000)
        self._change = threading.Condition()
        self._turn = 0  # of the last getUpdates; who waits with another one is answered 409
        self._last: tuple[int, float] = (0, 0.0)
        self.port = 0
        self.open = 0  # questions that wait
        self.open_max = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pending(self) -> list[int]:
        with self._change:
            return [each for each, _ in self._queue]

    def push(self, *told: Any) -> list[int]:
        """Updates, each told as its other members; answers their ids."""
        with self._change:
            first = self._tail
            for each in told:
                self._put(json.dumps({"update_id": self._tail, **each}, indent=None).encode())
            return list(range(first, self._tail))

    def push_raw(self, raw: bytes) -> int:
        """An update of whatever bytes, with %d in them for its id."""
        with self._change:
            self._put(raw.replace(b"%d", str(self._tail).encode()))
            return self._tail - 1

    def skip(self, count: int) -> None:
        """Ids that nobody will ever see."""
        with self._change:
            self._tail += count

    def begin_anew(self, at: int) -> None:
        """As after a quiet week."""
        with self._change:
            self._queue.clear()
            self._tail = at

    def _put(self, raw: bytes) -> None:
        self._queue.append((self._tail, raw))
        self._tail += 1
        self._change.notify_all()

    def call(
        self, token: str, method: str, told: dict[str, Any], sock: socket.socket
    ) -> tuple[int, Mapping[str, str], bytes]:
        """The status, headers and body that answer it."""
        with self._change:
            self.calls.append(method)
            if method == "getUpdates":
                self.asked.append({**told, "at": time.monotonic()})
            if token not in self.tokens:
                return refused(401, "Unauthorized")
            match method:
                case "getUpdates":
                    return self._updates(told, sock)
                case "getMe":
                    number = int(token.partition(":")[0])
                    return given(
                        {"id": number, "is_bot": True, "first_name": "b", "username": "b_bot"}
                    )
                case "setWebhook":
                    self.webhook = str(told.get("url", ""))
                    self._change.notify_all()
                    return given(True)
                case "deleteWebhook":
                    self.webhook = ""
                    return given(True)
                case _:
                    return refused(404, "Not Found")

    def _ended_by(self, turn: int) -> str | None:
        """What ends the question of *turn*, which waits."""
        if self.webhook:
            return "setWebhook"
        return None if self._turn == turn else "other getUpdates"

    def _updates(
        self, told: dict[str, Any], sock: socket.socket
    ) -> tuple[int, Mapping[str, str], bytes]:
        if self.answers:
            return self.answers.pop(0)
        if self.webhook:
            return refused(
                409,
                "Conflict: can't use getUpdates method while webhook is active; use"
                " deleteWebhook to delete the webhook first",
            )
        self._turn += 1
        turn = self._turn
        self._change.notify_all()
        offset = int(told.get("offset") or 0)
        limit = min(max(int(told.get("limit") or 100), 1), 100)
        last, at = self._last
        if offset == last and time.monotonic() - at < AGAIN_SECONDS:
            limit = 1
        self._last = (offset, time.monotonic())
        if offset < 0:
            self._queue = self._queue[offset:]
        elif offset <= self._tail + 10:  # else it is none, and nothing is forgotten
            self._queue = [one for one in self._queue if one[0] >= offset]
        deadline = time.monotonic() + min(int(told.get("timeout") or 0), 50)
        self.open += 1
        self.open_max = max(self.open, self.open_max)
        try:
            while not self._queue and (left := deadline - time.monotonic()) > 0:
                self._change.wait(min(left, 0.02))
                if (who := self._ended_by(turn)) is not None:
                    self.conflicts += 1
                    return refused(
                        409,
                        f"Conflict: terminated by {who} request; make sure that only one bot"
                        " instance is running",
                    )
                if gone(sock):
                    break
        finally:
            self.open -= 1
        body = b",\n".join(raw for _, raw in self._queue[:limit])
        return 200, {}, b'{"ok":true,"result":[' + body + b"]}"


def given(result: Any) -> tuple[int, Mapping[str, str], bytes]:
    return 200, {}, json.dumps({"ok": True, "result": result}).encode()


def refused(code: int, said: str, **more: Any) -> tuple[int, Mapping[str, str], bytes]:
    body = {"ok": False, "error_code": code, "description": said}
    if more:
        body["parameters"] = more
    return code, {}, json.dumps(body).encode()


def gone(sock: socket.socket) -> bool:
    """Whether who asked has closed the connection."""
    ready, _, _ = select.select([sock], [], [], 0)
    return bool(ready) and sock.recv(1, socket.MSG_PEEK) == b""


@contextmanager
def bot_api(token: str = TOKEN) -> Iterator[BotApi]:
    """One that listens on this machine."""
    api = BotApi(token)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            split = urlsplit(self.path)
            told: dict[str, Any] = dict(parse_qsl(split.query))
            if "json" in self.headers.get("Content-Type", ""):
                told |= json.loads(raw or b"{}")
            else:
                told |= dict(parse_qsl(raw.decode()))
            who, _, method = split.path.removeprefix("/bot").partition("/")
            status, headers, body = api.call(who, method, told, self.connection)
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    api.port = server.server_address[1]
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
