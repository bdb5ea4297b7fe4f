"""
Take entries of a journal in a transaction of the program's own, on its own driver.

The cursor moves when that transaction commits: with what was written for the entries, or not at
all. Waiting, numbering and wake-ups are a Consumer's; here nothing waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from semel.core.consumers import Page, journal_join, journal_take
from semel.core.journals import journal_number
from semel.db.execute import on
from semel.db.wake import outside_transaction
from semel.errors import BadRequest, JournalPassed, NoSuchConsumer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from semel.core.consumers import Entry


def take(
    conn: Any,
    *,
    project: str,
    consumer: str,
    topics: Sequence[str] | None = None,
    limit: int = 100,
) -> Any:
    """
    The next entries for *consumer*, and its cursor behind them, in *conn*'s transaction.

    Empty where there is nothing, or another instance of the consumer has it just now.

    Args:
        conn: psycopg, asyncpg, SQLAlchemy or Django, in a transaction; `await` the answer where
            it is async.
        consumer: One that `join` has made known; what it is to find, `number` has numbered.
        limit: 1 to 1000.

    Raises:
        JournalPassed: entries that this consumer has not read are gone.
        NoSuchConsumer: it was never made known.
        BadRequest: *conn* is in no transaction: what was taken would be gone at once.
    """
    if _committing(conn):
        raise BadRequest(
            "take moves the cursor with your transaction, and the connection is in none: begin one"
        )
    answer = on(conn, journal_take(project, consumer, topics=topics, limit=limit))
    if isinstance(answer, Page):
        return _entries(consumer, answer)
    return _later(consumer, answer)


def join(
    conn: Any, *, project: str, consumer: str, start: Literal["oldest", "newest"] = "oldest"
) -> Any:
    """
    Make *consumer* known, in a transaction that is committed before the first `take`.

    Answers its place: where it was, or *start* for a new one.
    """
    return on(conn, journal_join(project, consumer, start=start))


def number(conn: Any, *, project: str) -> Any:
    """
    Number what is committed, in a transaction of its own: until it ends nobody else numbers.

    Answers how many, at most 10,000; None where another does just that. Consumers do it as they
    look, and upkeep every ten minutes.
    """
    return on(conn, journal_number(project))


def _committing(conn: Any) -> bool:
    if hasattr(conn, "in_atomic_block"):  # Django
        return bool(conn.get_autocommit() and not conn.in_atomic_block)
    return outside_transaction(conn)


async def _later(consumer: str, answer: Awaitable[Page]) -> list[Entry]:
    return _entries(consumer, await answer)


def _entries(consumer: str, page: Page) -> list[Entry]:
    if page.outcome == "unknown":
        raise NoSuchConsumer(f"no consumer {consumer} here: semel.journal.join makes it known")
    if page.outcome == "passed":
        raise JournalPassed(
            f"consumer {consumer} stands at {page.after}, and the journal begins behind {page.upto}"
        )
    return page.entries
