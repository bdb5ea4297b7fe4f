"""Builders for the journal. Seconds count from NOW."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from fix_world import Conn, second
from semel.core import consumers, journals
from semel.core.consumers import Entry, Page
from semel.db.execute import run

ALICE, BOB = UUID(int=1), UUID(int=2)


def say(
    conn: Conn, *words: Any, at: float | None = 0, topic: str = "t", project: str = "p"
) -> None:
    """Append one entry for each of *words*, in one call; at None by the server's clock."""
    notes = [journals.note(topic, word) for word in words]
    now = None if at is None else second(at)
    run(conn, journals.journal_append(project, notes, now=now))


def number(conn: Conn, at: float = 0, project: str = "p") -> int | None:
    return run(conn, journals.journal_number(project, now=second(at)))


def join(conn: Conn, name: str = "c", start: Any = "oldest") -> int:
    return run(conn, consumers.journal_join("p", name, start=start))


def take(conn: Conn, name: str = "c", *, at: float = 0, **more: Any) -> Page:
    return run(conn, consumers.journal_take("p", name, now=second(at), **more))


def lease(
    conn: Conn, holder: UUID = ALICE, name: str = "c", *, at: float = 0, **more: Any
) -> Page:
    call = consumers.journal_lease(
        "p", name, holder, timedelta(seconds=60), now=second(at), **more
    )
    return run(conn, call)


def commit(conn: Conn, upto: int, holder: UUID = ALICE, name: str = "c") -> str:
    return run(conn, consumers.journal_commit("p", name, holder, upto))[0]


def read(conn: Conn, after: int = 0, **more: Any) -> Page:
    return run(conn, consumers.journal_read("p", after, **more))


def expire(conn: Conn, at: float, *, keep: float = 60) -> int:
    call = journals.journal_expire("p", timedelta(seconds=keep), now=second(at))
    return run(conn, call)


def words(page: Page | Sequence[Entry]) -> list[Any]:
    """What was said."""
    entries = page.entries if isinstance(page, Page) else page
    return [entry.payload for entry in entries]


def kept(conn: Conn, project: str = "p") -> list[Any]:
    """All that has a seq, in its order."""
    rows = conn.execute(
        "select payload from semel.journal where project_id = %s and seq is not null order by seq",
        (project,),
    )
    return [payload for [payload] in rows]
