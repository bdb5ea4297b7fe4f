"""
Exchange: one execution of an ASGI application, between its claim and its outcome.

The answer goes out only when its outcome is committed. An application that raises is a business
error, and what it raised goes on to whoever handles it outside; where it is an error of the
ledger, it is answered here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.edges.frameworks.messages import Held, send_whole
from semel.edges.frameworks.taken import Replayed
from semel.edges.rest import answer, refusal
from semel.errors import BadConfig, LostRace, OurFault, SemelError, UnknownOutcome

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from semel.edges.frameworks.messages import Lines
    from semel.edges.frameworks.taken import Taken
    from semel.edges.rest.rules import Rules


#: What the database did to a transaction that may be executed again, whole.
AGAIN = (LostRace, UnknownOutcome)


def again(key: object) -> tuple[type[SemelError], ...]:
    """What is executed again under *key*; without one never what may have been committed."""
    return (LostRace,) if key is None else AGAIN


class Settled(Exception):
    """Another answer goes out: what was replied through the operation, or *error*."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error


class Exchange:
    """
    One execution.

    Args:
        taken: The claim, and what the handler makes of it.
        body: The request's; None without a key, when all is left alone that takes no operation.
        may_repeat: Whether a lost race may be tried again.
    """

    def __init__(
        self, rules: Rules, taken: Taken, body: bytes | None, *, may_repeat: bool
    ) -> None:
        self._rules = rules
        self._taken = taken
        self._body = body
        self._may_repeat = may_repeat

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> bool:
        """
        Execute *app*; answers whether it is to be executed again.

        Raises:
            Exception: what it raised.
        """
        held = Held(
            scope,
            receive,
            send,
            body=self._body,
            limit=self._rules.answer_bytes_max,
            settle=self._settle,
            holds=lambda: self._body is not None or self._taken.atomic,
        )
        scope.setdefault("state", {})["semel"] = self._taken
        try:
            try:
                await app(scope, held.receive, held.send)
                if not held.settled:
                    raise OurFault("the application sent no whole answer")  # noqa: TRY301
            except (Settled, Replayed):
                raise
            except Exception as error:
                if held.settled:
                    raise
                raise Settled(await self._meaning(error)) from error
            except BaseException as error:
                if not held.settled:
                    await self._taken.interrupt(error)
                raise
        except Settled as settled:
            if settled.error is not None:
                return await self._failed(send, settled.error)
            await self._replied(send)
        except Replayed:
            await self._replied(send)
        return False

    async def _meaning(self, error: Exception) -> Exception:
        try:
            await self._taken.raised(error)
        except Exception as other:  # noqa: BLE001 - raised by who called us
            return other
        return error

    async def _replied(self, send: Send) -> None:
        reply = self._taken.replied
        if reply is None:
            raise OurFault("nothing was replied")
        marks = answer.marks(self._taken.attempts, replayed=self._taken.replayed)
        await send_whole(send, reply.status, [*reply.headers, *marks], reply.body)

    async def _failed(self, send: Send, error: Exception) -> bool:
        # What a recorded handler may have committed is nobody's to execute again.
        repeated = AGAIN if self._taken.atomic else LostRace
        if self._may_repeat and isinstance(error, repeated):
            return True
        untouched = self._body is None and not self._taken.atomic
        if untouched or not isinstance(error, SemelError) or isinstance(error, BadConfig):
            raise error
        await send_whole(send, *refusal.answer(error))
        return False

    async def _settle(self, status: int, lines: Lines, body: bytes | None) -> Lines:
        try:
            await self._taken.finish(status, lines, body)
        except Exception as error:
            raise Settled(error) from error
        if self._taken.has_its_own:
            raise Settled
        return answer.marks(self._taken.attempts, replayed=False)
