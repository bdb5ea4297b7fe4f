"""One throwaway PostgreSQL for the whole run, shared by its xdist workers.

It is the embedded server that users get, with durability off: a test that needs it on starts its
own. SEMEL_PG_BIN chooses other binaries, so the suite runs on each supported version. Its home is in
memory where there is room; SEMEL_TEST_HOME is another one.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from semel.db import embedded

FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "300",
}

#: A tmpfs: what is lost with the machine is nothing here, since tests kill processes only.
MEMORY = Path("/dev/shm")
#: Free there, or the home is on disk.
ROOM_BYTES = 2 << 30


def pytest_configure(config: pytest.Config) -> None:
    """The controller names the server's home; xdist workers inherit it."""
    if not hasattr(config, "workerinput") and "SEMEL_TEST_HOME" not in os.environ:
        home = tempfile.mkdtemp(prefix="semel-test-", dir=in_memory())
        Path(home).chmod(0o755)  # ours: the server's account must reach it when we are root
        os.environ["SEMEL_TEST_HOME"] = home
        config.add_cleanup(lambda: _remove(home))


def in_memory(memory: Path = MEMORY) -> Path | None:
    """*memory*, where a server's data can be there; else None, the usual place."""
    if not memory.is_dir() or not os.access(memory, os.W_OK | os.X_OK):
        return None
    return memory if shutil.disk_usage(memory).free >= ROOM_BYTES else None


def _remove(home: str) -> None:
    os.environ.pop("SEMEL_TEST_HOME", None)
    embedded.stop(Path(home) / "pg")
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def server() -> Iterator[embedded.Server]:
    """The running server; held until the session ends."""
    with embedded.use(Path(os.environ["SEMEL_TEST_HOME"]) / "pg", settings=FAST) as running:
        yield running
