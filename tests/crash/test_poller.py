"""A poller that is killed anywhere makes of each update one event and one run."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bot_api import TOKEN, BotApi, bot_api
from fix_world import Conn, one, until

SERVE = Path(__file__).parent.parent / "programs" / "serve.py"
CONFIG = """
[sources.bot]
channel = "telegram-poll"
agent = "chat"
secrets = ["env:BOT_TOKEN"]
poll = {{ api = "{url}", lease = "3s" }}
"""
MESSAGE: dict[str, Any] = {"message": {"chat": {"id": 5}, "text": "hi"}}

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def api() -> Iterator[BotApi]:
    with bot_api() as running:
        yield running


@pytest.fixture
def start(dsn: str, api: BotApi, tmp_path: Path) -> Iterator[Start]:
    """Starts `semel serve` with the source; its log is beside."""
    (tmp_path / "semel.toml").write_text(CONFIG.format(url=api.url))
    started: list[subprocess.Popen[bytes]] = []

    def starting(**environ: str) -> subprocess.Popen[bytes]:
        own = {"SEMEL_DSN": dsn, "SEMEL_PORT": "0", "SEMEL_TESTING": "1", "BOT_TOKEN": TOKEN}
        with (tmp_path / f"{len(started)}.log").open("wb") as log:
            started.append(
                subprocess.Popen(
                    [sys.executable, str(SERVE)],
                    cwd=tmp_path,
                    env={**os.environ, **own, **environ},
                    stderr=log,
                )
            )
        return started[-1]

    yield starting
    for process in started:
        process.kill()
        process.wait(20)


def counted(conn: Conn) -> tuple[int, int]:
    return (
        one(conn, "select count(*) from semel.events"),
        one(conn, "select count(*) from semel.runs"),
    )


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.crash
@pytest.mark.parametrize(
    ("stop", "kept"),
    [
        ("poller.lease.after", 0),
        ("poller.batch.before", 0),
        ("poller.batch.after", 3),
        ("poller.batch.after#2", 4),
    ],
)
def test_a_kill_at_any_place_leaves_one_event_and_one_run_of_each_update(
    start: Start, conn: Conn, api: BotApi, stop: str, kept: int
) -> None:
    ids = api.push(*[MESSAGE] * 3)
    dying = start(SEMEL_STOP_AT=stop)
    if stop.endswith("#2"):
        until(lambda: counted(conn)[0] == 3)
        ids += api.push(MESSAGE)
    assert dying.wait(30) == -signal.SIGKILL
    assert counted(conn) == (kept, kept)
    # What was not committed was never confirmed.
    assert set(ids[kept:]) <= set(api.pending)
    conn.execute("update semel.poll set lease_until = clock_timestamp()")
    living = start()
    until(lambda: counted(conn)[0] == len(ids) and api.pending == [])
    assert counted(conn) == (len(ids), len(ids))
    assert one(conn, "select count(distinct run_id) from semel.events") == len(ids)
    living.terminate()
    assert living.wait(20) == 0
    assert one(conn, "select state from semel.polls") == "stopped"


@pytest.mark.crash
def test_a_twin_takes_over_when_the_lease_of_a_killed_poller_ends(
    start: Start, conn: Conn, api: BotApi, tmp_path: Path
) -> None:
    first = start()
    until(lambda: one(conn, "select count(*) from semel.polls where live") and api.open)
    second = start()
    until(lambda: "poller.stood_by" in (tmp_path / "1.log").read_text())
    [ids] = [api.push(MESSAGE)]
    until(lambda: counted(conn) == (1, 1))
    first.kill()
    first.wait(20)
    ids += api.push(MESSAGE)
    until(lambda: counted(conn) == (2, 2) and api.pending == [])
    assert (api.open_max, api.conflicts) == (1, 0)
    second.terminate()
    assert second.wait(20) == 0
    told = [line["event"] for line in lines(tmp_path / "1.log")]
    assert (
        told.index("poller.stood_by")
        < told.index("poller.started")
        < told.index("poller.stopped")
    )


@pytest.mark.crash
def test_a_frozen_poller_writes_nothing_over_its_successor(
    start: Start, conn: Conn, api: BotApi, tmp_path: Path
) -> None:
    first = start()
    until(lambda: one(conn, "select count(*) from semel.polls where live") and api.open)
    first.send_signal(signal.SIGSTOP)
    start()
    until(lambda: one(conn, "select fence from semel.polls") == 2, within=40)
    ids = api.push(MESSAGE, MESSAGE)
    until(lambda: counted(conn) == (2, 2))
    first.send_signal(signal.SIGCONT)
    until(lambda: "poller.lost" in (tmp_path / "0.log").read_text())
    ids += api.push(MESSAGE)
    until(lambda: counted(conn) == (3, 3) and api.pending == [])
    assert one(conn, "select source from semel.polls") == "bot"
