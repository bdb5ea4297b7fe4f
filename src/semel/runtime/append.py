"""
Say something in a project's journal, from a program's own transaction.

It is there when that transaction commits, behind all that was committed before on the same rows,
and nothing of it is if it rolls back. Nobody is woken before the commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.core.journals import journal_append, journal_wake, note
from semel.db.execute import on
from semel.db.transact import answered, is_async
from semel.db.wake import Bell, outside_transaction

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from uuid import UUID

BELL = Bell()


def append(
    conn: Any,
    *,
    project: str,
    topic: str,
    payload: Any = None,
    request_id: str | None = None,
    run_id: UUID | None = None,
) -> Any:
    """
    Say *payload* under *topic* inside the transaction that *conn* is in.

    Call it after the write that it tells of: entries about one row then come in the order of
    their commits.

    Args:
        conn: psycopg, asyncpg, SQLAlchemy or Django; `await` the call where it is async.
        topic: 1 to 255 bytes; what consumers choose by.
        payload: Any JSON of at most 256 KiB.
        request_id, run_id: Where it comes from, for whoever reads it.

    Raises:
        BadRequest, TooLarge: the topic or the payload is none. The transaction is unharmed.
    """
    call = journal_append(project, [note(topic, payload)], request_id=request_id, run_id=run_id)
    answer = on(conn, call)
    if isinstance(answer, list):
        if outside_transaction(conn):
            wake(conn, project)
        return None
    return _later(conn, project, answer)


def wake(conn: Any, project: str) -> Any:
    """
    Tell idle consumers of *project* to look; without it they look by themselves, once a second.

    Call it after the commit, as often as you like: at most one in 20 ms is sent. `append` does it
    where its connection is in autocommit, and so does what commits for you, as `run.transaction`.

    Args:
        conn: As for `append`; `await` the call where it is async.
    """
    due = BELL.due([project])
    if due:
        return on(conn, journal_wake(due))
    return _nothing() if is_async(conn) else None


async def _nothing() -> None:
    """Somebody was just woken."""


async def _later(conn: Any, project: str, answer: Awaitable[list[Any]]) -> None:
    await answer
    if outside_transaction(conn):
        await answered(wake(conn, project))
