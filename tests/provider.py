"""A provider on this machine: a real HTTP server that keeps what it gets and says what it is told."""

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

#: Key and certificate of hooks.example.test, which is nobody's.
CERTIFICATE = Path(__file__).parent / "corpus" / "hooks.example.test.pem"


@dataclass(frozen=True, kw_only=True)
class Got:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(kw_only=True)
class Provider:
    """What came, and what is answered next; the last answer is repeated."""

    port: int = 0
    got: list[Got] = field(default_factory=list)
    answers: list[tuple[int, Mapping[str, str], bytes]] = field(default_factory=list)

    def answer(self, status: int, body: Any = b"", **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.append((status, named, raw))

    def take(self) -> tuple[int, Mapping[str, str], bytes]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def provider(*, tls: bool = False) -> Iterator[Provider]:
    here = Provider()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            here.got.append(
                Got(method=self.command, path=self.path, headers=headers, body=body)
            )
            status, said, answer = here.take()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(answer)), **said}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(answer)
            except OSError:
                self.close_connection = True  # a long answer was not read to its end

        def do_GET(self) -> None:
            here.got.append(Got(method="GET", path=self.path, headers={}, body=b""))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_said: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a caller that hangs up is what some tests want

    server = Server(("127.0.0.1", 0), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    here.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
