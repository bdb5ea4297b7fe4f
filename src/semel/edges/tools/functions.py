"""
Functions: tools that the program itself has, called in the worker.

An `async def` on its loop, a `def` in a thread. The journal is what makes them once: a function
that is not said to be idempotent is not called again after a crash in the middle of it.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from semel.edges.tools.server import failed, kept
from semel.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from semel.edges.tools.server import Answer, Sending


class Function(Protocol):
    """A registered function; `semel.runtime.tools.Tool` is one."""

    @property
    def fn(self) -> Callable[..., Any]:
        """What is called."""

    @property
    def idempotent(self) -> bool:
        """Whether it may be called again."""


#: What a function returns to say that it will answer later, to its callback.
LATER: Any = type("Later", (), {"__repr__": lambda _: "semel.LATER"})()


class Functions:
    """The server `app`."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions

    async def look(self, tool: str) -> bool | None:
        """See `Server.look`."""
        found = self._functions.get(tool)
        return None if found is None else found.idempotent

    async def send(self, sending: Sending) -> Answer:
        """See `Server.send`; it is always reached."""
        fn = self._functions[sending.tool].fn
        parameters = _parameters(fn)
        more = {
            name: value
            for name, value in (
                ("idempotency_key", sending.key),
                ("callback", sending.callback),
            )
            if name in parameters and name not in sending.arguments
        }
        try:
            value = await _called(fn, {**sending.arguments, **more})
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return failed(f"{type(error).__name__}: {error}")  # its own: nobody stops this call
        except ToolError as error:
            return failed(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
            return failed(f"{type(error).__name__}: {error}")
        if value is LATER:
            if sending.callback is None:
                return failed(
                    "it answers later, and was given no callback: ask with callback=True"
                )
            return {"accepted": True}
        return kept(value)

    async def meet(self) -> None:
        """It is here."""

    async def close(self) -> None:
        """Nothing is held."""


def _parameters(fn: Callable[..., Any]) -> Collection[str]:
    """The names of them; of what is written in C nobody may know."""
    try:
        return inspect.signature(fn).parameters.keys()
    except (TypeError, ValueError):
        return ()


async def _called(fn: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(fn):
        return await fn(**arguments)
    thread = asyncio.ensure_future(asyncio.to_thread(fn, **arguments))
    try:
        value = await asyncio.shield(thread)
    except asyncio.CancelledError:
        # A thread cannot be interrupted: the call has not stopped before it has.
        while not thread.done():
            with suppress(asyncio.CancelledError, Exception):
                await asyncio.shield(thread)
        raise
    # A partial, or an object that is called, does not look like the `async def` that it is.
    return await value if inspect.isawaitable(value) else value
