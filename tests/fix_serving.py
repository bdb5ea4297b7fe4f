"""`semel serve` as a process of its own, of sources that a test writes down."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SERVE = Path(__file__).parent / "programs" / "serve.py"


class Serving:
    """A server process, and where it listens."""

    def __init__(self, home: Path, toml: str, **environ: str) -> None:
        home.mkdir(exist_ok=True)
        (home / "semel.toml").write_text(toml)
        clean = {
            key: value for key, value in os.environ.items() if not key.startswith("SEMEL_")
        }
        self.popen = subprocess.Popen(
            [sys.executable, str(SERVE)],
            cwd=home,
            env={**clean, "SEMEL_PORT": "0", "SEMEL_TESTING": "1", **environ},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.port = int(self.wait_for("server.started")["port"])
        self.url = f"http://127.0.0.1:{self.port}"

    def wait_for(self, event: str) -> dict[str, Any]:
        """Read its log up to *event*."""
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            told = json.loads(line) if line.startswith("{") else {}
            if told.get("event") == event:
                return dict(told)
        raise AssertionError(f"the server ended before {event}")

    def is_killed(self) -> bool:
        """Whether it ends by the SIGKILL that it sends itself."""
        return self.popen.wait(20) == -signal.SIGKILL

    def kill(self) -> None:
        """End it as a crash would."""
        self.popen.kill()
        self.popen.wait(20)
        if self.popen.stderr is not None:
            self.popen.stderr.close()


Serve = Callable[..., Serving]


@pytest.fixture
def serving(tmp_path: Path, dsn: str) -> Iterator[Serve]:
    """Starts servers on this test's database."""
    started: list[Serving] = []

    def start(toml: str, **environ: str) -> Serving:
        home = tmp_path / f"serve-{len(started)}"
        started.append(Serving(home, toml, **{"SEMEL_DSN": dsn, **environ}))
        return started[-1]

    yield start
    for each in started:
        each.kill()
