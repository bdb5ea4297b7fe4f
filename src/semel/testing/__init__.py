"""
Testing: run your agents on a real database, with a clock in your hands.

    # conftest.py
    pytest_plugins = ["semel.testing"]

    # test_oncall.py
    async def test_it_waits(semel_world):
        async with semel_world(app) as world: ...

For your tests, and not for production. Nothing is imitated but time, the worker's process and
the sending of notifications: the SQL and the handlers' runtime are those of a worker.

PYTEST_DONT_REWRITE: nothing here asserts.
"""

from semel.testing.clock import Clock
from semel.testing.fixtures import (
    Worlds,
    pytest_configure,
    semel_dsn,
    semel_server,
    semel_world,
)
from semel.testing.letter import Letter
from semel.testing.points import POINTS
from semel.testing.world import World

__all__ = [
    "POINTS",
    "Clock",
    "Letter",
    "World",
    "Worlds",
    "pytest_configure",
    "semel_dsn",
    "semel_server",
    "semel_world",
]
