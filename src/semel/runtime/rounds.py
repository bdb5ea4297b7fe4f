"""
Rounds: whose runs a worker claims next, and how many of them.

It goes round the pairs of a project and an agent that have runs, and shares what is free out
evenly. The last slot is kept from the project that holds all others while another has runs: with
handlers that take long, they would else wait for as long. The claimer says where runs are, the
worker claims; nothing here asks the database itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from semel.runtime.claimer import Claimer, Pair

#: Runs claimed by one statement.
CLAIM_MAX = 500


class Slots(Protocol):
    """What a worker tells of its slots, and how they are filled."""

    @property
    def slots(self) -> int:
        """How many runs it may hold at a time."""

    @property
    def free(self) -> int:
        """Slots that no run occupies."""

    @property
    def shut(self) -> bool:
        """Whether it claims nothing now."""

    def held_of(self, project: str) -> int:
        """Slots that runs of *project* occupy."""

    async def claim(self, pair: Pair, limit: int) -> int:
        """Claim up to *limit* runs of *pair*; answers how many."""

    async def claim_alone(self, pair: Pair, limit: int) -> int:
        """The same for those that want a process of their own."""


class Rounds:
    """Fills the slots of one worker."""

    def __init__(self, claimer: Claimer, worker: Slots) -> None:
        self._claimer = claimer
        self._worker = worker

    async def go(self) -> int:
        """Visit each pair that has work once; answers how many runs were claimed."""
        if self._worker.free <= 0 or self._worker.shut:
            return 0
        guessed = await self._visit(self._claimer.guessed(), others=True)
        if guessed:
            return guessed
        pairs = await self._claimer.waiting()
        if len({pair.project for pair in pairs}) == 1:
            project = pairs[0].project
            if min(self._worker.free, self._most) > self._room(project):
                # It would take the last slot: perhaps somebody else has come since the last look.
                pairs = await self._claimer.beside(project)
        return await self._visit(pairs)

    async def _visit(self, pairs: list[Pair], *, others: bool = False) -> int:
        """Claim for each of *pairs*; *others*: nobody has looked whether another project waits."""
        claimed = 0
        kept = others or len({pair.project for pair in pairs}) > 1
        for n, pair in enumerate(pairs):
            # What is free is shared out evenly over the pairs that are still to be visited.
            share = -(-self._worker.free // (len(pairs) - n))
            if kept:
                share = min(share, self._room(pair.project))
            claimed += await self._worker.claim(pair, min(share, self._most))
            room = self._room(pair.project) if kept else self._worker.free
            claimed += await self._worker.claim_alone(pair, room)
        return claimed

    @property
    def _most(self) -> int:
        """Half of the slots at most, so that one half is claimed while the other is finished."""
        return min(CLAIM_MAX, -(-self._worker.slots // 2))

    def _room(self, project: str) -> int:
        """How many slots *project* may still take while another project has runs."""
        slots = self._worker.slots
        return slots - 1 - self._worker.held_of(project) if slots > 1 else self._worker.free
