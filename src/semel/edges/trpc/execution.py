"""
Execution: the calls of one request, each on its own, and what became of each.

Found, allowed, its input parsed, and only then executed or replayed: who may not call a procedure
gets no stored answer of it either. The mutations of a batch share no transaction; no more of them
run at once than leave others half of the pool.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel import log
from semel.edges.rest.refusal import MissingKey
from semel.edges.trpc import keys
from semel.edges.trpc.answers import Done, Live, Outcome, not_streamed
from semel.edges.trpc.context import Context
from semel.edges.trpc.errors import of
from semel.edges.trpc.inputs import Given
from semel.edges.trpc.ledger import Mutation
from semel.edges.trpc.procedures import is_stream
from semel.errors import BadKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semel.edges.rest.rules import Rules
    from semel.edges.trpc.answers import Writer
    from semel.edges.trpc.context import Request
    from semel.edges.trpc.keys import Key, Rule
    from semel.edges.trpc.ledger import Ledger
    from semel.edges.trpc.procedures import Procedure
    from semel.edges.trpc.wire import Call, Reading, Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """
    How one router's calls are executed.

    Args:
        at_once: Mutations of one batch that run at a time.
    """

    wire: Wire
    writer: Writer
    ledger: Ledger
    rules: Rules
    rule: Rule
    strict: bool
    at_once: int

    def begin(
        self, request: Request, reading: Reading, values: Mapping[str, Any]
    ) -> list[asyncio.Task[Outcome]]:
        """A task for each call, which never fails: what is wrong is its outcome."""
        turns = asyncio.Semaphore(self.at_once)
        found = self._keys(request, reading)
        return [
            asyncio.create_task(
                self._outcome(_Asked(request, reading, values, call, key), turns)
            )
            for call, key in zip(reading.calls, found, strict=True)
        ]

    def _keys(self, request: Request, reading: Reading) -> list[Key | BadKey | None]:
        """The key of each call; a query has none, whatever the request says."""
        paths = [call.path for call in reading.calls]
        if not reading.mutates:
            return [None] * len(paths)
        try:
            return [*keys.of(request.lines, paths, rule=self.rule, strict=self.strict)]
        except BadKey as bad:
            return [bad] * len(paths)

    async def _outcome(self, asked: _Asked, turns: asyncio.Semaphore) -> Outcome:
        try:
            procedure = self.wire.procedure(asked.call, asked.request.method)
            return await self._called(asked, procedure, turns)
        except Exception as error:  # noqa: BLE001 - of one call of a batch, told as its outcome
            told = of(error)
            if told.code == "INTERNAL_SERVER_ERROR":
                log.event(
                    "request.failed",
                    method=asked.request.method,
                    route=asked.call.path,
                    error=type(error).__name__,
                    sqlstate=getattr(error, "sqlstate", None),
                )
            return told

    async def _called(
        self, asked: _Asked, procedure: Procedure, turns: asyncio.Semaphore
    ) -> Outcome:
        if procedure.streams and asked.reading.mode != "jsonl":
            raise not_streamed()
        key = self._key(asked, procedure)
        reads = procedure.reads_input or procedure.parser is not None or key is not None
        given = asked.reading.inputs.given(asked.call.index) if reads else Given()
        ctx = Context(
            request=asked.request,
            path=asked.call.path,
            values=asked.values,
            has_input=given.present,
            lend=self.ledger.lend,
        )
        parsed = await procedure.parsed(given.value)
        await procedure.allowed(ctx, parsed)
        if procedure.kind == "query":
            return self._result(await procedure.call(ctx, parsed))
        mutation = Mutation(
            procedure=procedure,
            ctx=ctx,
            parsed=parsed,
            given=given,
            key=key,
            streamed=asked.reading.mode == "jsonl",
        )
        async with turns:
            return await self.ledger.execute(mutation)

    def _key(self, asked: _Asked, procedure: Procedure) -> Key | None:
        if procedure.kind == "query":
            return None
        if isinstance(asked.key, BadKey):
            raise asked.key
        required = procedure.require_key
        if asked.key is None and (self.rules.require_key if required is None else required):
            raise MissingKey(f"{asked.call.path} requires an idempotency key")
        return asked.key

    def _result(self, value: Any) -> Done | Live:
        return Live(value) if is_stream(value) else Done(self.writer.transformer.dump(value))


@dataclass(frozen=True, slots=True)
class _Asked:
    request: Request
    reading: Reading
    values: Mapping[str, Any]
    call: Call
    key: Key | BadKey | None
