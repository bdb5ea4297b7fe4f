"""
Answers: what became of a call, as the object that a tRPC client reads.

    {"result":{"data":…}}        an undefined result has no data; a replay says "replayed":true
    {"error":{"message","code","data":{"code","httpStatus","path"}}}

An error of Semel's has the members of a problem beside `error`, so that a reader of
application/problem+json is served by the same object.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.edges.rest.answer import REPLAYED
from semel.edges.trpc.errors import TRPCError
from semel.edges.trpc.javascript import stringify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.edges.trpc.transformer import Dumped, Transformer

MULTI_STATUS = 207


@dataclass(frozen=True, slots=True)
class Done:
    """A result that is complete."""

    data: Dumped
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Streamed:
    """The results of a mutation that yields, all of them there since it was committed."""

    items: list[Dumped]
    end: Dumped
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Live:
    """What a query returned, with parts that are still to come."""

    value: Any

    def discard(self) -> None:
        """Nobody will wait for it."""
        parts = self.value.values() if isinstance(self.value, dict) else (self.value,)
        for part in parts:
            if inspect.iscoroutine(part):
                part.close()
            elif isinstance(part, asyncio.Future):
                part.cancel()


Outcome = Done | Streamed | Live | TRPCError


def not_streamed() -> TRPCError:
    """Why a result that streams is no answer to a request that does not."""
    return TRPCError(
        "UNSUPPORTED_MEDIA_TYPE",
        "Cannot use stream-like response in non-streaming request - use httpBatchStreamLink",
    )


def whole(outcome: Outcome) -> Done | TRPCError:
    """*outcome* for an answer that is written at once."""
    if isinstance(outcome, Live):
        outcome.discard()
    return not_streamed() if isinstance(outcome, Live | Streamed) else outcome


@dataclass(frozen=True, slots=True)
class Writer:
    """
    Writes the answers of one router.

    Args:
        stacks: Whether errors carry where they were raised; for development.
    """

    transformer: Transformer
    stacks: bool = False

    def envelope(self, outcome: Done | TRPCError, path: str | None) -> str:
        """The object for one call; without a path, for the request as a whole."""
        if isinstance(outcome, TRPCError):
            return self.failure(self.transformer.error(self.shape(outcome, path)), outcome)
        data = self.transformer.data(outcome.data)
        members = [] if data is None else [f'"data":{data}']
        if outcome.replayed:
            members.append('"replayed":true')
        return f'{{"result":{{{",".join(members)}}}}}'

    def failure(self, shape: str, error: TRPCError) -> str:
        """The object around an error's *shape*."""
        told = stringify(error.problem)[1:-1]
        return f'{{{told}{"," if told else ""}"error":{shape}}}'

    def shape(self, error: TRPCError, path: str | None) -> str:
        """What a client gets as `error`, before the transformer."""
        data: dict[str, Any] = {"code": error.code, "httpStatus": error.status}
        if path is not None:
            data["path"] = path
        if self.stacks:
            data["stack"] = "".join(traceback.format_exception(error))
        try:
            more = {**data, **error.data}
            return stringify({"message": error.message, "code": error.number, "data": more})
        except (TypeError, ValueError):
            return stringify({"message": error.message, "code": error.number, "data": data})


def status_of(outcomes: Sequence[Done | TRPCError]) -> int:
    """The one status that all have, or 207."""
    each = {one.status if isinstance(one, TRPCError) else 200 for one in outcomes}
    return each.pop() if len(each) == 1 else MULTI_STATUS


def headers_of(outcomes: Sequence[Done | TRPCError]) -> list[tuple[str, str]]:
    """Headers that the outcomes ask for, each name once; the marker if all are replays."""
    told: dict[str, str] = {}
    for one in outcomes:
        if isinstance(one, TRPCError):
            told.update(one.headers)
    if all(isinstance(one, Done) and one.replayed for one in outcomes):
        told[REPLAYED.lower()] = "true"
    return list(told.items())
