"""
Work: the block of `once` in pieces, for a framework that calls us at its begin and at its end.

In an event loop, on a connection that is awaited or on one that is not; the latter in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool

from semel.db.ledger.drive import shielded
from semel.edges.rest.conclusion import conclude

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.core.operations import Reply
    from semel.edges.once import Once
    from semel.edges.operation import Operation
    from semel.edges.rest.rules import Rules


class Work:
    """
    One operation of one request.

    Args:
        awaited: Whether its connection is.
    """

    def __init__(self, rules: Rules, block: Once, *, awaited: bool) -> None:
        self.rules = rules
        self._block = block
        self._awaited = awaited
        self.open = False

    @property
    def op(self) -> Operation:
        """The operation."""
        return self._block.operation

    async def begin(self) -> Reply | None:
        """
        Claim it; the reply of before, where there is one.

        Raises:
            SemelError: it can be neither executed nor replayed.
        """
        if self._awaited:
            await self._block.__aenter__()
        else:
            await self._block.begun_by(run_in_threadpool)
        self.open = self.op.replay is None
        return self.op.replay

    async def conclude(
        self, status: int, headers: Sequence[tuple[str, str]], body: bytes | None
    ) -> Reply | None:
        """
        Commit what the handler answered; the reply, where it is another than that.

        Args:
            body: None: too long, or not to be read.

        Raises:
            Exception: it is not committed, and why.
        """
        replied = self.op.replied
        conclude(self.rules, self.op, status, headers, body)
        await self.end(None)
        return self.op.replay or replied

    async def end(self, error: BaseException | None) -> None:
        """
        The handler is done, or raised *error*.

        Raises:
            Exception: as `once` does.
        """
        self.open = False
        told: tuple[Any, ...] = (type(error) if error else None, error, None)
        if self._awaited:
            await self._block.__aexit__(*told)
        else:
            await shielded(run_in_threadpool(self._block.__exit__, *told))
