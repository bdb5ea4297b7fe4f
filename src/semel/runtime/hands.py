"""
Hands: how what a handler asks for is done, on the event loop or in the handler's thread.

An `async def` handler awaits; a `def` handler has a thread of its own, waits in it, and executes
its steps in it. The code between the two is written once, as coroutines: `drive` steps through
one whose awaits are all answered already.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from concurrent.futures import Executor, Future

T = TypeVar("T")


class Hands(Protocol):
    """How one handler's calls are done."""

    sync: bool

    def who(self) -> object:
        """Who asks: the task or thread at work."""

    def on_loop(self, work: Coroutine[Any, Any, T]) -> Any:
        """The answer of *work*, or an awaitable of it."""

    def execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Call *fn* where the handler is; awaited on the loop."""


class LoopHands:
    """
    For an `async def` handler.

    Args:
        threads: Where its plain functions are called.
    """

    sync = False

    def __init__(self, threads: Executor) -> None:
        self._threads = threads

    def who(self) -> object:
        """The task at work."""
        return asyncio.current_task()

    def on_loop(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Itself: it is awaited."""
        return work

    async def execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call *fn*: a coroutine function here, another in a thread, which is waited for."""
        if inspect.iscoroutinefunction(fn):
            return await fn(*args, **kwargs)
        context = contextvars.copy_context()
        call = functools.partial(context.run, _whole, fn, *args, **kwargs)
        thread = asyncio.get_running_loop().run_in_executor(self._threads, call)
        try:
            answer = await asyncio.shield(thread)
        except asyncio.CancelledError:
            # A thread cannot be interrupted: the handler has not stopped before it has.
            while not thread.done():
                with suppress(asyncio.CancelledError, Exception):
                    await asyncio.shield(thread)
            raise
        return await answer if inspect.isawaitable(answer) else answer


class ThreadHands:
    """For a `def` handler, in whose thread its steps are executed."""

    sync = True

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.home: object = None  # the thread of the handler itself

    def begin(self) -> None:
        """The handler begins, in this thread."""
        self.home = threading.get_ident()

    def who(self) -> object:
        """The thread at work."""
        return threading.get_ident()

    def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for *work* on the loop, and do here what it asks this thread for."""
        jobs: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None]
        jobs = queue.SimpleQueue()

        async def asked() -> T:
            _JOBS.set(jobs)
            return await work

        done: Future[T] = asyncio.run_coroutine_threadsafe(asked(), self._loop)
        done.add_done_callback(lambda _: jobs.put(None))
        while (job := jobs.get()) is not None:
            call, answer = job
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
                self._loop.call_soon_threadsafe(_fail, answer, error)
            else:
                self._loop.call_soon_threadsafe(_succeed, answer, result)
        return done.result()

    async def execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call *fn* in the thread that waits for this; a coroutine function here."""
        if inspect.iscoroutinefunction(fn):
            return await fn(*args, **kwargs)
        context = contextvars.copy_context()
        answer: asyncio.Future[Any] = self._loop.create_future()
        _JOBS.get().put((functools.partial(context.run, _whole, fn, *args, **kwargs), answer))
        result = await answer
        return await result if inspect.isawaitable(result) else result


_JOBS: contextvars.ContextVar[Any] = contextvars.ContextVar("semel_jobs")


def _whole(fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call *fn*; no future can hold a StopIteration, so that is told as an error like others."""
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError(f"{fn!r} raised StopIteration") from error


def drive(work: Coroutine[Any, Any, T]) -> T:
    """The answer of a coroutine that never has to wait."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    work.close()
    raise RuntimeError("a coroutine for a thread waited")


def _succeed(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
