"""
Start a run from a program's own transaction.

Nothing of the run is seen before that transaction commits, and nothing remains if it rolls back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast, overload

from semel.config import values
from semel.core import runs
from semel.core.agents import agent_wake
from semel.core.debounce import run_debounce
from semel.db.execute import on
from semel.db.wake import Bell, outside_transaction
from semel.errors import BadConfig, BadRequest, KeyConflict
from semel.model import Started

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from datetime import timedelta

    import psycopg

    from semel.core.call import Call


class StartOptions(TypedDict, total=False):
    """What `start` takes beside the project, agent and input; documented there."""

    key: str | None
    priority: int
    max_attempts: int | None
    delay: timedelta | None
    deadline: timedelta | None
    unique: str | None
    concurrency_key: str | None


class StartMore(StartOptions, total=False):
    """And what only `start` itself takes."""

    debounce: timedelta | str | None
    debounce_key: str | None
    debounce_max: timedelta | str | None


@overload
def start(
    conn: psycopg.Connection[Any],
    *,
    project: str,
    agent: str,
    input: Any = ...,
    **options: Unpack[StartMore],
) -> Started: ...
@overload
def start(
    conn: psycopg.AsyncConnection[Any],
    *,
    project: str,
    agent: str,
    input: Any = ...,
    **options: Unpack[StartMore],
) -> Awaitable[Started]: ...
@overload
def start(
    conn: Any, *, project: str, agent: str, input: Any = ..., **options: Unpack[StartMore]
) -> Any: ...
def start(
    conn: Any,
    *,
    project: str,
    agent: str,
    input: Any = None,  # noqa: A002 - the contract's word
    **options: Unpack[StartMore],
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
        concurrency_key: Of its runs no more are executed at once than the agent's `per_limit`, by
            default one; the others wait for their turn.
        debounce: Calls of one *debounce_key* become one run: it waits until there was none for
            so long, such as "30s", and gets the last call's input. A call that comes before it is
            claimed is answered `replaced` and that run; one that comes later starts another.
        debounce_key: What the calls have in common.
        debounce_max: It waits no longer than this, from the first call on.

    Returns:
        The run's id, and whether it is new, a duplicate, or a run that was waiting.

    Raises:
        KeyConflict: the key was used with another agent or input. The transaction is unharmed.
        BadRequest: the project, agent or priority is none; the transaction must be rolled back.
    """
    call = start_call(project, agent, input, options)
    answer = on(conn, call)
    if isinstance(answer, Started):
        return _told(conn, agent, answer)
    return _told_later(conn, agent, answer)


def start_call(project: str, agent: str, value: Any, options: StartMore) -> Call[Started]:
    """
    What `start` sends.

    Raises:
        BadRequest: an argument is none, or two do not go together.
    """
    told: dict[str, Any] = dict(options)
    quiet, key = told.pop("debounce", None), told.pop("debounce_key", None)
    longest = told.pop("debounce_max", None)
    if quiet is None and key is None and longest is None:
        return runs.run_start(project, agent, value, **told)
    if quiet is None or key is None:
        raise BadRequest("debounce and debounce_key go together: write both")
    if odd := sorted(n for n in told if n not in _DEBOUNCED and told[n] is not None):
        raise BadRequest(
            f"{odd[0]} and debounce: a run that waits for calls has none; drop one"
        )
    return run_debounce(
        project,
        agent,
        value,
        key=key,
        quiet=_span("debounce", quiet),
        longest=None if longest is None else _span("debounce_max", longest),
        **{name: option for name, option in told.items() if name in _DEBOUNCED},
    )


_DEBOUNCED = ("priority", "max_attempts")


def _span(name: str, told: Any) -> timedelta:
    try:
        span: timedelta = (
            values.read(name, "timedelta", told) if isinstance(told, str) else told
        )
    except BadConfig as bad:
        raise BadRequest(str(bad)) from None
    return span


def wake(conn: Any, *agents: str) -> Awaitable[None] | None:
    """
    Tell idle workers that there is work for *agents*; without it they find it by themselves.

    Call it after the commit that started the runs. `start` does it where its connection is in
    autocommit.

    Args:
        conn: As for `start`; `await` the answer where it is async.
    """
    return on(conn, agent_wake(agents))


#: Rung for whoever starts runs in this process.
BELL = Bell()


def _told(conn: Any, agent: str, started: Started) -> Started:
    if started.outcome == "conflict":
        raise KeyConflict("this key was used with another agent or input; nothing was started")
    if started.outcome == "new" and outside_transaction(conn) and BELL.due([agent]):
        wake(conn, agent)
    return started


async def _told_later(conn: Any, agent: str, answer: Awaitable[Started]) -> Started:
    started = await answer
    if started.outcome == "conflict":
        raise KeyConflict("this key was used with another agent or input; nothing was started")
    if started.outcome == "new" and outside_transaction(conn) and BELL.due([agent]):
        await cast("Awaitable[None]", wake(conn, agent))
    return started
