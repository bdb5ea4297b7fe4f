"""
Consumers: who reads a project's journal, and how far.

One function here per reading function in sql/functions/journal.sql. The SQL decides who holds a
cursor and whether its place is still in the journal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from semel.core.call import Call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from typing import Final
    from uuid import UUID

#: Entries of one page.
PAGE_MAX = 1000

#: What a page may be: read; busy, another instance has the cursor; passed, its place is gone.
Found = Literal["read", "busy", "passed", "unknown"]
#: What became of a commit; already is this very one, sent again, and counts as won.
Committed = Literal["won", "already", "lost", "unknown"]

_PAGE: Final = (
    "select outcome, after, upto, seq, entry_id, topic, payload, request_id, run_id,"
    " finished_at"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a journal. `seq` counts 1, 2, 3, … in its project; `text` is JSON."""

    seq: int
    id: UUID
    topic: str
    text: str
    request_id: str | None  # of the operation that it comes from
    run_id: UUID | None  # of the run that it comes from
    finished_at: datetime

    @property
    def payload(self) -> Any:
        """
        What was said.

        Raises:
            ValueError, RecursionError: PostgreSQL keeps it, and Python cannot read it.
        """
        return json.loads(self.text)


@dataclass(frozen=True, slots=True)
class Page:
    """What a reader found behind *after*: all of its topics up to *upto*."""

    outcome: Found
    after: int
    upto: int
    entries: list[Entry]


def journal_read(
    project: str, after: int, *, topics: Sequence[str] | None = None, limit: int = 100
) -> Call[Page]:
    """
    Entries behind *after*, for a reader that keeps his place himself.

    Source: sql/functions/journal.sql, journal_read.
    """
    return Call(
        _PAGE + " from semel.journal_read(%s, %s, %s::text[], %s)",
        (project, after, _listed(topics), limit),
        _page,
    )


def journal_join(
    project: str,
    consumer: str,
    *,
    start: Literal["oldest", "newest"] = "oldest",
    now: datetime | None = None,
) -> Call[int]:
    """
    Make *consumer* known; answers its place.

    Source: sql/functions/journal.sql, journal_join.
    """
    return Call(
        "select semel.journal_join(%s, %s, %s, %s)",
        (project, consumer, start, now),
        lambda rows: int(rows[0][0]),
    )


def journal_waits(project: str, consumer: str) -> Call[bool]:
    """
    Whether there is something for *consumer* to look at; writes nothing.

    Source: sql/functions/journal.sql, journal_waits.
    """
    return Call(
        "select semel.journal_waits(%s, %s)", (project, consumer), lambda rows: bool(rows[0][0])
    )


def journal_take(
    project: str,
    consumer: str,
    *,
    topics: Sequence[str] | None = None,
    limit: int = 100,
    now: datetime | None = None,
) -> Call[Page]:
    """
    Entries, and the cursor behind them, in the caller's transaction.

    Source: sql/functions/journal.sql, journal_take.
    """
    return Call(
        _PAGE + " from semel.journal_take(%s, %s, %s::text[], %s, %s)",
        (project, consumer, _listed(topics), limit, now),
        _page,
    )


def journal_lease(
    project: str,
    consumer: str,
    holder: UUID,
    lease: timedelta,
    *,
    topics: Sequence[str] | None = None,
    limit: int = 100,
    now: datetime | None = None,
) -> Call[Page]:
    """
    Entries that are *holder*'s until *lease* has passed, or he commits.

    Source: sql/functions/journal.sql, journal_lease.
    """
    return Call(
        _PAGE + " from semel.journal_lease(%s, %s, %s, %s, %s::text[], %s, %s)",
        (project, consumer, holder, lease, _listed(topics), limit, now),
        _page,
    )


def journal_commit(
    project: str, consumer: str, holder: UUID, upto: int, *, now: datetime | None = None
) -> Call[tuple[Committed, int | None]]:
    """
    Done with all up to *upto*; answers what became of it, and where the cursor is.

    Source: sql/functions/journal.sql, journal_commit.
    """
    return Call(
        "select outcome, seq from semel.journal_commit(%s, %s, %s, %s, %s)",
        (project, consumer, holder, upto, now),
        lambda rows: (rows[0][0], rows[0][1]),
    )


def journal_seek(
    project: str, consumer: str, to: int, *, now: datetime | None = None
) -> Call[tuple[Literal["won", "busy", "unknown"], int | None]]:
    """
    Move a cursor to *to*, or as near as entries are kept; answers where it is.

    Source: sql/functions/journal.sql, journal_seek.
    """
    return Call(
        "select outcome, seq from semel.journal_seek(%s, %s, %s, %s)",
        (project, consumer, to, now),
        lambda rows: (rows[0][0], rows[0][1]),
    )


def journal_forget(project: str, consumer: str) -> Call[Literal["won", "unknown"]]:
    """
    Forget a consumer.

    Source: sql/functions/journal.sql, journal_forget.
    """
    return Call(
        "select outcome from semel.journal_forget(%s, %s)",
        (project, consumer),
        lambda rows: rows[0][0],
    )


def _listed(topics: Sequence[str] | None) -> list[str] | None:
    return None if topics is None else list(topics)


def _page(rows: Sequence[Any]) -> Page:
    outcome, after, upto = rows[0][:3]
    entries = [
        Entry(
            seq=seq,
            id=entry_id,
            topic=topic,
            text=text,
            request_id=request_id,
            run_id=run_id,
            finished_at=finished_at,
        )
        for _, _, _, seq, entry_id, topic, text, request_id, run_id, finished_at in rows[1:]
    ]
    return Page(outcome, after or 0, upto or 0, entries)
