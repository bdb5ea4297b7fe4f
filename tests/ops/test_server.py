"""The server starts without its database, survives rude clients, and leaves politely."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fix_world import until
from semel.config import Server, Settings, Source
from semel.db import embedded
from semel.db.pool import connect
from semel.edges import ingress
from semel.errors import BadConfig
from semel.ops.server import application, serve
from web import count, settings, verdict, web

SERVE = Path(__file__).parent.parent / "programs" / "serve.py"
CONFIG = """
[sources.bot]
channel = "telegram"
agent = "chat"
authenticate = "none"
"""


class Process:
    """A server of its own, and where it listens."""

    def __init__(self, home: Path, **environ: str) -> None:
        (home / "semel.toml").write_text(CONFIG)
        self.popen = subprocess.Popen(
            [sys.executable, str(SERVE)],
            cwd=home,
            env={**os.environ, "SEMEL_PORT": "0", "SEMEL_TESTING": "1", **environ},
            stderr=subprocess.PIPE,
            text=True,
        )
        started = self.wait_for("server.started")
        self.port = started["port"]
        self.url = f"http://127.0.0.1:{self.port}"

    def wait_for(self, event: str) -> dict[str, Any]:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            if not line.startswith("{"):
                raise AssertionError(line + self.popen.stderr.read())
            told: dict[str, Any] = json.loads(line)
            if told.get("event") == event:
                return told
        raise AssertionError(f"the server ended before {event}")

    def post(self, update_id: int) -> httpx.Response:
        return httpx.post(f"{self.url}/in/default/bot", json={"update_id": update_id})

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(20)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def starting(**environ: str) -> Process:
        started.append(Process(tmp_path, **environ))
        return started[-1]

    yield starting
    for process in started:
        process.popen.kill()
        process.popen.wait(20)
        assert process.popen.stderr is not None
        process.popen.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_with_exit_code_0(
    start: Callable[..., Process], dsn: str, number: int
) -> None:
    process = start(SEMEL_DSN=dsn)
    process.wait_for("database.reached")
    assert process.post(1).status_code == 201
    assert process.stop(number) == 0
    process.wait_for("server.stopped")


def test_a_request_in_flight_is_answered_before_it_stops(
    start: Callable[..., Process], dsn: str, conn: psycopg.Connection[Any]
) -> None:
    process = start(SEMEL_DSN=dsn)
    process.wait_for("database.reached")
    body = b'{"update_id":1}'
    with socket.create_connection(("127.0.0.1", process.port)) as client:
        head = (
            f"POST /in/default/bot HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with conn.transaction():
            # It holds what the insert needs, so the request is in the database when we stop.
            conn.execute("lock table semel.dedupe in access exclusive mode")
            client.sendall(head.encode() + body)
            with connect(dsn) as other:
                until(lambda: waiting(other) == 1)
            process.popen.send_signal(signal.SIGTERM)
        assert client.recv(100).startswith(b"HTTP/1.1 201")
    assert process.popen.wait(20) == 0
    assert count(conn, "runs") == 1


def waiting(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute(
        "select count(*) from pg_locks where not granted"
        " and database = (select oid from pg_database where datname = current_database())"
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.crash
def test_c2_a_server_killed_after_commit_has_made_the_one_run(
    start: Callable[..., Process], dsn: str, conn: psycopg.Connection[Any]
) -> None:
    dying = start(SEMEL_DSN=dsn, SEMEL_STOP_AT="ingress.accept.after")
    with pytest.raises(httpx.TransportError):
        dying.post(7)
    assert dying.popen.wait(20) == -signal.SIGKILL
    assert count(conn, "events") == count(conn, "runs") == 1
    again = start(SEMEL_DSN=dsn).post(7)
    assert again.status_code == 200
    row = conn.execute("select run_id::text from semel.runs").fetchone()
    assert row == (again.json()["run_id"],)
    assert count(conn, "events") == count(conn, "runs") == 1


@pytest.mark.crash
def test_a_server_killed_before_commit_has_made_nothing(
    start: Callable[..., Process], dsn: str, conn: psycopg.Connection[Any]
) -> None:
    dying = start(SEMEL_DSN=dsn, SEMEL_STOP_AT="ingress.accept.before")
    with pytest.raises(httpx.TransportError):
        dying.post(7)
    assert dying.popen.wait(20) == -signal.SIGKILL
    assert count(conn, "deliveries") == count(conn, "runs") == 0


def test_it_starts_without_its_database_and_finds_it_later(
    start: Callable[..., Process], server: embedded.Server, template: str
) -> None:
    name = f"later_{os.getpid()}"
    dsn = make_conninfo(server.dsn, dbname=name)
    process = start(SEMEL_DSN=dsn)
    assert httpx.get(f"{process.url}/healthz").status_code == 200
    assert httpx.get(f"{process.url}/readyz").json()["code"] == "E-DB-001"
    assert httpx.get(f"{process.url}/metrics").status_code == 200
    assert process.post(1).status_code == 503
    with connect(server.dsn) as admin:
        admin.execute(f"create database {name} template {template}")
        try:
            until(lambda: process.post(1).status_code in {200, 201})
            until(lambda: httpx.get(f"{process.url}/readyz").status_code == 200)
            with connect(dsn) as conn:
                until(lambda: count(conn, "sources") == 1)
                assert count(conn, "runs") == 1
            assert process.stop() == 0
        finally:
            admin.execute(f"drop database {name} with (force)")


def exchange(port: int, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        try:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass
        said = b""
        try:
            while chunk := client.recv(65536):
                said += chunk
        except ConnectionError:
            pass
        return said


def test_what_is_no_http_never_harms_it(start: Callable[..., Process], dsn: str) -> None:
    process = start(SEMEL_DSN=dsn)
    process.wait_for("database.reached")
    post = b"POST /in/default/bot HTTP/1.1\r\nHost: x\r\n"
    for sent, status in (
        (b"\x00\x01\x02\r\n\r\n", b"400"),
        (post + b"Content-Length: x\r\n\r\n", b"400"),
        (post + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", b"400"),
        (post + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", b"400"),
        (post + b"Content-Length: 99999999999999999999999\r\n\r\n", b"400"),
        (post + b"Content-Length: 2000000\r\n\r\n", b"413"),
        (post + b"X-A: " + b"a" * 40_000 + b"\r\nContent-Length: 2\r\n\r\n{}", b"431"),
        (post + b"X-A: " + b"a" * 5_000_000, b"431"),
        (b"POST /in/default/%ff HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b"404"),
    ):
        said = exchange(process.port, sent)
        assert said.startswith((b"HTTP/1.1 " + status, b"")), sent[:80]
        assert not said or said.split(b" ", 2)[1] == status, (sent[:80], said[:80])
    assert process.post(1).status_code == 201
    assert process.stop() == 0


def test_pipelined_requests_are_each_answered(
    start: Callable[..., Process], dsn: str, conn: psycopg.Connection[Any]
) -> None:
    process = start(SEMEL_DSN=dsn)
    process.wait_for("database.reached")
    one = b"POST /in/default/bot HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n"
    sent = b"".join(one + b'{"update_id":%d}' % n for n in (1, 2, 1))
    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as client:
        client.sendall(sent)
        said = b""
        while said.count(b"HTTP/1.1 20") < 3:
            said += client.recv(65536)
    assert said.count(b"HTTP/1.1 201") == 2
    assert count(conn, "runs") == 2


def test_what_is_no_http_is_a_problem_and_no_answer_to_another_request(
    start: Callable[..., Process], dsn: str, conn: psycopg.Connection[Any]
) -> None:
    process = start(SEMEL_DSN=dsn)
    process.wait_for("database.reached")
    alone = exchange(process.port, b"\x00\x01\r\n\r\n")
    assert alone.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in alone
    assert json.loads(alone.partition(b"\r\n\r\n")[2])["code"] == "E-REQUEST-001"
    good = b"POST /in/default/bot HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n"
    with conn.transaction(), connect(dsn) as other:
        # The request before it waits for the database: a 400 would be taken for its answer.
        conn.execute("lock table semel.dedupe in access exclusive mode")
        with socket.create_connection(("127.0.0.1", process.port), timeout=10) as client:
            client.sendall(good + b'{"update_id":1}')
            until(lambda: waiting(other) == 1)
            client.sendall(good + b'{"update_id":2}' + b"\x00\r\n\r\n")
            assert client.recv(100) == b""
    until(lambda: count(conn, "runs") >= 1)
    assert process.post(1).status_code == 200
    assert process.stop() == 0
    assert process.popen.stderr is not None
    assert "request.failed" not in process.popen.stderr.read()


OFFERS = {
    "h2c": "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAA\r\n",
    "websocket": "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\n",
    "twice": "Connection: upgrade\r\nConnection: close\r\nUpgrade: TLS/1.0\r\nUpgrade: h2c\r\n",
    "none": "Connection: keep-alive\r\n",
}


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_request_that_offers_another_protocol_is_a_request(
    start: Callable[..., Process],
    dsn: str,
    conn: psycopg.Connection[Any],
    pieces: int,
    framing: str,
) -> None:
    """Java's HttpClient offers h2c with each POST; the next one comes on the same connection."""
    process = start(SEMEL_DSN=dsn)
    process.wait_for("database.reached")

    def one(update_id: int, offer: str) -> bytes:
        body = b'{"update_id":%d}' % update_id
        head = f"POST /in/default/bot HTTP/1.1\r\nHost: x\r\n{OFFERS[offer]}"
        if framing == "length":
            return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        return f"{head}Transfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n".encode() + (
            body + b"\r\n0\r\n\r\n"
        )

    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for update_id, offer in enumerate(("h2c", "none", "websocket", "h2c", "twice")):
            sent = one(update_id, offer)
            size = -(-len(sent) // pieces)
            for begin in range(0, len(sent), size):
                client.sendall(sent[begin : begin + size])
            said = b""
            while not said.endswith(b"}"):
                said += client.recv(65536)
            assert said.startswith(b"HTTP/1.1 201"), (offer, said)
        assert client.recv(1) == b""  # the last one asked for it
    pipelined = b"".join(
        one(n, offer) for n, offer in ((10, "h2c"), (11, "h2c"), (12, "twice"))
    )
    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as client:
        client.sendall(pipelined)
        said = b""
        while chunk := client.recv(65536):
            said += chunk
    assert said.count(b"HTTP/1.1 201") == 3
    assert count(conn, "runs") == 8
    assert count(conn, "deliveries", "verdict <> 'new'") == 0


def test_no_answer_names_the_software(start: Callable[..., Process], dsn: str) -> None:
    process = start(SEMEL_DSN=dsn)
    assert "server" not in httpx.get(f"{process.url}/healthz").headers


def test_a_taken_port_is_named_with_the_mend(dsn: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadConfig, match=rf"port {port}.*SEMEL_PORT"):
            serve(Settings(dsn=dsn, server=Server(port=port)))


def test_no_dsn_is_refused_with_the_mend() -> None:
    with pytest.raises(BadConfig, match="SEMEL_DSN"):
        application(Settings())


def metric(text: str, name: str) -> float:
    return float(
        next(line.split(" ")[-1] for line in text.splitlines() if line.startswith(name))
    )


def test_metrics_tell_what_was_received_and_what_waits(dsn: str) -> None:
    source = Source(name="bot", channel="telegram", agent="chat")
    with web(settings(dsn, source)) as client:
        for update_id in (1, 1, 2):
            client.post("/in/default/bot", {"update_id": update_id})
        client.post("/in/default/bot", b"nothing")
        client.post("/in/default/bot", {}, {"Origin": "http://evil.example"})
        text = client.get("/metrics").text
    assert metric(text, 'semel_events_total{outcome="new",source="bot"}') == 2
    assert metric(text, 'semel_events_total{outcome="duplicate",source="bot"}') == 1
    assert metric(text, 'semel_events_total{outcome="quarantined",source="bot"}') == 1
    assert metric(text, 'semel_events_total{outcome="refused",source="bot"}') == 1
    assert metric(text, "semel_ingest_seconds_count") == 5
    assert metric(text, 'semel_runs{agent="chat",status="PENDING"}') == 2
    assert 0 <= metric(text, 'semel_run_oldest_ready_seconds{agent="chat"}') < 60
    assert metric(text, "semel_schema_version") >= 4
    assert metric(text, "semel_build_info{") == 1
    assert metric(text, "semel_database_up") == 1


def test_metrics_are_told_while_the_database_is_away() -> None:
    source = Source(name="bot", channel="telegram", agent="chat")
    with web(settings("host=127.0.0.1 port=1 connect_timeout=1", source)) as client:
        client.post("/in/default/bot", {"update_id": 1})
        answer = client.get("/metrics")
    assert answer.status_code == 200
    assert metric(answer.text, "semel_database_up") == 0
    assert metric(answer.text, 'semel_events_total{outcome="failed",source="bot"}') == 1
    assert "semel_runs{" not in answer.text


def test_readiness_tells_a_missing_schema_from_a_missing_database(
    dsn: str, empty_dsn: str
) -> None:
    for where, status, code in (
        (dsn, 200, None),
        (empty_dsn, 503, "E-DB-002"),
        ("host=127.0.0.1 port=1 connect_timeout=1", 503, "E-DB-001"),
    ):
        with web(settings(where)) as client:
            answer = client.get("/readyz")
            assert client.get("/healthz").status_code == 200
        assert answer.status_code == status
        assert answer.json().get("code") == code


def test_a_fault_of_ours_is_500_and_a_problem(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(name="bot", channel="telegram", agent="chat")
    with web(settings(dsn, source)) as client:
        monkeypatch.setattr(ingress, "READERS", {"telegram": lambda *_: 1 // 0})
        answer = client.post("/in/default/bot", {"update_id": 1})
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert verdict(answer) == "refused"
