"""
Ingest: events over HTTP, 32 keep-alive connections, against a route written by hand.

Ours is `semel serve`, with a source of each of three channels, of which one's events are signed;
both are asked by load.py.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from contestants import HERE, OURS, VENV, Contestant
from drain import database, stop
from load import SECRET
from server import Server

CONNECTIONS = 32
#: "again": each event came before.
KINDS = ("api", "alertmanager", "github", "github again")
START_SECONDS_MAX = 20.0

CONFIG = """
[sources.api]
project = "bench"
channel = "api"
agent = "noop"
authenticate = "none"

[sources.alertmanager]
project = "bench"
channel = "alertmanager"
agent = "noop"
authenticate = "none"

[sources.github]
project = "bench"
channel = "github"
agent = "noop"
secrets = ["env:BENCH_SECRET"]
"""

ROUTE = Contestant(
    name="route",
    command=(str(VENV / "bin" / "python"), "-P", str(HERE / "peers" / "route.py")),
    backlog=0,
    unfinished="",
)


def ingest(server: Server, who: Contestant, kind: str, *, seconds: float) -> dict[str, float]:
    """Requests per second of *kind*, and their latencies in ms."""
    name = database(server, who)
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "semel.toml")
        config.write_text(CONFIG)
        serving = Contestant(
            name=who.name,
            command=who.command,
            backlog=0,
            unfinished="",
            worker=(OURS.worker[0], "serve")
            if who is OURS
            else (*who.command, "serve", str(port)),
            env={
                **who.env,
                "SEMEL_PORT": str(port),
                "SEMEL_CONFIG": str(config),
                "BENCH_SECRET": SECRET.decode(),
            },
        )
        log = Path(folder, "log")
        process = serving.start(server.url(name), log)
        try:
            _await(port, log)
            server.settle()
            source = kind.removesuffix(" again")
            path = f"in/bench/{source}" if who is OURS else f"in/{source}"
            url = f"http://127.0.0.1:{port}/{path}"
            _load(url, kind, 1.0)  # connections are opened, statements prepared
            figures = _load(url, kind, seconds)
        finally:
            stop(process)
    server.drop(name)
    return figures


def _load(url: str, kind: str, seconds: float) -> dict[str, float]:
    command = [sys.executable, str(HERE / "load.py"), url, kind, str(CONNECTIONS), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    answer = json.loads(done.stdout)
    statuses = answer.pop("statuses")
    if not set(statuses) <= ({"200", "201"} if kind.endswith(" again") else {"201"}):
        raise RuntimeError(f"{url}: {kind} was answered {statuses}")
    return dict(answer)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"nobody listens on {port}:\n{log.read_text()[-2000:]}")
