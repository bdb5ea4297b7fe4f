"""
Journal reads: what the views `journal` and `consumers` say, as JSON, for the command line.

A consumer reads the journal by `semel.core.consumers`; nothing here moves a cursor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.call import Call
from semel.core.reads import PAGE, records

if TYPE_CHECKING:
    from semel.core.reads import Record


def list_journal(
    project: str, *, topic: str | None = None, before: int | None = None, limit: int = PAGE
) -> Call[list[Record]]:
    """
    At most *limit* entries, the newest first; of a page after the first, those below *before*.

    The first page begins with what has no seq yet.
    """
    return Call(
        "select to_jsonb(j) from semel.journal as j"
        " where j.project_id = %s and (%s::bigint is null or j.seq < %s)"
        " and (%s::text is null or j.topic = %s)"
        " order by j.seq desc nulls first, j.finished_at desc limit %s",
        (project, before, before, topic, topic, limit),
        records,
    )


def list_consumers(project: str) -> Call[list[Record]]:
    """Every consumer of the project's journal, by its name."""
    return Call(
        "select to_jsonb(c) from semel.consumers as c where c.project_id = %s order by c.consumer",
        (project,),
        records,
    )
