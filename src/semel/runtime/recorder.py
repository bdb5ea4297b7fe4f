"""
Recorder: write entries of journals, those of many runs at a time.

A step is not over before its entry is durable. What arrives while one batch is on its way makes
the next, so that a hundred runs cost one transaction and a lone one waits for nobody.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from semel.core.steps import Entry, step_record
from semel.db.gather import Gather
from semel.db.stops import stop_here

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from semel.db.link import Link
    from semel.model import Claim

#: Entries of one statement.
BATCH_MAX = 256

Write: TypeAlias = "tuple[Claim, Sequence[Entry]]"
Answer: TypeAlias = "tuple[str, str | None]"


class Recorder:
    """Appends to journals through one connection."""

    def __init__(self, link: Link, clock: Callable[[], datetime | None] = lambda: None) -> None:
        self._link = link
        self._clock = clock
        self._gather: Gather[Write, list[Answer]] = Gather(self._write, batch_max=BATCH_MAX)

    async def record(self, claim: Claim, entries: Sequence[Entry]) -> list[Answer]:
        """Append *entries* to the journal of *claim*; answers as `step_record`, once durable."""
        return await self._gather.add((claim, entries))

    async def close(self) -> None:
        """Stop writing. What is still waiting is asked for again by the next attempt."""
        await self._gather.close()

    async def _write(self, batch: Sequence[Write]) -> list[list[Answer]]:
        groups: dict[tuple[str, str], list[int]] = defaultdict(list)
        for n, (claim, _) in enumerate(batch):
            groups[claim.project, claim.worker].append(n)
        answers: list[list[Answer]] = [[] for _ in batch]
        for (project, worker), members in groups.items():
            rows = [
                (claim.run_id, claim.fence, entry)
                for claim, entries in (batch[n] for n in members)
                for entry in entries
            ]
            stop_here("worker.step.before")
            told = iter(
                await self._link.insist(step_record(project, worker, rows, now=self._clock()))
            )
            stop_here("worker.step.after")
            for n in members:
                answers[n] = [next(told) for _ in batch[n][1]]
        return answers
