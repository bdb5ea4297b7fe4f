"""
Fixtures: what pytest hands to a test.

All processes of one run share one server: pytest-xdist's workers inherit its home from the
process that started them.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from semel.db import embedded
from semel.testing import database
from semel.testing.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from semel.runtime.app import App

_HOME = "SEMEL_TEST_HOME"


class Worlds(Protocol):
    """Makes worlds on a database; see World for what else it takes."""

    def __call__(self, app: App, **options: Any) -> World:
        """A world of *app*."""


def pytest_configure(config: pytest.Config) -> None:
    """Name the home of the server, unless somebody has."""
    if _HOME not in os.environ:
        home = Path(tempfile.mkdtemp(prefix="semel-test-"))
        home.chmod(0o755)  # ours: the server's account must reach it when we are root
        os.environ[_HOME] = str(home)
        config.add_cleanup(functools.partial(_remove, home))


def _remove(home: Path) -> None:
    os.environ.pop(_HOME, None)
    embedded.stop(home / "pg")
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def semel_server() -> Iterator[embedded.Server]:
    """An embedded PostgreSQL, for the whole run."""
    with database.server(Path(os.environ[_HOME]) / "pg") as running:
        yield running


@pytest.fixture
def semel_dsn(semel_server: embedded.Server) -> Iterator[str]:
    """The conninfo of a migrated database of this test's own."""
    with database.fresh(semel_server) as dsn:
        yield dsn


@pytest.fixture
def semel_world(semel_dsn: str) -> Worlds:
    """
    Makes worlds on a database of this test's own.

    They are entered: `async with semel_world(app) as world`.
    """

    def world(app: App, **options: Any) -> World:
        return World(app, semel_dsn, **options)

    return world
