"""
Finisher: write what became of attempts, completions many at a time.

Completions that are ready while one batch is on its way make the next batch: under load one
transaction ends a hundred runs, and alone none waits. A write is sent until the database
answers it; sent twice it is answered `already`, since each is compare-and-set on its fence.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from semel.core import runs
from semel.db.stops import stop_here

if TYPE_CHECKING:
    from semel.db.link import Link
    from semel.model import Claim

#: Runs completed by one statement.
BATCH_MAX = 256


class Finisher:
    """Writes completions through one connection."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: list[tuple[Claim, str, asyncio.Future[str]]] = []
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._write_on())

    async def complete(self, claim: Claim, result: str) -> str:
        """Complete *claim* with *result*; answers won, already or lost once it is durable."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append((claim, result, future))
        self._wake.set()
        return await future

    async def close(self) -> None:
        """Stop writing. What is still waiting stays unwritten: its runs are released or reaped."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _write_on(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                await self._write(batch)

    async def _write(self, batch: list[tuple[Claim, str, asyncio.Future[str]]]) -> None:
        groups: dict[tuple[str, str], list[tuple[Claim, str, asyncio.Future[str]]]]
        groups = defaultdict(list)
        for entry in batch:
            groups[entry[0].project, entry[0].worker].append(entry)
        for (project, worker), entries in groups.items():
            stop_here("worker.complete.before")
            ended = [(claim.run_id, claim.fence, result) for claim, result, _ in entries]
            try:
                answers = await self._link.insist(runs.run_complete(project, worker, ended))
            except Exception as error:  # noqa: BLE001 - it belongs to who waits, one by one
                if len(entries) > 1:
                    for entry in entries:
                        await self._write([entry])
                else:
                    self._settle(entries[0][2], error)
                continue
            stop_here("worker.complete.after")
            outcomes = {answer.run_id: answer.outcome for answer in answers}
            for claim, _, future in entries:
                self._settle(future, outcomes[claim.run_id])

    @staticmethod
    def _settle(future: asyncio.Future[str], answer: str | Exception) -> None:
        if future.done():
            return  # who waited has gone
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
