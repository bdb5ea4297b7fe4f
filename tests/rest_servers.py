"""Applications of every framework behind real HTTP, in threads of this process."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import httpx
import uvicorn
from werkzeug.serving import WSGIRequestHandler, make_server

JSON = {"Content-Type": "application/json"}


class Client:
    """Requests of one user to one server; every one on a connection of its own."""

    def __init__(self, base: str, prefix: str = "") -> None:
        self.base = base
        self.prefix = prefix

    def send(
        self,
        method: str,
        path: str,
        content: bytes | str | None = None,
        *,
        key: str | list[str] | None = None,
        user: str | None = "alice",
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> httpx.Response:
        keys = [] if key is None else [key] if isinstance(key, str) else key
        lines = [(b"Idempotency-Key", each.encode()) for each in keys]
        if user is not None:
            lines.append((b"X-User", user.encode()))
        told = {**({} if "files" in more or "data" in more else JSON), **(headers or {})}
        lines += [(name.encode(), value.encode()) for name, value in told.items()]
        with httpx.Client(base_url=self.base, timeout=30) as http:
            return http.request(
                method, self.prefix + path, content=content, headers=lines, **more
            )

    def post(self, path: str, content: bytes | str = "{}", **more: Any) -> httpx.Response:
        return self.send("POST", path, content, **more)


@contextmanager
def asgi(
    app: Any, lifespan: Literal["auto", "on", "off"] = "auto", prefix: str = ""
) -> Iterator[Client]:
    """*app* behind uvicorn."""
    door = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, log_level="error", lifespan=lifespan, timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[door])))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the application does not start"
            threading.Event().wait(0.005)
        yield Client(f"http://127.0.0.1:{door.getsockname()[1]}", prefix)
    finally:
        server.should_exit = True
        thread.join()


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
        pass


@contextmanager
def wsgi(app: Callable[..., Any], prefix: str = "") -> Iterator[Client]:
    """*app* behind Werkzeug's server, a thread for each request."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Client(f"http://127.0.0.1:{server.server_port}", prefix)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
