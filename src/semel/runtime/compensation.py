"""
Compensation: undo what a failed run has done, newest first.

Each undo is a step of the compensating run: once, journaled, on whatever worker. One that fails
stops those before it, whose effects it may stand on; the attempt is retried, and in the end an
operator mends, retries or skips it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.core.undo import undo_plan
from semel.errors import UndoFailed, UnknownUndo
from semel.runtime.way import undo_arguments

if TYPE_CHECKING:
    from semel.core.undo import Undo
    from semel.runtime.desk import Desk
    from semel.runtime.handlers import Run


async def compensate(run: Run, desk: Desk) -> dict[str, Any]:
    """
    Undo the run that *run* compensates.

    Returns:
        {"undone": [step keys in their order]}.

    Raises:
        UndoFailed: one failed; the message names what is not undone.
    """
    plan = await desk.link.insist(undo_plan(run.project, run.parent or run.id))
    for n, undo in enumerate(plan):
        if undo.done:
            continue
        try:
            await _undo(run, desk, undo)
        except Exception as error:
            left = ", ".join(one.key for one in plan[n:] if not one.done)
            raise UndoFailed(
                f"undo {undo.name!r} of step {undo.key!r}: {type(error).__name__}: {error};"
                f" not undone: {left}"
            ) from error
    return {"undone": [undo.key for undo in plan]}


async def _undo(run: Run, desk: Desk, undo: Undo) -> None:
    fn = desk.undos.get(undo.name)
    if fn is None:
        raise UnknownUndo(f"{undo.name!r} is not registered in this program")
    more = undo_arguments(fn, undo.result, run)
    await run.undo(undo.key, fn, *undo.args, **{**undo.kwargs, **more})
