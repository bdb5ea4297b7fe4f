"""One throwaway PostgreSQL for the whole run, shared by its xdist workers.

It is the embedded server that users get, with durability off: a test that needs it on starts its
own. SEMEL_PG_BIN chooses other binaries, so the suite runs on each supported version.
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


def pytest_configure(config: pytest.Config) -> None:
    """The controller names the server's home; xdist workers inherit it."""
    if not hasattr(config, "workerinput") and "SEMEL_TEST_HOME" not in os.environ:
        home = tempfile.mkdtemp(prefix="semel-test-")
        Path(home).chmod(0o755)  # ours: the server's account must reach it when we are root
        os.environ["SEMEL_TEST_HOME"] = home
        config.add_cleanup(lambda: _remove(home))


def _remove(home: str) -> None:
    os.environ.pop("SEMEL_TEST_HOME", None)
    embedded.stop(Path(home) / "pg")
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def server() -> Iterator[embedded.Server]:
    """The running server; held until the session ends."""
    with embedded.use(Path(os.environ["SEMEL_TEST_HOME"]) / "pg", settings=FAST) as running:
        yield running
