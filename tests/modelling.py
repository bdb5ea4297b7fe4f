"""How much of a model's state space a test run walks, and what the models share.

HYPOTHESIS_PROFILE: `dev` (the default) and `ci` walk the same schedules each time; `nightly` walks
a thousand new ones.
"""

import os
from datetime import UTC, datetime
from typing import Any

from fix_world import Conn
from hypothesis import HealthCheck, settings

#: Earlier than any time of a model; stands for -infinity, which Python's clock does not know.
LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)

_EXAMPLES = {"dev": 30, "ci": 30, "nightly": 1000}
_STEPS = {"dev": 30, "ci": 30, "nightly": 60}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
#: Seconds that one machine may take.
TIMEOUT = 3600 if PROFILE == "nightly" else 60

_TABLES = (
    "run",
    "run_input",
    "run_history",
    "attempt",
    "step",
    "worker",
    "agent",
    "project",
    "dedupe",
    "delivery",
    "body",
    "fold",
    "event_link",
)


def walks(examples: float = 1.0) -> settings:
    """The settings of a machine that wants *examples* times the profile's schedules."""
    return settings(
        max_examples=int(_EXAMPLES[PROFILE] * examples),
        stateful_step_count=_STEPS[PROFILE],
        derandomize=PROFILE != "nightly",
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


def empty(conn: Conn) -> None:
    """Forget everything; far cheaper than a new database."""
    with conn.pipeline():
        for table in _TABLES:
            conn.execute(f"delete from semel.{table}")  # type: ignore[arg-type]


def rows(conn: Conn, sql: Any, *args: Any) -> list[dict[str, Any]]:
    """What *sql* answers, each row by its columns' names."""
    cursor = conn.execute(sql, args)
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor]
