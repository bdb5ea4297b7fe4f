"""
Steps: append to the journals of runs that a worker holds, and read one.

One function here per function in sql/functions/{steps,children}.sql; the SQL refuses a writer that
lost its lease.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from semel.core.call import Call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

EntryKind = Literal["intent", "error", "caught", "patch", "result"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a journal. Contents are JSON text; None is null."""

    key: str  # of the step, 1 to 255 bytes
    entry: EntryKind
    kind: str = "step"  # transaction, sleep, signal, spawn, child, approval, undo, patch, skip
    place: int | None = None  # nth call of the handler itself; None: of a task beside it
    content: str | None = None
    detail: str | None = None  # rows that a transaction's block had read


def step_record(
    project: str,
    worker: str,
    entries: Sequence[tuple[UUID, int, Entry]],
    *,
    now: datetime | None = None,
) -> Call[list[tuple[str, str | None]]]:
    """
    Append *entries* as (run, fence, entry).

    Returns:
        For each, in order: won; already, with the JSON of the result that stands; or lost, with
        nothing written for that run.

    Source: sql/functions/steps.sql, step_record.
    """
    return Call(
        "select outcome, content from semel.step_record("
        "%s, %s, %s::uuid[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::int[],"
        " %s::text[], %s::text[], %s)",
        (
            project,
            worker,
            [run_id for run_id, _, _ in entries],
            [fence for _, fence, _ in entries],
            [one.key for _, _, one in entries],
            [one.entry for _, _, one in entries],
            [one.kind for _, _, one in entries],
            [one.place for _, _, one in entries],
            [one.content for _, _, one in entries],
            [one.detail for _, _, one in entries],
            now,
        ),
        lambda rows: [(row[0], row[1]) for row in rows],
    )


def step_list(project: str, run_id: UUID) -> Call[list[tuple[Entry, int]]]:
    """
    The journal of a run, oldest first, each entry with the attempt that wrote it.

    Source: sql/functions/steps.sql, step_list.
    """

    def read(rows: Sequence[Any]) -> list[tuple[Entry, int]]:
        return [
            (Entry(key, entry, kind, place, content, detail), attempt)
            for key, entry, kind, place, attempt, content, detail in rows
        ]

    return Call(
        "select step_key, entry, kind, place, attempt, content, detail"
        " from semel.step_list(%s, %s)",
        (project, run_id),
        read,
    )


def run_holds(project: str, worker: str, run_id: UUID, fence: int) -> Call[bool]:
    """
    Whether *worker* holds the run; locks nothing.

    Source: sql/functions/steps.sql, run_holds.
    """
    return Call(
        "select semel.run_holds(%s, %s, %s, %s)",
        (project, worker, run_id, fence),
        lambda rows: bool(rows[0][0]),
    )


def child_start(
    project: str,
    worker: str,
    run_id: UUID,
    fence: int,
    *,
    key: str,
    place: int | None,
    agent: str,
    text: str,
    priority: int = 5,
    max_attempts: int | None = None,
    delay: timedelta | None = None,
    deadline: timedelta | None = None,
    now: datetime | None = None,
) -> Call[tuple[UUID | None, str]]:
    """
    Start a child as the step *key*.

    Args:
        text: Its input as JSON.

    Returns:
        The child and won or already; or None and lost.

    Source: sql/functions/children.sql, child_start.
    """
    return Call(
        "select run_id, outcome from semel.child_start("
        "%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            project,
            worker,
            run_id,
            fence,
            key,
            place,
            agent,
            text,
            priority,
            max_attempts,
            delay,
            deadline,
            now,
        ),
        lambda rows: (rows[0][0], rows[0][1]),
    )
