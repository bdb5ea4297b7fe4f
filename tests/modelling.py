"""How much of a model's state space a test run walks, and what the models share.

HYPOTHESIS_PROFILE: `dev` (the default) and `ci` walk the same schedules each time, `mutants` too,
but is content with any schedule that fails; `soak` walks fourteen thousand new ones over all models, in
parts that processes share, `nightly` even more and longer ones. What is new each time follows from
--randomly-seed, which pytest prints.
"""

import os
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from fix_world import Conn

#: Earlier than any time of a model; stands for -infinity, which Python's clock does not know.
LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
NIGHTLY, SOAK = PROFILE == "nightly", PROFILE == "soak"
#: Schedules of one part, and the steps of a schedule.
SCHEDULES = {"nightly": 6000, "soak": 500}.get(PROFILE, 180)
STEPS = 60 if NIGHTLY else 30
#: Seconds that one part may take, most of them to shrink a schedule that failed.
TIMEOUT = 3600 if NIGHTLY or SOAK else 240

#: Told under a name and added up at the end of a soak.
Tally = Callable[[str, int], None]

_TABLES = (
    "run",
    "run_input",
    "run_history",
    "attempt",
    "step",
    "wait",
    "signal",
    "approval",
    "approval_token",
    "approval_vote",
    "tool",
    "tool_token",
    "worker",
    "agent",
    "project",
    "dedupe",
    "content",
    "delivery",
    "body",
    "fold",
    "event_link",
    "journal_pending",
    "journal_entry",
    "journal_project",
    "journal_cursor",
    "operation",
    "operation_holder",
)


def parts(schedules: int) -> range:
    """The parts of a model that walks so many *schedules* in a soak."""
    return range(schedules // SCHEDULES if SOAK else 1)


def walk(machine: Callable[[], RuleBasedStateMachine], *, least: int = 0) -> int:
    """Let *machine* walk one part, of *least* schedules; answers how many that was."""
    walked = 0

    def counted() -> RuleBasedStateMachine:
        nonlocal walked
        walked += 1
        return machine()

    if SOAK or NIGHTLY:
        seed(random.getrandbits(64))(counted)
    phases = {Phase.generate} | ({Phase.shrink} if PROFILE != "mutants" else set())
    how = settings(
        max_examples=max(SCHEDULES, least),
        stateful_step_count=STEPS,
        derandomize=not (SOAK or NIGHTLY),
        phases=phases,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run_state_machine_as_test(counted, settings=how)  # type: ignore[arg-type]  # any factory will do
    return walked


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
