"""The relay to Redis, with a real one: each entry once in the stream, whatever dies."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fix_world import Conn, one, until
from journals import commit, join, kept, lease, number, say
from semel.journal import Consumer, append

redis = pytest.importorskip("redis", reason="no redis-py: pip install redis")
BINARY = shutil.which("redis-server")
EXAMPLE = Path(__file__).parents[2] / "examples" / "journal_to_redis.py"
STREAM = "journal:p"

pytestmark = [
    pytest.mark.skipif(
        BINARY is None,
        reason="no redis-server: apt-get install redis-server, or brew install redis",
    ),
    pytest.mark.crash,
]


class RedisServer:
    """A Redis of this test's own, on a Unix socket, that keeps nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = folder / "s"
        self.url = f"unix://{self._socket}"
        self._process: subprocess.Popen[bytes] | None = None
        self.client: Any = redis.Redis.from_url(self.url)

    def start(self) -> None:
        settings = ["--port", "0", "--unixsocket", str(self._socket), "--save", ""]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(BINARY), *settings, "--appendonly", "no", "--dir", str(self._folder)],
                stdout=log,
                stderr=log,
            )
        until(self._answers)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def messages(self) -> list[tuple[int, Any]]:
        """Seq and payload of each, in the stream's order."""
        return [
            (int(at.partition(b"-")[0]), int(told[b"payload"]))
            for at, told in self.client.xrange(STREAM)
        ]

    def _answers(self) -> bool:
        with suppress(redis.exceptions.ConnectionError):
            return bool(self.client.ping())
        return False


@pytest.fixture
def store() -> Iterator[RedisServer]:
    folder = Path(tempfile.mkdtemp(prefix="semel-redis-"))
    there = RedisServer(folder)
    try:
        there.start()
        yield there
    finally:
        there.kill()
        there.client.close()
        shutil.rmtree(folder)


class Relays:
    """Processes of the example."""

    def __init__(self, dsn: str, store: RedisServer, log: Path) -> None:
        self._env = {k: v for k, v in os.environ.items() if not k.startswith("SEMEL_")} | {
            "SEMEL_DSN": dsn,
            "REDIS_URL": store.url,
        }
        self._log = log
        self._all: list[subprocess.Popen[bytes]] = []

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(EXAMPLE), "p"],
                env=self._env | more,
                stdout=log,
                stderr=log,
            )
        self._all.append(process)
        return process

    def said(self) -> str:
        return self._log.read_text()

    def end(self) -> None:
        for process in self._all:
            process.kill()
            process.wait()


@pytest.fixture
def relays(dsn: str, store: RedisServer, tmp_path: Path) -> Iterator[Relays]:
    running = Relays(dsn, store, tmp_path / "relays.log")
    yield running
    running.end()


def test_entries_are_in_the_stream_once_and_in_their_order(
    conn: Conn, store: RedisServer, relays: Relays
) -> None:
    for _ in range(2):
        relays.start()
    for n in range(300):
        append(conn, project="p", topic="t", payload=n)
    until(lambda: len(store.messages()) == 300)

    assert list(enumerate(range(300), 1)) == store.messages()
    assert kept(conn) == [payload for _, payload in store.messages()]


@pytest.mark.parametrize("stop", ["journal.commit.before", "journal.commit.after"])
def test_a_killed_relay_neither_skips_nor_repeats(
    conn: Conn, store: RedisServer, relays: Relays, stop: str
) -> None:
    for n in range(20):
        say(conn, n, at=None)
    killed = relays.start(SEMEL_TESTING="1", SEMEL_STOP_AT=stop)
    assert -signal.SIGKILL == killed.wait(60)
    assert 20 == len(store.messages())
    conn.execute("update semel.journal_cursor set lease_until = now()")  # its minute is over
    say(conn, 20, at=None)
    relays.start()
    until(lambda: one(conn, "select seq = 21 from semel.consumers"))

    assert list(enumerate(range(21), 1)) == store.messages()


def test_a_redis_that_lost_its_messages_is_given_them_again(
    conn: Conn, store: RedisServer, relays: Relays
) -> None:
    for n in range(5):
        say(conn, n, at=None)
    relays.start()
    until(lambda: one(conn, "select count(*) from semel.consumers where seq = 5"))
    relays.end()
    store.kill()
    store.start()
    assert [] == store.messages()

    relays.start()
    until(lambda: len(store.messages()) == 5)
    assert list(enumerate(range(5), 1)) == store.messages()
    assert f"{STREAM} has lost messages: again from 0" in relays.said()


def test_another_entry_under_a_seq_that_redis_has_is_no_repetition(
    dsn: str, conn: Conn, store: RedisServer
) -> None:
    """A failover of PostgreSQL gave the seq again: the relay must not take it for relayed."""
    join(conn, "redis")
    say(conn, 1, 2, at=None)
    number(conn)
    store.client.xadd(STREAM, {"id": "another", "payload": 0}, id="1-0")
    relaying = example()

    async def story() -> None:
        async with (
            redis.asyncio.Redis.from_url(store.url) as client,
            Consumer(dsn, project="p", name="redis") as consumer,
        ):
            with pytest.raises(RuntimeError, match="another entry 1-0"):
                await relaying.relay(consumer, client, STREAM)

    asyncio.run(story())
    assert [(1, 0)] == store.messages()


def test_a_relay_that_was_overtaken_goes_on(dsn: str, conn: Conn, store: RedisServer) -> None:
    say(conn, 1, 2, at=None)
    relaying = example()

    async def story() -> None:
        async with (
            redis.asyncio.Redis.from_url(store.url) as client,
            Consumer(dsn, project="p", name="redis", limit=1) as consumer,
        ):

            def overtake() -> None:
                conn.execute("update semel.journal_cursor set lease_until = now()")
                assert 1 == len(lease(conn, name="redis", at=10**9, limit=1).entries)
                assert "won" == commit(conn, 1, name="redis")

            put = relaying.put
            overtaken: list[int] = []

            async def slowly(*told: Any) -> bool:
                if not overtaken:
                    overtaken.append(1)
                    overtake()
                return bool(await put(*told))

            relaying.put = slowly
            task = asyncio.create_task(relaying.relay(consumer, client, STREAM))
            await asyncio.to_thread(until, lambda: len(store.messages()) == 2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())
    assert [(1, 1), (2, 2)] == store.messages()


def example() -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location("journal_to_redis", EXAMPLE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
