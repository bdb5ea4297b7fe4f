"""
Finisher: write what became of attempts, completions many at a time.

A write is sent until the database answers it; sent twice it is answered `already`, since each is
compare-and-set on its fence.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from semel.core import runs
from semel.db.gather import Gather
from semel.db.stops import stop_here

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from semel.db.link import Link
    from semel.model import Claim

#: Runs completed by one statement.
BATCH_MAX = 512

Completion: TypeAlias = "tuple[Claim, str]"


class Finisher:
    """Writes completions through one connection."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._gather: Gather[Completion, str] = Gather(self._write, batch_max=BATCH_MAX)

    async def complete(self, claim: Claim, result: str) -> str:
        """Complete *claim* with *result*; answers won, already or lost once it is durable."""
        return await self._gather.add((claim, result))

    async def close(self) -> None:
        """Stop writing. What is still waiting stays unwritten: its runs are released or reaped."""
        await self._gather.close()

    async def _write(self, batch: Sequence[Completion]) -> list[str]:
        groups: dict[tuple[str, str], list[tuple[UUID, int, str]]] = defaultdict(list)
        for claim, result in batch:
            groups[claim.project, claim.worker].append((claim.run_id, claim.fence, result))
        outcomes: dict[UUID, str] = {}
        for (project, worker), ended in groups.items():
            stop_here("worker.complete.before")
            answers = await self._link.insist(runs.run_complete(project, worker, ended))
            stop_here("worker.complete.after")
            outcomes |= {answer.run_id: answer.outcome for answer in answers}
        return [outcomes[claim.run_id] for claim, _ in batch]
