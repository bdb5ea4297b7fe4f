"""
Legacy: ids that another system has seen, remembered here.

One function here per function in sql/functions/legacy.sql: same name, same arguments. Whose
table they come from is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semel.core.call import Call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

#: Ids of one call.
BATCH_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One id as the other system has it."""

    id: str
    run_id: UUID
    at: datetime


def event_import(
    project: str,
    source: str,
    channel: str,
    seen: Sequence[Seen],
    *,
    now: datetime | None = None,
) -> Call[tuple[int, int]]:
    """
    Remember *seen*; a later arrival of one of them is `duplicate` and names the old run.

    An import is a sighting: memory counts from it and not from `at`, since an id that is still
    in the other system's table repeats nothing there, however old it is. Importing again moves
    it again. An id that is known here keeps its run.

    Args:
        seen: At most BATCH_MAX. The empty id is none, and is left out.

    Returns:
        How many were new here, and how many were known.

    Source: sql/functions/legacy.sql, event_import.
    """
    return Call(
        "select imported, known"
        " from semel.event_import(%s, %s, %s, %s::text[], %s::uuid[], %s::timestamptz[], %s)",
        (
            project,
            source,
            channel,
            [one.id for one in seen],
            [one.run_id for one in seen],
            [one.at for one in seen],
            now,
        ),
        lambda rows: (rows[0][0], rows[0][1]),
    )
