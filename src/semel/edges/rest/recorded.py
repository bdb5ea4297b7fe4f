"""
Recorded: operations whose work is in transactions of its own, claimed before and finished after.

The claim is committed before the work begins, so a crash leaves a row that nobody executes again:
a visible unknown (E-IDEMPOTENT-004) for `semel reconcile`. While the process beats, a retry is
told to wait (-003).

Coroutines that wait for nothing but *run* and *pause*; a sync program steps through them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID, uuid4

from semel import log
from semel.core import operations
from semel.core.operations import Identity, Reply
from semel.db.execute import retryable
from semel.db.stops import stop_here
from semel.edges import told
from semel.edges.refused import refused
from semel.edges.rest import keeping
from semel.edges.tally import MET, TALLY
from semel.errors import OurFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from semel.core.call import Call
    from semel.core.operations import Begun
    from semel.edges.identity import Asked
    from semel.edges.rest.rules import Rules

T = TypeVar("T")

#: Pauses between attempts to write an outcome that is known, seconds; about 8 s together.
PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)


class Runs(Protocol):
    """Runs a call in a transaction of its own, and commits it."""

    def __call__(self, call: Call[T], /) -> Awaitable[T]:
        """Its answer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """An operation that is this process's to execute."""

    identity: Identity
    attempt: int
    holder: UUID
    began: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """An answer of before."""

    reply: Reply
    attempts: int


class Recorder:
    """
    Claims and ends operations.

    Args:
        run: See Runs.
        pause: Waits for so many seconds.
    """

    def __init__(
        self, rules: Rules, run: Runs, pause: Callable[[float], Awaitable[None]]
    ) -> None:
        self._rules = rules
        self._run = run
        self._pause = pause
        self.holder = uuid4()

    async def begin(self, asked: Asked) -> Claimed | Replayed:
        """
        Claim the operation, for good.

        Raises:
            SemelError: it is not to be executed, or the database is away.
        """
        stop_here("ledger.begin.before")
        begun = await self._begin(asked)
        if begun.outcome == "version" and (more := asked.under(begun.payload)) is not None:
            asked = more
            begun = await self._begin(asked)
        if begun.outcome == "claimed" and begun.attempts is not None:
            stop_here("ledger.begin.after")
            return Claimed(identity=asked.identity, attempt=begun.attempts, holder=self.holder)
        TALLY.count(MET[begun.outcome])
        if begun.outcome == "replay" and begun.reply is not None and begun.attempts is not None:
            return Replayed(
                reply=keeping.opened(self._rules, begun.reply), attempts=begun.attempts
            )
        raise refused(begun)

    async def _begin(self, asked: Asked) -> Begun:
        call = operations.operation_begin(
            asked.identity, wait=self._rules.wait, mode="recorded", holder=self.holder
        )
        return await self._run(call)

    async def finish(
        self,
        claimed: Claimed,
        status: int,
        headers: Sequence[tuple[str, str]],
        body: bytes | None,
    ) -> None:
        """
        Keep the answer; None for *body* is one that is too long. Never raises.

        What cannot be written stays PROCESSING, for a person to judge, and is logged: the answer
        is true all the same.
        """
        TALLY.ended("executed", claimed.began)
        try:
            reply, gone = keeping.kept(self._rules, status, headers, body)
        except Exception as error:  # noqa: BLE001 - a seal raises whatever it likes
            self._log(claimed, error)
            reply, gone = Reply(status=status, headers=[], body=b""), True
        await self._end(
            claimed,
            operations.operation_finish(
                claimed.identity.project,
                claimed.identity.request_id,
                claimed.attempt,
                None,
                reply,
                gone=gone,
                holder=claimed.holder,
            ),
        )

    async def fail(self, claimed: Claimed, code: str, error: str) -> None:
        """Nothing was done, says the handler: the next request executes it. Never raises."""
        TALLY.ended("failed", claimed.began)
        identity = claimed.identity
        await self._end(
            claimed,
            operations.operation_fail(
                identity.project,
                identity.request_id,
                claimed.attempt,
                None,
                code=code,
                error=error,
                holder=claimed.holder,
            ),
        )

    async def release(self, claimed: Claimed, *, untouched: bool) -> bool:
        """Hand it back as never claimed, or as unknown; whether it was still ours. Never raises."""
        identity = claimed.identity
        return (
            await self._insist(
                claimed,
                operations.operation_release(
                    identity.project,
                    identity.request_id,
                    claimed.attempt,
                    claimed.holder,
                    "untouched" if untouched else "unknown",
                ),
            )
            == "won"
        )

    async def _end(self, claimed: Claimed, call: Call[Any]) -> None:
        stop_here("ledger.commit.before")
        await self._insist(claimed, call)
        stop_here("ledger.commit.after")

    async def _insist(self, claimed: Claimed, call: Call[T]) -> T | None:
        for pause in (*PAUSES, None):
            try:
                return await self._run(call)
            except Exception as error:  # noqa: BLE001 - any driver's
                if pause is None or not retryable(error):
                    self._log(claimed, error)
                    return None
                await self._pause(pause)
        raise OurFault("PAUSES ends with None")

    def _log(self, claimed: Claimed, error: Exception) -> None:
        log.event(
            "operation.unwritten",
            project=claimed.identity.project,
            operation=claimed.identity.request_id,
            reason=told.of(error).message,
        )
