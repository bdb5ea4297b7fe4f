"""How much of a model's state space a test run walks, and what the models share.

HYPOTHESIS_PROFILE: `dev` (the default) and `ci` walk the same schedules each time, `mutants` too,
but is content with any schedule that fails; `nightly` walks a thousand new ones.
"""

import os
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, Phase, settings

from fix_world import Conn

#: Earlier than any time of a model; stands for -infinity, which Python's clock does not know.
LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
NIGHTLY = PROFILE == "nightly"
#: Seconds that one machine may take, most of them to shrink a schedule that failed.
TIMEOUT = 3600 if NIGHTLY else 240

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
    phases = {Phase.generate} | ({Phase.shrink} if PROFILE != "mutants" else set())
    return settings(
        max_examples=int((1000 if NIGHTLY else 30) * examples),
        stateful_step_count=60 if NIGHTLY else 30,
        derandomize=not NIGHTLY,
        phases=phases,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


def empty(conn: Conn) -> None:
    """Forget everything; far cheaper than a new database."""
    with conn.pipeline():
        for table in _TABLES:
            conn.execute(f"delete from semel.{table}")


def rows(conn: Conn, sql: Any, *args: Any) -> list[dict[str, Any]]:
    """What *sql* answers, each row by its columns' names."""
    cursor = conn.execute(sql, args)
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor]
