"""The ASGI application of some settings, in its lifespan, behind a client without a socket."""

import asyncio
import json
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
from starlette.types import ASGIApp

from semel.config import Secret, Server, Settings, Source
from semel.ops.server import application

T = TypeVar("T")

CORPUS = json.loads((Path(__file__).parent / "corpus" / "channels.json").read_text())
#: What a test's clock begins with, unlike any real time.
BASE = 1_900_000_000.0


class Web:
    """Requests to the application, one after the other or all at once."""

    def __init__(self, runner: asyncio.Runner, app: ASGIApp) -> None:
        self._runner = runner
        self._app = app

    def send(
        self,
        method: str,
        path: str,
        content: Any = b"",
        headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
        client: tuple[str, int] = ("127.0.0.1", 123),
    ) -> httpx.Response:
        return self.run(self.sending(method, path, content, headers, client))

    async def sending(
        self,
        method: str,
        path: str,
        content: Any = b"",
        headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
        client: tuple[str, int] = ("127.0.0.1", 123),
    ) -> httpx.Response:
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False, client=client)
        async with httpx.AsyncClient(transport=transport, base_url="http://semel") as http:
            if not isinstance(content, bytes | str) and not hasattr(content, "__aiter__"):
                content = json.dumps(content)
            pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
            raw = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
            return await http.request(method, path, content=content, headers=raw)

    def post(
        self,
        path: str,
        content: Any,
        headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
    ) -> httpx.Response:
        return self.send("POST", path, content, headers)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.send("GET", path, headers=headers)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


@contextmanager
def web(settings: Settings) -> Iterator[Web]:
    with asyncio.Runner() as runner:
        app = application(settings)
        lifespan = app.router.lifespan_context(app)
        runner.run(lifespan.__aenter__())
        try:
            yield Web(runner, app)
        finally:
            runner.run(lifespan.__aexit__(None, None, None))


def settings(dsn: str, *sources: Source, **changes: Any) -> Settings:
    by_name = {(source.project, source.name): source for source in sources}
    changes.setdefault("server", Server(pool=4))
    return Settings(dsn=dsn, testing=True, sources=by_name, **changes)


def secret(value: str) -> Secret:
    return Secret(reference="env:SECRET", environ={"SECRET": value})


def count(conn: psycopg.Connection[Any], table: str, where: str = "true") -> int:
    row = conn.execute(f"select count(*) from semel.{table} where {where}").fetchone()
    assert row is not None
    return int(row[0])


def verdict(response: httpx.Response) -> str:
    return str(response.headers.get("semel-verdict", ""))
