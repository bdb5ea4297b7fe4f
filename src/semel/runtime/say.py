"""
Say something to a run from a program's own transaction.

The run hears it when that transaction commits, and nothing of it if it rolls back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast, overload

from semel.core import waits
from semel.db.execute import on
from semel.errors import NoSuchRun, RunRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from uuid import UUID

    import psycopg

Heard = Literal["won", "duplicate"]


class SignalOptions(TypedDict, total=False):
    """What `signal` takes beside the run and the name; documented there."""

    content: Any
    key: str | None
    sender: str


@overload
def signal(
    conn: psycopg.Connection[Any],
    *,
    project: str,
    run_id: UUID,
    name: str,
    **options: Unpack[SignalOptions],
) -> Heard: ...
@overload
def signal(
    conn: psycopg.AsyncConnection[Any],
    *,
    project: str,
    run_id: UUID,
    name: str,
    **options: Unpack[SignalOptions],
) -> Awaitable[Heard]: ...
@overload
def signal(
    conn: Any, *, project: str, run_id: UUID, name: str, **options: Unpack[SignalOptions]
) -> Any: ...
def signal(
    conn: Any, *, project: str, run_id: UUID, name: str, **options: Unpack[SignalOptions]
) -> Heard | Awaitable[Heard]:
    """
    Say *content* to a live run, whose handler asks for it with `run.signal(name)`.

    Args:
        conn: psycopg, asyncpg, SQLAlchemy or Django; `await` the answer where it is async.
        name: 1 to 255 bytes.
        content: Any JSON of at most 256 KiB.
        key: The same name and key again are a duplicate, and change nothing.
        sender: Who says it, for the timeline.

    Returns:
        won or duplicate.

    Raises:
        NoSuchRun, RunRefused: there is no such run, or it has ended. The transaction is unharmed.
        BadRequest: the name or the content is none.
    """
    call = waits.signal_send(project, run_id, name, **options)
    answer = on(conn, call)
    if isinstance(answer, tuple):
        return _heard(run_id, *answer)
    return _heard_later(run_id, answer)


async def _heard_later(run_id: UUID, answer: Awaitable[tuple[str, str | None]]) -> Heard:
    return _heard(run_id, *await answer)


def _heard(run_id: UUID, outcome: str, status: str | None) -> Heard:
    if outcome == "unknown":
        raise NoSuchRun(f"no run {run_id} in this project")
    if outcome == "refused":
        raise RunRefused(f"run {run_id} is {status}: it hears nothing more")
    return cast("Heard", outcome)
