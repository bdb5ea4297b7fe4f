"""
The ledger behind mutations: each executes once under its key, on a connection of its own.

`run_once` owns the transaction and the outcome. Without a key it is a plain transaction, of
which the ledger knows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.core.operations import base_id
from semel.edges.run_once import ATTEMPTS, run_once
from semel.edges.trpc import lend, stored
from semel.edges.trpc.answers import Done, Streamed, not_streamed
from semel.edges.trpc.errors import TRPCError
from semel.edges.trpc.procedures import is_stream
from semel.edges.trpc.values import UNDEFINED

if TYPE_CHECKING:
    from semel.edges.operation import Operation
    from semel.edges.rest.rules import Rules
    from semel.edges.trpc.context import Context
    from semel.edges.trpc.inputs import Given
    from semel.edges.trpc.keys import Key
    from semel.edges.trpc.procedures import Procedure
    from semel.edges.trpc.transformer import Transformer

#: Items of a mutation that yields; they are held until it is committed.
ITEMS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A mutation that may be executed: found, allowed, its input parsed."""

    procedure: Procedure
    ctx: Context
    parsed: Any
    given: Given
    key: Key | None
    streamed: bool  # whether its result may stream


class Ledger:
    """
    Executes mutations.

    Args:
        pool: See `lend`; None: nothing has a connection, and a key is refused.
        rules: The project, and how its operations are kept.
    """

    def __init__(self, pool: Any, rules: Rules, transformer: Transformer) -> None:
        self.lend = None if pool is None else lend.lender(pool)
        self._rules = rules
        self._transformer = transformer

    async def execute(self, mutation: Mutation) -> Done | Streamed:
        """
        Execute *mutation*, or answer what it was answered before.

        Raises:
            Exception: whatever the handler raises; then nothing of it is kept, but that it failed.
            SemelError: it can be neither executed nor replayed.
        """
        if self.lend is None:
            if mutation.key is not None:
                raise TRPCError(
                    "INTERNAL_SERVER_ERROR", "the router has no pool to keep keys in"
                )
            return await self._result(mutation, mutation.ctx)
        executed: list[Done | Streamed] = []

        async def work(conn: Any, op: Operation) -> None:
            executed.append(await self._result(mutation, mutation.ctx.open(op, conn)))
            op.answer(stored.reply(executed[-1]))

        kept = await run_once(self.lend, work, **self._identity(mutation), **self._keeping())
        return stored.result(kept, replayed=not executed)

    def _identity(self, mutation: Mutation) -> dict[str, Any]:
        """Who asks for what; the project may be told by the context, and the path is in the id."""
        ctx, key, rules = mutation.ctx, mutation.key, self._rules
        project = str(ctx.values.get("project", rules.project))
        told = {"project": project, "operation": ctx.path, "actor": ctx.actor}
        if key is None:
            # Nobody could say whether a lost COMMIT of it was executed.
            return {**told, "key": None, "attempts": 1}
        return {
            **told,
            "key": key.said,
            "request_id": f"{base_id(project, ctx.actor, key.said)}:{key.suffix}",
            "input": mutation.given.digested(rules.keys),
            "attempts": ATTEMPTS,
        }

    def _keeping(self) -> dict[str, Any]:
        rules = self._rules
        return {
            "anonymous": rules.anonymous,
            "wait": rules.wait,
            "result_max": rules.answer_bytes_max,
            "store": rules.store,
            "seal": rules.seal,
        }

    async def _result(self, mutation: Mutation, ctx: Context) -> Done | Streamed:
        """What the handler returns, for the wire; what it yields is waited for."""
        value = await mutation.procedure.call(ctx, mutation.parsed)
        if not hasattr(value, "__aiter__"):
            if is_stream(value):
                raise TypeError("a mutation returned what is still to come: await it first")
            return Done(self._transformer.dump(value))
        if not mutation.streamed:
            raise not_streamed()
        items: list[Any] = []
        iterator = aiter(value)
        while len(items) < ITEMS_MAX:
            try:
                items.append(self._transformer.dump(await anext(iterator)))
            except StopAsyncIteration as stop:
                end = stop.args[0] if stop.args else UNDEFINED
                return Streamed(items, self._transformer.dump(end))
        raise ValueError(f"a mutation yielded more than {ITEMS_MAX} items")
