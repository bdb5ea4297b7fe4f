"""Waking: right behind the commit of an operation, tell who waits for what it made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.core.agents import agent_wake
from semel.core.journals import journal_wake
from semel.db.wake import Bell

if TYPE_CHECKING:
    from semel.core.call import Call
    from semel.edges.operation import Operation

_BELL = Bell()


def wakes(op: Operation) -> list[Call[Any]]:
    """What to tell idle workers of the runs of *op*, and consumers of its entries, if it is due."""
    calls: list[Call[Any]] = []
    if not op.agents and not op.notes:
        return calls
    if agents := _BELL.due(op.agents):
        calls.append(agent_wake(agents))
    if op.notes and _BELL.due([f"journal:{op.project}"]):
        calls.append(journal_wake([op.project]))
    return calls
