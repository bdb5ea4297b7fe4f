"""
Undo: what the compensation of a run has to do, and what an operator may do about it.

One function here per function in sql/functions/undo.sql that is called from outside.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.core.call import Call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """One step to undo."""

    key: str
    name: str  # under which the compensation is registered
    args: list[Any]
    kwargs: dict[str, Any]
    result: Any  # of the step; None when it may have taken effect without saying so
    finished: bool  # whether the step had a result
    done: bool  # undone, or skipped by an operator


def undo_plan(project: str, parent: UUID) -> Call[list[Undo]]:
    """
    What is to undo of *parent*, newest first.

    Source: sql/functions/undo.sql, undo_plan.
    """

    def read(rows: Sequence[Any]) -> list[Undo]:
        plan = []
        for key, name, arguments, result, finished, undone in rows:
            told = json.loads(arguments)
            plan.append(
                Undo(
                    key=key,
                    name=name,
                    args=told.get("args", []),
                    kwargs=told.get("kwargs", {}),
                    result=None if result is None else json.loads(result),
                    finished=finished,
                    done=undone is not None,
                )
            )
        return plan

    return Call(
        "select step_key, undo, arguments, result, finished, undone from semel.undo_plan(%s, %s)",
        (project, parent),
        read,
    )


def run_compensate(
    project: str, run_id: UUID, *, now: datetime | None = None
) -> Call[tuple[str, str | None, UUID]]:
    """
    Let a held compensation begin.

    Returns:
        won, already (it was started), refused or unknown; the state of the run; and, when won or
        already, the run that compensates it.

    Source: sql/functions/undo.sql, run_compensate.
    """
    return Call(
        "select outcome, status, run_id from semel.run_compensate(%s, %s, %s)",
        (project, run_id, now),
        lambda rows: (rows[0][0], rows[0][1], rows[0][2]),
    )


def undo_skip(
    project: str, run_id: UUID, key: str, *, reason: str, who: str, now: datetime | None = None
) -> Call[tuple[str, UUID]]:
    """
    Have the compensation of *run_id* pass over step *key*.

    Returns:
        won, already (undone or skipped before), refused (no such step with an undo) or unknown
        (no compensation); and the run that compensates.

    Source: sql/functions/undo.sql, undo_skip.
    """
    return Call(
        "select outcome, run_id from semel.undo_skip(%s, %s, %s, %s, %s, %s)",
        (project, run_id, key, reason, who, now),
        lambda rows: (rows[0][0], rows[0][1]),
    )


def run_stopped(
    project: str, worker: str, runs: Sequence[UUID], *, now: datetime | None = None
) -> Call[list[UUID]]:
    """
    Say that the handlers of these runs, which ended under them, have stopped.

    Answers the compensations that need not wait longer.

    Source: sql/functions/undo.sql, run_stopped.
    """
    return Call(
        "select run_id from semel.run_stopped(%s, %s, %s::uuid[], %s)",
        (project, worker, list(runs), now),
        lambda rows: [row[0] for row in rows],
    )
