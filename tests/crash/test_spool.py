"""An ingress that is killed anywhere between an arrival and the end of its drain: one event, one run."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from fix_world import PROGRAMS, until
from semel.db.pool import connect
from spooling import KEY, away
from web import count

pytestmark = pytest.mark.crash

CONFIG = """
[spool]
path = "spool"
keys = ["env:SPOOL_KEY"]
wait = "100ms"

[sources.bot]
channel = "telegram"
agent = "chat"
authenticate = "none"
spool = true

[sources.hook]
channel = "api"
agent = "chat"
authenticate = "none"
spool = true
"""
Start = Callable[..., "Ingress"]


class Ingress:
    """A real one, in its folder."""

    def __init__(self, home: Path, dsn: str, **environ: str) -> None:
        (home / "semel.toml").write_text(CONFIG)
        told = {"SEMEL_PORT": "0", "SEMEL_TESTING": "1", "SEMEL_DSN": dsn, "SPOOL_KEY": KEY}
        self.popen = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "serve.py")],
            cwd=home,
            env={**os.environ, **told, **environ},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.popen.stderr is not None
        started: dict[str, Any] = {}
        for line in self.popen.stderr:
            started = json.loads(line)
            if started["event"] == "server.started":
                break
        self.url = f"http://127.0.0.1:{started['port']}/in/default"

    def post(self, source: str) -> httpx.Response:
        return httpx.post(f"{self.url}/{source}", json={"update_id": 1})

    def died(self) -> bool:
        return self.popen.wait(30) == -9


@pytest.fixture
def start(tmp_path: Path, dsn: str) -> Iterator[Start]:
    started: list[Ingress] = []

    def starting(**environ: str) -> Ingress:
        started.append(Ingress(tmp_path, dsn, **environ))
        return started[-1]

    yield starting
    for each in started:
        each.popen.kill()
        each.popen.wait(20)
        assert each.popen.stderr is not None
        each.popen.stderr.close()


def nothing_waits(home: Path) -> bool:
    return not list(home.rglob("*.spool"))


def one_of_each(conn: psycopg.Connection[Any]) -> tuple[int, int]:
    return count(conn, "events"), count(conn, "runs")


@pytest.mark.parametrize("stop", ["spool.sync.before", "spool.sync.after"])
def test_killed_while_it_spools_makes_one_event_whether_or_not_it_is_sent_again(
    start: Start, dsn: str, tmp_path: Path, stop: str
) -> None:
    with away(dsn):
        dying = start(SEMEL_STOP_AT=stop)
        with pytest.raises(httpx.HTTPError):
            dying.post("bot")
        assert dying.died()
        assert start().post("bot").status_code == 202
    until(lambda: nothing_waits(tmp_path))
    with connect(dsn) as conn:
        assert one_of_each(conn) == (1, 1)


@pytest.mark.parametrize(
    "stop",
    ["spool.drain.before", "spool.drain.after", "spool.remove.before", "spool.remove.after"],
)
def test_killed_while_it_drains_makes_one_event_also_of_what_nobody_named(
    start: Start, dsn: str, tmp_path: Path, stop: str
) -> None:
    with away(dsn):
        first = start()
        assert first.post("hook").status_code == 202
        first.popen.kill()
        first.popen.wait(20)
    dying = start(SEMEL_STOP_AT=stop)
    assert dying.died()
    with connect(dsn) as conn:
        assert count(conn, "events") == (0 if stop == "spool.drain.before" else 1)
    start()
    until(lambda: nothing_waits(tmp_path))
    with connect(dsn) as conn:
        assert one_of_each(conn) == (1, 1)
        assert count(conn, "deliveries") == 1
