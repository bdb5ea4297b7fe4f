"""
Way: from a handler's call to its journal.

Each method answers as the handler is: an awaitable in an `async def` one, the result itself in a
`def` one, whose thread waits.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from semel.core.runs import span
from semel.core.text import dump
from semel.core.tools import Ask
from semel.errors import BadRequest, SemelError, UnknownUndo
from semel.runtime.journal import check_name
from semel.runtime.progress import STEP_KEY
from semel.runtime.retry import Retry
from semel.runtime.tools import TIMEOUT_MAX, checked
from semel.runtime.transaction import Transaction
from semel.runtime.waiting import Waiting, question

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from uuid import UUID

    from semel.runtime.hands import Hands
    from semel.runtime.progress import Progress

T = TypeVar("T")
#: How long an approval may wait.
TTL_MIN, TTL_MAX = timedelta(seconds=1), timedelta(days=366)
#: Who asks, and whether that is the handler itself.
Asker: TypeAlias = "dict[str, Any]"

#: Arguments of a step with an undo are kept: this much of them.
ARGUMENTS_BYTES_MAX = 256 * 1024


class Way:
    """The calls of one handler; documented at `Run`."""

    def __init__(self, progress: Progress, hands: Hands, home: object) -> None:
        self._progress = progress
        self._waiting = Waiting(progress)
        self._hands = hands
        # The task or thread of the handler itself: what it asks for has a place.
        self._home = home

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        retry: Retry | int | None,
        undo: Callable[..., Any] | str | None,
        kind: str = "step",
    ) -> Any:
        """See `Run.step`."""
        hands = self._hands
        intent = self._intent(name, undo, args, kwargs) if undo is not None else None
        wants_key = "idempotency_key" not in kwargs and _takes(fn, "idempotency_key")

        async def execute() -> Any:
            more = {"idempotency_key": STEP_KEY.get()} if wants_key else {}
            return await hands.execute(fn, *args, **kwargs, **more)

        tries = Retry.of(retry)

        def asked(asker: Asker) -> Coroutine[Any, Any, Any]:
            if kind == "undo":
                asker["home"] = False  # what is undone is not asked for again: it has no places
            return self._progress.step(
                name, execute, **asker, retry=tries, intent=intent, kind=kind
            )

        return self._ask(asked)

    def transaction(
        self,
        name: str,
        fn: Callable[..., Any] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        using: Any,
    ) -> Any:
        """See `Run.transaction`."""
        transaction = Transaction(
            self._progress, self._hands, name, home=self._home, using=using
        )
        if fn is None:
            return transaction
        self._gone_on()
        return transaction.called(fn, args, kwargs)

    def approval(
        self, name: str | None, title: str, action: Any, ttl: Any, **options: Any
    ) -> Any:
        """See `Run.approval`."""
        desk = self._progress.desk
        asked = question(desk, title, action, **options)
        ttl = desk.ttl if ttl is None else ttl
        if not (isinstance(ttl, timedelta) and TTL_MIN <= ttl <= TTL_MAX):
            raise BadRequest(
                f"ttl={ttl}: an approval waits for {TTL_MIN} to {TTL_MAX.days} days"
            )
        return self._ask(
            lambda asker: self._waiting.approval(name or title, asked, ttl, **asker)
        )

    def sleep(self, name: str, delay: timedelta | float) -> Any:
        """See `Run.sleep`."""
        try:
            wait = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        except (TypeError, ValueError, OverflowError):
            raise BadRequest(f"a sleep of {delay!r}: write seconds, or a timedelta") from None
        span("delay", wait)
        return self._ask(lambda asker: self._waiting.sleep(name, wait, **asker))

    def signal(self, name: str, timeout: timedelta | None) -> Any:
        """See `Run.signal`."""
        check_name(name)
        span("timeout", timeout)
        return self._ask(lambda asker: self._waiting.signal(name, timeout, **asker))

    def spawn(self, name: str, agent: Any, value: Any, options: dict[str, Any]) -> Any:
        """See `Run.spawn`."""
        if not isinstance(agent, str) or agent.startswith("semel."):
            raise BadRequest(f"{agent!r} is no agent that a run may start"[:150])
        if not isinstance(options["priority"], int):
            raise BadRequest(f"priority={options['priority']!r}: write 0 (last) to 9 (first)")
        for what in ("delay", "deadline"):
            span(what, options[what])
        try:
            text = dump(value)
        except (TypeError, ValueError, RecursionError) as bad:
            raise BadRequest(f"the input of a run of {agent} is no JSON: {bad}"[:300]) from None

        async def spawned(asker: Asker) -> Child:
            key, child = await self._waiting.spawn(name, agent, text, options, **asker)
            return Child(id=child, agent=agent, name=key, _way=self)

        return self._ask(spawned)

    def child(self, name: str, child: UUID, timeout: timedelta | None) -> Any:
        """See `Child.result`."""
        span("timeout", timeout)
        return self._ask(
            lambda asker: self._waiting.child(f"{name}.result", child, timeout, **asker)
        )

    def tool(
        self,
        name: str | None,
        server: str,
        tool: str,
        arguments: Any,
        timeout: Any,
        *,
        callback: bool,
    ) -> Any:
        """See `Run.tool`."""
        arguments = checked(server, tool, arguments)
        tools = self._progress.desk.tools
        within = tools.timeout(server) if timeout is None else timeout
        if not isinstance(within, timedelta) or not timedelta(0) < within <= TIMEOUT_MAX:
            raise BadRequest(
                f"timeout={timeout!r}: a tool is waited for up to {TIMEOUT_MAX.days} days"
            )
        name = f"{server}.{tool}" if name is None else name
        check_name(name)
        ask = Ask(
            server=server,
            tool=tool,
            arguments=arguments,
            key="",  # of the step, whose key its journal knows
            callback=bool(callback),
            attempts=tools.attempts(server),
        )
        return self._ask(lambda asker: self._waiting.tool(name, ask, within, **asker))

    def answer(self) -> Any:
        """See `Run.answer`."""
        return self._ask(lambda asker: self._waiting.answer(**asker))

    def patched(self, name: str) -> bool:
        """See `Run.patched`."""
        if not self._asker()["home"]:
            raise BadRequest("ask run.patched in the handler itself, not in a task beside it")
        return self._progress.patched(name)

    def _ask(self, work: Callable[[Asker], Coroutine[Any, Any, T]]) -> Any:
        """
        Have *work* done for whoever asks.

        That is who awaits it, and not who called: a step that is handed to a task beside the
        handler begins when that task comes to it, so it has no place.
        """
        if self._hands.sync:
            return self._hands.on_loop(work(self._asker()))

        self._gone_on()

        async def later() -> T:
            return await work(self._asker())

        return self._hands.on_loop(later())

    def _gone_on(self) -> None:
        """Who calls has gone on from what failed, though a task beside it may await the step."""
        with suppress(RuntimeError):  # a thread that hands it to the loop
            self._progress.goes_on(**self._asker())

    def _asker(self) -> Asker:
        who = self._hands.who()
        return {"who": who, "home": who == self._home}

    def _intent(
        self,
        name: str,
        undo: Callable[..., Any] | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> dict[str, Any]:
        try:
            return intent(self._progress.desk.undos, undo, args, kwargs)
        except UnknownUndo as bad:
            raise self._progress.breaks(UnknownUndo(f"step {name!r}: {bad}")) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A run that a run has started."""

    id: UUID
    agent: str
    name: str  # the key of the step that started it: several may be waited for in parallel
    _way: Way

    def result(self, *, timeout: timedelta | None = None) -> Any:
        """
        Wait for its end; answers its result. The slot is free meanwhile.

        Raises:
            ChildFailed: it ended FAILED or CANCELLED.
            WaitTimedOut: it did not end within *timeout*; it goes on.
        """
        return self._way.child(self.name, self.id, timeout)


def intent(
    undos: Mapping[str, Callable[..., Any]],
    undo: Callable[..., Any] | str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> dict[str, Any]:
    """
    What is journaled before a step with an undo is executed.

    Raises:
        UnknownUndo: it is not registered, or cannot be called with these arguments.
    """
    if isinstance(undo, str):
        name, fn = undo, undos.get(undo)
    else:
        name, fn = next(((n, f) for n, f in undos.items() if f is undo), ("", None))
    if fn is None:
        told = undo if isinstance(undo, str) else getattr(undo, "__name__", repr(undo))
        raise UnknownUndo(f"undo {told!r} is not registered; put @app.compensation(…) on it")
    try:
        inspect.signature(fn).bind(*args, **{**_extra(fn), **kwargs})
    except TypeError as bad:
        raise UnknownUndo(
            f"undo {name!r} cannot be called as the step's arguments ask: {bad}"
        ) from None
    try:
        size = len(dump([args, kwargs]).encode())
    except (TypeError, ValueError, RecursionError) as bad:
        raise UnknownUndo(
            f"the arguments of a step with an undo are kept as JSON: {bad}"
        ) from None
    if size > ARGUMENTS_BYTES_MAX:
        raise UnknownUndo(f"the arguments have {size} bytes; {ARGUMENTS_BYTES_MAX} can be kept")
    return {"undo": name, "args": list(args), "kwargs": kwargs}


def _extra(fn: Callable[..., Any]) -> dict[str, Any]:
    """What an undo is called with beside the step's arguments, as far as it takes them."""
    return {name: None for name in ("result", "run", "idempotency_key") if _takes(fn, name)}


def undo_arguments(fn: Callable[..., Any], result: Any, run: Any) -> dict[str, Any]:
    """The keywords of an undo beside the step's arguments; its key is filled in as for any step."""
    given = {"result": result, "run": run}
    return {name: value for name, value in given.items() if _takes(fn, name)}


def _takes(fn: Callable[..., Any], name: str) -> bool:
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False
    found = parameters.get(name)
    return found is not None and found.kind in {
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    }


def idempotency_key() -> str:
    """
    The key of the step that is being executed: a uuid, the same in every attempt of its run.

    Pass it to what the step calls, so that a repetition after a crash is recognised there.

    Raises:
        SemelError: no step is being executed here.
    """
    try:
        return STEP_KEY.get()
    except LookupError:
        raise SemelError(
            "semel.idempotency_key() is for functions that run.step executes"
        ) from None
