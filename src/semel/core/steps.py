"""
Steps: append to the journal of a run that a worker holds.

The one function of sql/functions/steps.sql; the SQL refuses a writer that lost its lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from semel.core.call import Call
from semel.core.text import dump

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

Entry = Literal["intent", "error", "result"]


def step_record(
    project: str,
    worker: str,
    run_id: UUID,
    fence: int,
    entries: Sequence[tuple[str, Entry, Any]],
    *,
    now: datetime | None = None,
) -> Call[list[tuple[str, str, str | None]]]:
    """
    Append entries, as (step key, entry, content); answers (step key, outcome, result that stands).

    Args:
        entries: A step key is 1 to 255 bytes; contents are JSON.

    Returns:
        outcome is won, already (a result stood before; it is given) or lost (nothing written).

    Source: sql/functions/steps.sql, step_record.
    """
    return Call(
        "select step_key, outcome, content"
        " from semel.step_record(%s, %s, %s, %s, %s::text[], %s::text[], %s::text[], %s)",
        (
            project,
            worker,
            run_id,
            fence,
            [key for key, _, _ in entries],
            [entry for _, entry, _ in entries],
            [dump(content) for _, _, content in entries],
            now,
        ),
        lambda rows: [(row[0], row[1], row[2]) for row in rows],
    )
