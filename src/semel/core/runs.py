"""
Runs: start one, and end an attempt at it.

One function here per function in sql/functions/runs.sql: same name, same arguments. The SQL
decides who won; this module gives the answer a type. Nothing here opens a connection or reads a
clock. Claims, and what an operator does, have files of their own, as in SQL.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.core.call import Call
from semel.core.inbox import MEMORY
from semel.core.text import dump
from semel.errors import BadKey, BadRequest
from semel.model import Ended, Started

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from semel.model import Claim

NO_DELAY = timedelta(0)

_PROJECT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_AGENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
KEY_CHARS_MAX = 255
#: Nothing is delayed, or waited for, longer: PostgreSQL's dates go further than Python's.
SPAN_MAX = timedelta(days=36525)
UNIQUE_CHARS_MAX = 255


def run_start(
    project: str,
    agent: str,
    input: Any,  # noqa: A002 - the contract's word
    *,
    key: str | None = None,
    source: str = "api",
    priority: int = 5,
    max_attempts: int | None = None,
    delay: timedelta | None = None,
    deadline: timedelta | None = None,
    unique: str | None = None,
    memory: timedelta = MEMORY,
    concurrency_key: str | None = None,
    now: datetime | None = None,
) -> Call[Started]:
    """
    Start a run inside the caller's transaction; nothing is seen of it if that rolls back.

    Args:
        input: Any JSON.
        key: With a key, at most one run for (project, source, key) while it is remembered. Agent
            and input are compared with the first start's, as JSON: another order of members is the
            same input, 1 and 1.0 are two. Nothing else is compared: another priority, delay,
            deadline or max_attempts under the same key changes nothing and is a duplicate.
        priority: 0 (last) to 9 (first).
        max_attempts: How often it may start; None is what its agent says.
        delay: Ready only after this, from now.
        deadline: FAILED with E-RUN-004 when it has not finished by then, from now.
        unique: At most one live run of *agent* for it; the answer is `exists` and that run, and
            the key is not remembered.
        concurrency_key: Of its runs no more are leased at once than the agent's per_limit, by
            default one. It is not compared under a *key* either.

    Raises:
        BadRequest, BadKey: an argument is none; seen here, so that the transaction is unharmed.

    Source: sql/functions/runs.sql, run_start.
    """
    require_project(project)
    require_agent(agent)
    require_priority(priority, max_attempts)
    span("delay", delay)
    span("deadline", deadline)
    if key is not None and not (key.isprintable() and 0 < len(key) <= KEY_CHARS_MAX):
        raise BadKey(f"a key is 1 to {KEY_CHARS_MAX} printable characters")
    if unique is not None and not (
        unique.isprintable() and 0 < len(unique) <= UNIQUE_CHARS_MAX
    ):
        raise BadRequest(f"unique is a text of 1 to {UNIQUE_CHARS_MAX} printable characters")
    if concurrency_key is not None and not (
        concurrency_key.isprintable() and 0 < len(concurrency_key) <= UNIQUE_CHARS_MAX
    ):
        raise BadRequest(
            f"concurrency_key is a text of 1 to {UNIQUE_CHARS_MAX} printable characters"
        )
    try:
        text = dump(input)
    except (TypeError, ValueError, RecursionError) as bad:
        raise BadRequest(f"the input is no JSON: {bad}") from None
    return Call(
        "select run_id, event_id, outcome"
        " from semel.run_start(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            project,
            agent,
            text,
            key,
            source,
            priority,
            max_attempts,
            delay,
            deadline,
            unique,
            memory,
            now,
            concurrency_key,
        ),
        lambda rows: Started(run_id=rows[0][0], event_id=rows[0][1], outcome=rows[0][2]),
    )


def require_project(project: str) -> None:
    """
    Check a project's name.

    Raises:
        BadRequest: it is none.
    """
    if not _PROJECT.fullmatch(project):
        raise BadRequest(f"{project[:80]!r} is no project: 1 to 64 of a-z, 0-9, _ and -")


def require_agent(agent: str) -> None:
    """
    Check an agent's name.

    Raises:
        BadRequest: it is none.
    """
    if not _AGENT.fullmatch(agent):
        raise BadRequest(f"{agent[:150]!r} is no agent: 1 to 128 of A-Z, a-z, 0-9, _, . and -")


def require_priority(priority: int, max_attempts: int | None) -> None:
    """
    Check where a run waits, and how often it may start.

    Raises:
        BadRequest: one of them is none.
    """
    if priority not in range(10):
        raise BadRequest(f"priority {priority}: write 0 (last) to 9 (first)")
    if max_attempts is not None and max_attempts < 1:
        raise BadRequest(f"max_attempts {max_attempts}: write 1 or more")


def span(what: str, value: Any) -> None:
    """
    Check how long a program that nobody type-checks will wait.

    Raises:
        BadRequest: it is no timedelta, or above a hundred years.
    """
    if value is not None and not (isinstance(value, timedelta) and abs(value) <= SPAN_MAX):
        raise BadRequest(f"{what}={value!r}: write a timedelta of at most {SPAN_MAX.days} days")


def run_complete(
    project: str,
    worker: str,
    ended: Sequence[tuple[UUID, int, str]],
    *,
    now: datetime | None = None,
) -> Call[list[Ended]]:
    """
    Finish runs that *worker* holds, as (run, fence, result as JSON text).

    Source: sql/functions/runs.sql, run_complete.
    """
    return Call(
        "select run_id, outcome from semel.run_complete("
        "%s, %s, %b::uuid[], %b::bigint[], %b::text[], %s)",
        (
            project,
            worker,
            [run for run, _, _ in ended],
            [fence for _, fence, _ in ended],
            [result for _, _, result in ended],
            now,
        ),
        _ended,
    )


def run_fail(
    claim: Claim,
    code: str,
    reason: str,
    *,
    delay: timedelta = NO_DELAY,
    retryable: bool = True,
    now: datetime | None = None,
) -> Call[list[Ended]]:
    """
    End an attempt that went wrong; the run is tried again after *delay* while attempts are left.

    Source: sql/functions/runs.sql, run_fail.
    """
    return Call(
        "select run_id, outcome from semel.run_fail(%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            claim.project,
            claim.worker,
            claim.run_id,
            claim.fence,
            code,
            reason,
            delay,
            retryable,
            now,
        ),
        _ended,
    )


def run_release(
    project: str,
    worker: str,
    held: Sequence[tuple[UUID, int]],
    *,
    now: datetime | None = None,
) -> Call[list[Ended]]:
    """
    Give runs back unharmed, as (run, fence): the next claim is no new attempt.

    Source: sql/functions/runs.sql, run_release.
    """
    return Call(
        "select run_id, outcome from semel.run_release(%s, %s, %s::uuid[], %s::bigint[], %s)",
        (project, worker, [run for run, _ in held], [fence for _, fence in held], now),
        _ended,
    )


def _ended(rows: Sequence[Any]) -> list[Ended]:
    return [Ended(run_id=run_id, outcome=outcome) for run_id, outcome in rows]
