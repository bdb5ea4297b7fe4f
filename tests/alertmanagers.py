"""Debian's Alertmanager, alone or as a pair that gossips, and a way to it through which answers get lost."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Literal

import httpx
import pytest

PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
needs_it = pytest.mark.skipif(
    PROGRAM is None, reason="needs Alertmanager: apt-get install prometheus-alertmanager"
)

#: What a way does to one notification: hand it on; answer so without handing it on; or hand it on and
#: lose the answer.
Fate = Literal["pass", "lose"] | int
FAST = [
    "--cluster.peer-timeout=200ms",
    "--cluster.gossip-interval=20ms",
    "--cluster.pushpull-interval=1s",
    "--cluster.settle-timeout=300ms",
    "--cluster.probe-interval=500ms",
]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Members:
    """The members of a cluster; an alert is told to each of them, as Prometheus does."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        self._http = httpx.Client(timeout=5)

    def fire(self, since: datetime | None = None, value: int = 95, **labels: str) -> None:
        """Tell that an alert of these *labels* fires."""
        told: dict[str, Any] = {
            "labels": labels,
            "annotations": {"summary": f"<{value}% 台北"},
        }
        if since is not None:
            told["startsAt"] = since.isoformat()
        self._post(told)

    def end(self, **labels: str) -> None:
        """Tell that it is over."""
        now = datetime.now(UTC)  # noqa: TID251 - Alertmanager has no other clock
        over = now - timedelta(milliseconds=1)
        self._post({"labels": labels, "endsAt": over.isoformat()})

    def _post(self, told: dict[str, Any]) -> None:
        for url in self.urls:
            answer = self._http.post(f"{url}/api/v2/alerts", json=[told])
            assert answer.status_code == 200, answer.text

    def close(self) -> None:
        self._http.close()


@contextmanager
def alertmanager(folder: Path, config: dict[str, Any], count: int = 1) -> Iterator[Members]:
    """*count* members of one cluster, all ready; *config* is what their file says, as JSON, which is YAML."""
    assert PROGRAM is not None
    file = folder / "alertmanager.yml"
    file.write_text(json.dumps(config))
    web, gossip = [free_port() for _ in range(count)], [free_port() for _ in range(count)]
    running = []
    with (folder / "alertmanager.log").open("wb") as log:
        for n in range(count):
            own = (
                [f"--cluster.listen-address=127.0.0.1:{gossip[n]}", *FAST]
                + [f"--cluster.peer=127.0.0.1:{port}" for port in gossip if port != gossip[n]]
                if count > 1
                else ["--cluster.listen-address="]
            )
            running.append(
                subprocess.Popen(
                    [
                        PROGRAM,
                        f"--config.file={file}",
                        f"--storage.path={folder / f'data-{n}'}",
                        f"--web.listen-address=127.0.0.1:{web[n]}",
                        *own,
                    ],
                    stdout=log,
                    stderr=log,
                )
            )
    members = Members(web)
    try:
        for url in members.urls:
            _wait_for(url, count)
        yield members
    finally:
        members.close()
        for each in running:
            each.kill()  # one of a cluster takes its time to leave
        for each in running:
            each.wait(20)


def _wait_for(url: str, peers: int) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            told = httpx.get(f"{url}/api/v2/status").json()["cluster"]
        except (httpx.TransportError, ValueError, KeyError):
            told = {}
        alone = peers == 1 and told.get("status") == "disabled"
        if alone or (told.get("status") == "ready" and len(told.get("peers", ())) == peers):
            return
        time.sleep(0.05)
    raise AssertionError(f"{url} never became ready")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that was lost on purpose is no error."""


class Way:
    """
    Between Alertmanager and a server: at each path it does to the first notifications what it is told.

    Threads, since Alertmanager's groups flush at the same time.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.seen: list[tuple[str, int]] = []  # path and answer; 0: it was lost
        self.names: dict[str, str] = {}  # of the alerts, by fingerprint
        self._fates: dict[str, list[Fate]] = {}
        self._lock = Lock()
        way = self

        class Door(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                way._pass(self, body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
                """Nobody reads it."""

        self._server = _Server(("127.0.0.1", 0), Door)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def fates(self, path: str, *fates: Fate) -> None:
        """What becomes of the next notifications to *path*, one after the other; then all pass."""
        self._fates[path] = list(fates)

    def answers(self, path: str) -> list[int]:
        """What was answered there until now."""
        return [code for seen, code in list(self.seen) if seen == path]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _pass(self, door: BaseHTTPRequestHandler, body: bytes) -> None:
        with self._lock:
            left = self._fates.get(door.path) or []
            fate: Fate = left.pop(0) if left else "pass"
            for alert in json.loads(body)["alerts"]:
                self.names[alert["fingerprint"]] = alert["labels"]["alertname"]
        code, said = (fate, b"") if isinstance(fate, int) else self._hand_on(door, body)
        self.seen.append((door.path, 0 if fate == "lose" else code))
        if fate == "lose":
            door.close_connection = True
            door.connection.shutdown(socket.SHUT_RDWR)
            return
        door.send_response(code)
        door.send_header("Content-Length", str(len(said)))
        door.end_headers()
        door.wfile.write(said)

    def _hand_on(self, door: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        kept = {
            name: value
            for name, value in door.headers.items()
            if name.lower() not in {"host", "content-length"}
        }
        try:
            answer = httpx.post(self.target + door.path, content=body, headers=kept)
        except httpx.TransportError:
            return 502, b""
        return answer.status_code, answer.content


@contextmanager
def way_to(target: str) -> Iterator[Way]:
    """A way to the server at *target*."""
    way = Way(target)
    try:
        yield way
    finally:
        way.close()
