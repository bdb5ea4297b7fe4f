"""
Procedures: what a router has under each path, and how one is called.

A handler takes (ctx, input), or (ctx) where it reads no input. `async def` is awaited, `def` runs
in a thread, an async generator streams. The input parser is a callable or a model of pydantic's.
"""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from semel.edges.trpc.errors import TRPCError
from semel.edges.trpc.values import UNDEFINED

if TYPE_CHECKING:
    from collections.abc import Callable

    from semel.edges.trpc.context import Context

Kind = Literal["query", "mutation"]


@dataclass(frozen=True, slots=True)
class Procedure:
    """
    One procedure.

    Attributes:
        parser: Makes the handler's input of the raw one, or None.
        authorize: Called with (ctx, input) before anything is executed or replayed.
        require_key: Whether a mutation refuses a call without a key; None: as the router does.
    """

    kind: Kind
    handler: Callable[..., Any]
    parser: Any = None
    authorize: Callable[..., Any] | None = None
    require_key: bool | None = None

    @property
    def reads_input(self) -> bool:
        """Whether its handler takes a second argument."""
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = inspect.signature(self.handler)
        return sum(each.kind in kinds for each in signature.parameters.values()) > 1

    @property
    def streams(self) -> bool:
        """Whether its handler is an async generator."""
        return inspect.isasyncgenfunction(self.handler)

    async def parsed(self, given: Any) -> Any:
        """
        The handler's input.

        Raises:
            TRPCError: BAD_REQUEST, with what the parser said.
        """
        value = None if given is UNDEFINED else given
        if self.parser is None:
            return value
        parse = _parse(self.parser)
        try:
            made = parse(value)
            return await made if inspect.isawaitable(made) else made
        except TRPCError:
            raise
        except Exception as error:
            raise TRPCError("BAD_REQUEST", _said(error)) from error

    async def allowed(self, ctx: Context, given: Any) -> None:
        """Ask `authorize`; what it raises is the answer, and a plain False is FORBIDDEN."""
        if self.authorize is None:
            return
        verdict = self.authorize(ctx, given)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if verdict is False:
            raise TRPCError("FORBIDDEN")

    async def call(self, ctx: Context, given: Any) -> Any:
        """What the handler returns; an async generator that has not begun, if it is one."""
        args = (ctx, given) if self.reads_input else (ctx,)
        if inspect.iscoroutinefunction(self.handler):
            return await self.handler(*args)
        if self.streams:
            return self.handler(*args)
        return await asyncio.to_thread(self.handler, *args)


def is_stream(value: Any) -> bool:
    """Whether *value*, or a member of it, is still to come."""
    members = value.values() if isinstance(value, dict) else ()
    return any(
        hasattr(each, "__aiter__") or inspect.isawaitable(each) for each in (value, *members)
    )


def _parse(parser: Any) -> Callable[[Any], Any]:
    for name in ("model_validate", "validate_python"):
        validate: Callable[[Any], Any] | None = getattr(parser, name, None)
        if validate is not None:
            return validate
    call: Callable[[Any], Any] = parser
    return call


def _said(error: Exception) -> str:
    """The parser's words; pydantic's without the input, which may be a secret."""
    as_json = getattr(error, "json", None)
    if callable(as_json) and hasattr(error, "error_count"):
        return str(as_json(include_url=False, include_input=False, include_context=False))
    return str(error) or type(error).__name__
