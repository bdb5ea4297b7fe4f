"""A database that is there and says nothing: everybody is told so, and soon."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fix_server import FAST
from fix_world import PROGRAMS, until
from semel.config import Source
from semel.core.tokens import mint, token_create
from semel.db import embedded, migrate
from semel.db.execute import run
from semel.db.pool import connect
from web import Web, count, settings, web

pytestmark = pytest.mark.crash

ALERT = {
    "status": "firing",
    "labels": {},
    "startsAt": "2026-11-30T10:44:45Z",
    "fingerprint": "a",
}


@pytest.fixture
def own() -> Iterator[embedded.Server]:
    """A server that a test may freeze."""
    with tempfile.TemporaryDirectory(prefix="semel-frozen-") as folder:
        Path(folder).chmod(0o755)  # ours: the server's account must reach it when we are root
        with embedded.use(Path(folder, "home"), settings=FAST) as server:
            with connect(server.dsn) as conn:
                migrate.migrate(conn)
            yield server
        embedded.stop(Path(folder, "home"))


@contextmanager
def frozen(server: embedded.Server) -> Iterator[None]:
    """Postmaster and backends stand still; the kernel still takes connections for them."""
    postmaster = server.postmaster_pid
    pids = [postmaster, *_children(postmaster)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


def test_everybody_is_answered_while_the_database_hangs(own: embedded.Server) -> None:
    token = mint()
    sources = [
        Source(name="bot", channel="telegram", agent="a"),
        Source(name="alerts", channel="alertmanager", agent="a"),
    ]
    with connect(own.dsn) as conn:
        run(conn, token_create("default", token, "operator"))
        with web(settings(own.dsn, *sources)) as client:
            assert client.post("/in/default/bot", {"update_id": 0}).status_code == 201
            assert client.get("/readyz").status_code == 200
            bearer = {"Authorization": f"Bearer {token}"}
            asked: dict[str, tuple[Any, ...]] = {
                "update": ("POST", "/in/default/bot", {"update_id": 1}),
                "another": ("POST", "/in/default/bot", {"update_id": 2}),
                "alert": ("POST", "/in/default/alerts", {"alerts": [ALERT]}),
                "start": ("POST", "/v1/default/runs", {"agent": "a"}, bearer),
                "list": ("GET", "/v1/default/runs", b"", bearer),
            }
            with frozen(own):
                answers = client.run(timed(client, asked))
                looks = client.run(
                    timed(client, {path: ("GET", path) for path in ("/readyz", "/metrics")})
                )
                more = client.run(timed(client, {"update": asked["update"]}))
            for name, (answer, seconds) in {**answers, **more}.items():
                assert (answer.status_code, answer.json()["code"]) == (503, "E-DB-001"), name
                assert answer.headers["retry-after"] == "5", name
                assert seconds < 5, name
            assert looks["/readyz"][0].json()["code"] == "E-DB-001"
            assert "semel_database_up 0.0" in looks["/metrics"][0].text
            assert max(seconds for _, seconds in looks.values()) < 3

            # What hung ends by itself; its sender's repetition finds it, or makes it.
            until(lambda: client.post("/in/default/bot", {"update_id": 1}).status_code == 200)
            until(lambda: client.get("/readyz").status_code == 200)
            assert count(conn, "events", "provider_event_id = '1'") == 1


async def timed(client: Web, asked: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Ask all at once; the answers, and how long each took."""
    import asyncio

    loop = asyncio.get_running_loop()

    async def one(words: tuple[Any, ...]) -> tuple[Any, float]:
        began = loop.time()
        return await client.sending(*words), loop.time() - began

    found = await asyncio.gather(*(one(words) for words in asked.values()))
    return dict(zip(asked, found, strict=True))


def test_an_answer_never_says_where_the_database_is() -> None:
    with web(settings("host=/nowhere/secret dbname=hidden")) as client:
        answers = [
            client.get("/readyz"),
            client.get("/v1/default/runs", {"Authorization": "Bearer x"}),
        ]
    for answer in answers:
        assert answer.json()["code"] == "E-DB-001"
        assert "nowhere" not in answer.text
        assert "hidden" not in answer.text


def test_a_stop_ends_a_server_whose_database_hangs(
    own: embedded.Server, tmp_path: Path
) -> None:
    (tmp_path / "semel.toml").write_text(
        '[sources.bot]\nchannel = "telegram"\nagent = "a"\nauthenticate = "none"\n'
    )
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "serve.py")],
        cwd=tmp_path,
        env={**os.environ, "SEMEL_PORT": "0", "SEMEL_DSN": own.dsn},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process, process.stderr:
        try:
            said = (json.loads(line) for line in process.stderr)
            port = next(line["port"] for line in said if line["event"] == "server.started")
            url = f"http://127.0.0.1:{port}/in/default/bot"
            assert any(line["event"] == "database.reached" for line in said)
            assert httpx.post(url, json={"update_id": 1}).status_code == 201
            with frozen(own):
                assert httpx.post(url, json={"update_id": 2}, timeout=10).status_code == 503
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) == 0
        finally:
            process.kill()
