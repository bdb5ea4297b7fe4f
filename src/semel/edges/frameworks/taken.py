"""
Taken: the operation of a request behind the middleware, as `request.state.semel`.

It is recorded until a handler awaits it,

    op = await request.state.semel
    await op.connection.execute(...)

From then on it is atomic: the claim is handed back untouched, and made again in a transaction on a
connection of the middleware's pool, in which the answer is committed too. So a handler takes it
before it does anything. A crash afterwards leaves nothing, and the retry executes.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from semel.db.ledger.drive import shielded
from semel.edges import told
from semel.edges.once import Once
from semel.edges.rest.conclusion import conclude
from semel.edges.rest.moved import is_moved
from semel.errors import BadRequest, InFlight

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from semel.core.operations import Reply
    from semel.db.borrow import Pool
    from semel.edges.operation import Operation
    from semel.edges.rest.recorded import Claimed, Recorder
    from semel.edges.rest.rules import Rules


class Replayed(Exception):
    """Another request was faster: its reply is the answer, and the handler is not to go on."""


class Taken:
    """
    One execution's end of the ledger; await it for the operation.

    Args:
        claimed: None without a key: what is taken is a transaction of which no row tells.
        settings: What `once` is told of the request.
        path: The request's, percent-encoded.
    """

    def __init__(
        self,
        rules: Rules,
        pool: Pool,
        recorder: Recorder,
        claimed: Claimed | None,
        settings: dict[str, Any],
        *,
        path: str,
    ) -> None:
        self._rules = rules
        self._pool = pool
        self._recorder = recorder
        self._claimed = claimed
        self._settings = settings
        self._path = path
        self._stack = AsyncExitStack()
        self._once: Once | None = None
        self._ended = False
        self._refused: Exception | None = None
        #: Whether another answer than the handler's is to go out: `replied`.
        self.has_its_own = False

    def __await__(self) -> Generator[Any, None, Operation]:
        return self._take().__await__()

    @property
    def claims(self) -> bool:
        """Whether the request was claimed."""
        return self._claimed is not None

    @property
    def atomic(self) -> bool:
        """Whether a handler took it."""
        return self._once is not None

    @property
    def attempts(self) -> int | None:
        """Which execution this is."""
        if self._once is not None:
            return self._once.operation.attempts
        return None if self._claimed is None else self._claimed.attempt

    @property
    def replied(self) -> Reply | None:
        """What the handler replied through the operation, or what was replied before."""
        if self._once is None:
            return None
        return self._once.operation.replay or self._once.operation.replied

    @property
    def replayed(self) -> bool:
        """Whether it is an answer of before."""
        return self._once is not None and self._once.operation.replay is not None

    async def _take(self) -> Operation:
        if self._refused is not None:
            raise self._refused
        if self._ended:
            raise BadRequest("request.state.semel: the request is answered already")
        if self._once is not None:
            return self._once.operation
        try:
            op = await self._begin()
        except BaseException as error:
            self._ended = True
            self._refused = error if isinstance(error, Exception) else None
            await self._stack.aclose()
            raise
        if op.replay is not None:
            raise Replayed
        return op

    async def _begin(self) -> Operation:
        claimed = self._claimed
        if claimed and not await self._recorder.release(claimed, untouched=True):
            raise InFlight("the claim of this request was taken away")
        conn = await self._stack.enter_async_context(self._pool.borrow())
        self._once = Once(conn, **self._settings)
        return await self._once.__aenter__()

    async def finish(
        self, status: int, headers: Sequence[tuple[str, str]], body: bytes | None
    ) -> None:
        """
        The handler answered.

        Raises:
            Exception: it was not committed, and why.
        """
        if self._refused is not None:
            raise self._refused  # whatever the handler made of it
        if self._once is not None:
            replied = self.replied is not None
            if not self.replayed:
                conclude(self._rules, self._once.operation, status, headers, body)
            await self._leave(None)
            self.has_its_own = replied or self.replayed
            return
        self._ended = True
        if self._claimed is None:
            return
        if is_moved(self._path, status, headers):
            await self._recorder.release(self._claimed, untouched=True)
        elif self._rules.is_error(status):
            said = f"the handler answered {status}"
            await self._recorder.fail(self._claimed, f"HTTP {status}", said)
        else:
            await self._recorder.finish(self._claimed, status, headers, body)

    async def raised(self, error: Exception) -> None:
        """
        The handler raised *error*.

        Raises:
            Exception: what *error* means to the operation, where that is another.
        """
        if self._once is not None:
            await self._leave(error)
        elif not self._ended and self._claimed is not None:
            self._ended = True
            if told.may_be_committed(error):
                await self._recorder.release(self._claimed, untouched=False)
                return
            failure = told.of(error)
            await self._recorder.fail(self._claimed, failure.code, failure.message)

    async def interrupt(self, error: BaseException) -> None:
        """The handler was cancelled: atomic, nothing is kept; recorded, nobody knows."""
        if self._once is not None:
            await shielded(self._leave(error))
        elif not self._ended and self._claimed is not None:
            self._ended = True
            await shielded(self._recorder.release(self._claimed, untouched=False))

    async def _leave(self, error: BaseException | None) -> None:
        if self._ended or self._once is None:
            return
        self._ended = True
        try:
            await self._once.__aexit__(type(error) if error else None, error, None)
        finally:
            await self._stack.aclose()
