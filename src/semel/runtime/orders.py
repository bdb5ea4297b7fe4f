"""
Orders: what an operator asks of this worker while it works, as each beat tells it.

    semel worker drain ──> its row ──beat──> draining: nothing is claimed ──holds nothing──> drained

The heartbeat's thread writes it, the claiming loop reads it. Every beat says the whole of it, so
an order that was taken back is over with the next one. Nothing here stops a handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel import log
from semel.core.workers import worker_drained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from semel.core.workers import Asked
    from semel.db.link import Link


class Orders:
    """
    What the worker *name* was asked.

    Args:
        slots: As many as it was started with.
        changed: Called, from the heartbeat's thread, when an order is new.
    """

    def __init__(self, name: str, slots: int, changed: Callable[[], None]) -> None:
        self._name = name
        self._configured = slots
        self._changed = changed
        self._told = False
        self.slots = slots
        self.draining = False

    def beat(self, asked: Asked) -> None:
        """The home project's beat was answered."""
        self._told = False  # it may have been taken back and given anew since the last one
        slots = asked.slots or self._configured
        if (asked.drain, slots) == (self.draining, self.slots):
            return
        log.event("worker.ordered", worker=self._name, draining=asked.drain, slots=slots)
        self.draining, self.slots = asked.drain, slots
        self._changed()

    async def answer(self, link: Link, projects: Iterable[str]) -> None:
        """Say in *projects* that it is drained; the caller claims nothing, and holds nothing."""
        if not self.draining or self._told:
            return
        for project in projects:
            await link.run(worker_drained(project, self._name))
        self._told = True
