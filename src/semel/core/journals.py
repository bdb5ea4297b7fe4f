"""
Journals: what transactions say of what they did, numbered once it is committed.

One function here per writing function in sql/functions/journal.sql; who reads is in `consumers`.
The SQL gives the entries their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.core.call import Call, nothing
from semel.core.text import dump
from semel.errors import BadRequest, TooLarge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

TOPIC_BYTES_MAX = 255
#: Of one payload, as JSON without spaces.
PAYLOAD_BYTES_MAX = 256 * 1024
#: Of one transaction, at a time.
ENTRIES_MAX = 1000
#: Numbered by one call.
NUMBERED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Note:
    """An entry before it is written; `text` is its payload as JSON."""

    topic: str
    text: str


def note(topic: str, payload: Any = None) -> Note:
    """
    An entry to be written.

    Raises:
        BadRequest: the topic is none, or the payload no JSON.
        TooLarge: the payload is above 256 KiB.
    """
    if not _fits(topic):
        raise BadRequest(
            f"a topic of the journal is 1 to {TOPIC_BYTES_MAX} bytes of text, not {topic!r:.80}"
        )
    try:
        text = dump(payload)
    except (TypeError, ValueError, RecursionError) as bad:
        raise BadRequest(
            f"the payload of journal entry {topic} is no JSON: {bad}"[:300]
        ) from None
    if len(text.encode()) > PAYLOAD_BYTES_MAX:
        raise TooLarge(
            f"the payload of journal entry {topic} is above {PAYLOAD_BYTES_MAX} bytes:"
            " keep it elsewhere, and say where"
        )
    return Note(topic, text)


def notes_text(notes: Sequence[Note]) -> str:
    """
    *notes* as `journal_append` and `operation_finish` take them.

    Raises:
        TooLarge: they are more than ENTRIES_MAX.
    """
    if len(notes) > ENTRIES_MAX:
        raise TooLarge(f"a transaction journals {len(notes)} entries: at most {ENTRIES_MAX}")
    said = (f'{{"topic":{dump(one.topic)},"payload":{one.text}}}' for one in notes)
    return f"[{','.join(said)}]"


def journal_append(
    project: str,
    notes: Sequence[Note],
    *,
    request_id: str | None = None,
    run_id: UUID | None = None,
    now: datetime | None = None,
) -> Call[list[Any]]:
    """
    Say *notes* in the caller's transaction; answers nothing.

    Source: sql/functions/journal.sql, journal_append.
    """
    return Call(
        "select semel.journal_append(%s, %s, %s, %s::text::jsonb, %s)",
        (project, request_id, run_id, notes_text(notes), now),
        lambda _rows: [],
    )


def journal_number(project: str, *, now: datetime | None = None) -> Call[int | None]:
    """
    Number what is committed; answers how many, None where another does just that.

    Source: sql/functions/journal.sql, journal_number.
    """
    return Call(
        "select semel.journal_number(%s, %s, %s)",
        (project, NUMBERED_MAX, now),
        lambda rows: rows[0][0],
    )


def journal_expire(project: str, keep: timedelta, *, now: datetime | None = None) -> Call[int]:
    """
    Drop entries that could be read for *keep*, a thousand at most; answers how many.

    Source: sql/functions/journal.sql, journal_expire.
    """
    return Call(
        "select semel.journal_expire(%s, %s, p_now => %s)",
        (project, keep, now),
        lambda rows: int(rows[0][0]),
    )


def journal_wake(projects: Sequence[str]) -> Call[None]:
    """Tell idle consumers of *projects* to look; only after the commit that made entries."""
    return Call(
        "select pg_notify('semel_journal', project) from unnest(%s::text[]) as project",
        (list(projects),),
        nothing,
    )


def _fits(topic: Any) -> bool:
    if not isinstance(topic, str) or "\0" in topic:
        return False
    try:
        return 1 <= len(topic.encode()) <= TOPIC_BYTES_MAX
    except UnicodeEncodeError:
        return False
