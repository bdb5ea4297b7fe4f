"""
Start a run from a program's own transaction.

Nothing of the run is seen before that transaction commits, and nothing remains if it rolls back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast, overload

from semel.core import runs
from semel.core.agents import agent_wake
from semel.db.execute import on
from semel.db.wake import Bell, outside_transaction
from semel.errors import KeyConflict
from semel.model import Started

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from datetime import timedelta

    import psycopg


class StartOptions(TypedDict, total=False):
    """What `start` takes beside the project, agent and input; documented there."""

    key: str | None
    priority: int
    max_attempts: int | None
    delay: timedelta | None
    deadline: timedelta | None
    unique: str | None


@overload
def start(
    conn: psycopg.Connection[Any],
    *,
    project: str,
    agent: str,
    input: Any = ...,
    **options: Unpack[StartOptions],
) -> Started: ...
@overload
def start(
    conn: psycopg.AsyncConnection[Any],
    *,
    project: str,
    agent: str,
    input: Any = ...,
    **options: Unpack[StartOptions],
) -> Awaitable[Started]: ...
@overload
def start(
    conn: Any, *, project: str, agent: str, input: Any = ..., **options: Unpack[StartOptions]
) -> Any: ...
def start(
    conn: Any,
    *,
    project: str,
    agent: str,
    input: Any = None,  # noqa: A002 - the contract's word
    **options: Unpack[StartOptions],
) -> Started | Awaitable[Started]:
    """
    Start a run of *agent* inside the transaction that *conn* is in.

    Args:
        conn: psycopg, asyncpg, SQLAlchemy or Django; `await` the answer where it is async.
        input: Any JSON; no NUL characters.
        key: At most 255 characters. The same key again, in this project, starts nothing and
            answers the first run; it shares its memory with `POST /v1/{project}/runs`.
        priority: 0 (last) to 9 (first).
        max_attempts: How often it may start; None is what its agent says.
        delay: Ready only after this.
        deadline: FAILED with E-RUN-004 when it has not finished by then.
        unique: At most one live run of *agent* for it; else the answer is `exists` and that run.

    Returns:
        The run's id, and whether it is new or a duplicate.

    Raises:
        KeyConflict: the key was used with another agent or input. The transaction is unharmed.
        BadRequest: the project, agent or priority is none; the transaction must be rolled back.
    """
    call = runs.run_start(project, agent, input, **options)
    answer = on(conn, call)
    if isinstance(answer, Started):
        return _told(conn, agent, answer)
    return _told_later(conn, agent, answer)


def wake(conn: Any, *agents: str) -> Awaitable[None] | None:
    """
    Tell idle workers that there is work for *agents*; without it they find it by themselves.

    Call it after the commit that started the runs. `start` does it where its connection is in
    autocommit.

    Args:
        conn: As for `start`; `await` the answer where it is async.
    """
    return on(conn, agent_wake(agents))


_BELL = Bell()


def _told(conn: Any, agent: str, started: Started) -> Started:
    if started.outcome == "conflict":
        raise KeyConflict("this key was used with another agent or input; nothing was started")
    if started.outcome == "new" and outside_transaction(conn) and _BELL.due([agent]):
        wake(conn, agent)
    return started


async def _told_later(conn: Any, agent: str, answer: Awaitable[Started]) -> Started:
    started = await answer
    if started.outcome == "conflict":
        raise KeyConflict("this key was used with another agent or input; nothing was started")
    if started.outcome == "new" and outside_transaction(conn) and _BELL.due([agent]):
        await cast("Awaitable[None]", wake(conn, agent))
    return started
