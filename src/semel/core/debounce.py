"""
Debounce: calls that come one soon after another become one run, with the last one's input.

One function here per function in sql/functions/debounce.sql: same name, same arguments. SQL
decides whether a call still reaches the run. Nothing here opens a connection or reads a clock.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.core.call import Call
from semel.core.runs import require_agent, require_priority, require_project, span
from semel.core.text import dump
from semel.errors import BadRequest
from semel.model import Started

if TYPE_CHECKING:
    from datetime import datetime

KEY_CHARS_MAX = 255


def run_debounce(
    project: str,
    agent: str,
    input: Any,  # noqa: A002 - the contract's word
    *,
    key: Any,
    quiet: timedelta,
    longest: timedelta | None = None,
    priority: int = 5,
    max_attempts: int | None = None,
    now: datetime | None = None,
) -> Call[Started]:
    """
    Start a run that waits for *quiet* without a call, or give *input* to the one that waits.

    Args:
        key: Calls of one (agent, key) collapse.
        quiet: How long after the last call the run becomes ready.
        longest: It becomes ready this long after the first call, however often it is called.

    Raises:
        BadRequest: an argument is none; seen here, so that the transaction is unharmed.

    Source: sql/functions/debounce.sql, run_debounce.
    """
    require_project(project)
    require_agent(agent)
    require_priority(priority, max_attempts)
    span("debounce", quiet)
    span("debounce_max", longest)
    if not (isinstance(key, str) and key.isprintable() and 0 < len(key) <= KEY_CHARS_MAX):
        raise BadRequest(f"debounce_key is a text of 1 to {KEY_CHARS_MAX} printable characters")
    if quiet <= timedelta(0):
        raise BadRequest("debounce is a time above 0")
    if longest is not None and longest < quiet:
        raise BadRequest("debounce_max is shorter than debounce: it could never be reached")
    try:
        text = dump(input)
    except (TypeError, ValueError, RecursionError) as bad:
        raise BadRequest(f"the input is no JSON: {bad}") from None
    return Call(
        "select run_id, outcome from semel.run_debounce(%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (project, agent, text, key, quiet, longest, priority, max_attempts, now),
        lambda rows: Started(run_id=rows[0][0], event_id=None, outcome=rows[0][1]),
    )


def debounce_expire(project: str, *, now: datetime | None = None) -> Call[int]:
    """
    Forget keys whose run is a day old and lives no longer; answers how many.

    Source: sql/functions/debounce.sql, debounce_expire.
    """
    return Call(
        "select semel.debounce_expire(%s, p_now => %s)",
        (project, now),
        lambda rows: int(rows[0][0]),
    )
