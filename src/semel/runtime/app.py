"""
App: the agents of one program, and how a worker finds them.

    app = App()

    @app.agent("triage", max_attempts=3)
    async def triage(run: Run) -> dict: ...

Nothing starts by importing an application; `semel worker FILE` or `semel worker MODULE` does.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from semel import log
from semel.core import flow
from semel.core.schedule_spec import check_name
from semel.errors import BadConfig, BadRequest
from semel.runtime.handlers import Agent, Backoff
from semel.runtime.schedules import say
from semel.runtime.tools import FUNCTION, Tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import timedelta

    from semel.core.schedule_spec import CatchUp, Overlap, Spec
    from semel.model import Json
    from semel.runtime.handlers import Executor

F = TypeVar("F", bound="Callable[..., Any]")


#: How long what an agent of Semel's own holds may take to be let go.
ENDING_SECONDS_MAX = 5.0


class App:
    """
    The agents and schedules of one program, by name.

    Args:
        name: The program's, where its file's or module's is not its own: what one program said of
            schedules in a project, another of that name takes back.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = None if name is None else check_name(name)
        self.agents: dict[str, Agent] = {}
        self.schedules: dict[str, Spec] = {}
        self.compensations: dict[str, Callable[..., Any]] = {}
        self.tools: dict[str, Tool] = {}
        #: What the worker awaits as it leaves: whoever serves an agent of Semel's own adds to it.
        self.endings: list[Callable[[], Awaitable[None]]] = []

    def agent(
        self,
        name: str,
        *,
        max_attempts: int = 3,
        concurrency: int | None = None,
        executor: Executor | None = None,
        backoff: Backoff | None = None,
        version: str = "",
        joins: bool = False,
        rate: str | None = None,
        per: str | None = None,
        per_limit: int | None = None,
    ) -> Callable[[F], F]:
        """
        Register the function below as the handler of agent *name*.

        Args:
            name: 1 to 128 of A-Z, a-z, 0-9, `_`, `.` and `-`.
            max_attempts: How often a run may start; a crash counts, a deploy does not.
            concurrency: Runs at once in a project over all workers; exact, from live leases.
            executor: `async` for `async def`, `thread` for `def`, or `process` for a handler that
                holds the interpreter or may crash it. By default as the function is written.
            backoff: The wait before another attempt.
            version: Of its code, 1 to 64 characters: a run that one version began is claimed by
                workers of that version only. Deploy the old one beside the new until it has none.
            joins: Events of one correlation key (an alert group, a chat, a pull request) are
                signals named `event` to its live run, instead of starting another.
            rate: "100/1m": so many claims in that time over all workers of a project, and as many
                at once after a quiet time. A retry and a resume are claims too.
            per: Where in the input a run's concurrency key is, as `customer.id`: a text, number
                or truth; a run without one is not limited by it.
            per_limit: Runs of one key at once, by default 1; also of the keys that a start gives.

        Raises:
            BadConfig: the name is taken, or the settings contradict the function.
        """

        def register(handler: F) -> F:
            if name in self.agents:
                raise BadConfig(f"agent {name} is registered twice; give one another name")
            if name.startswith("semel."):
                raise BadConfig(f"agent {name}: names that begin with semel. are Semel's own")
            fitting: Executor = "async" if inspect.iscoroutinefunction(handler) else "thread"
            try:
                declared = flow.Flow(
                    rate=None if rate is None else flow.rate(rate),
                    per=None if per is None else flow.path(per),
                    per_limit=per_limit,
                )
            except BadRequest as bad:
                raise BadConfig(f"agent {name}: {bad}") from None
            self.agents[name] = Agent(
                name=name,
                handler=handler,
                max_attempts=max_attempts,
                concurrency=concurrency,
                executor=executor or fitting,
                backoff=backoff or Backoff(),
                version=version,
                joins=joins,
                flow=declared,
            )
            return handler

        return register

    def schedule(
        self,
        name: str,
        *,
        cron: str | None = None,
        every: timedelta | str | None = None,
        timezone: str = "UTC",
        agent: str | None = None,
        input: Mapping[str, Json] | None = None,  # noqa: A002 - the contract's word
        priority: int = 5,
        catch_up: CatchUp = "last",
        catch_up_max: int = 100,
        overlap: Overlap = "allow",
        jitter: timedelta | str = "0s",
    ) -> Callable[[F], F]:
        """
        Start a run of *agent* at each tick, in the project of `semel.toml`.

        It stands above a handler, or is called for its effect. An operator's edit of the same
        name is in force until it is cleared. `run.input["schedule"]` says which tick it is.

        Args:
            name: 1 to 128 of A-Z, a-z, 0-9, `_`, `.` and `-`.
            cron: Minute, hour, day, month, weekday; or six fields, the first being seconds.
            every: Instead: whole seconds, as in "15m"; counted from 1970-01-01 00:00 UTC.
            timezone: In which *cron* is read, by IANA's name.
            agent: Whose run; None: of the function below, which is registered already.
            input: Its input, an object; a member `schedule` is added.
            priority: 0 (last) to 9 (first).
            catch_up: Of the ticks that nobody fired within a minute: none, the last, or all.
            catch_up_max: all: the newest so many, at most 1000.
            overlap: `skip` starts no run while the last one of this schedule is live.
            jitter: A run starts up to this much after its tick; less than two ticks are apart.

        Raises:
            BadSchedule: it never comes, or says what cannot be.
        """
        told = {
            "cron": cron,
            "every": every,
            "timezone": timezone,
            "input": input,
            "priority": priority,
            "catch_up": catch_up,
            "catch_up_max": catch_up_max,
            "overlap": overlap,
            "jitter": jitter,
        }
        if agent is not None:
            say(self, name, {**told, "agent": agent})

        def register(handler: F) -> F:
            if agent is None:
                say(self, name, told, handler=handler)
            return handler

        return register

    def builtin(
        self, name: str, handler: Callable[[Any], Any], *, max_attempts: int, backoff: Backoff
    ) -> None:
        """Serve an agent of Semel's own beside the program's; whoever starts the worker asks."""
        self.agents[name] = Agent(
            name=name,
            handler=handler,
            max_attempts=max_attempts,
            concurrency=None,
            executor="async",
            backoff=backoff,
            builtin=True,
        )

    def tool(self, name: str, *, idempotent: bool = False) -> Callable[[F], F]:
        """
        Register the function below as the tool *name*, for `run.tool("app", name, {...})`.

        It is called by name with the arguments, `def` in a thread and `async def` on the worker's
        loop, and given `idempotency_key` and `callback` (where to post a later answer) if it has
        parameters of those names. What it returns is JSON; what it raises, the caller gets as a
        ToolError.

        Args:
            name: 1 to 100 of A-Z, a-z, 0-9, `_`, `.` and `-`.
            idempotent: It may be called again under the same key, after a crash in the middle of
                it; else such a call ends with ToolUnknown.

        Raises:
            BadConfig: the name is taken, or none.
        """

        def register(fn: F) -> F:
            if name in self.tools:
                raise BadConfig(f"tool {name} is registered twice; give one another name")
            if not FUNCTION.fullmatch(name):
                raise BadConfig(f"tool {name!r}: write 1 to 100 of A-Z, a-z, 0-9, _, . and -")
            self.tools[name] = Tool(name=name, fn=fn, idempotent=idempotent)
            return fn

        return register

    async def end(self) -> None:
        """Let go of what agents of Semel's own hold, such as the servers of tools."""
        for ending in self.endings:
            try:
                async with asyncio.timeout(ENDING_SECONDS_MAX):
                    await ending()
            except Exception as error:  # noqa: BLE001 - a worker that leaves must end
                log.event("worker.failed_ending", reason=type(error).__name__)

    def compensation(self, name: str) -> Callable[[F], F]:
        """
        Register the function below as the undo *name*, for `run.step(..., undo=...)`.

        It is called as `undo(*args, **kwargs, result=...)`: the step's arguments as JSON gave
        them back, and its result, or None when the step may have acted without answering. It may
        be called more than once for the same step, so let it undo what is there; it takes `run`
        too if it has a parameter of that name.

        Raises:
            BadConfig: the name is taken.
        """

        def register(undo: F) -> F:
            if name in self.compensations:
                raise BadConfig(
                    f"compensation {name} is registered twice; give one another name"
                )
            self.compensations[name] = undo
            return undo

        return register


def load(target: str) -> App:
    """
    The application that *target* names.

    Args:
        target: `path/file.py`, `package.module`, or either with `:name` of the App in it.

    Raises:
        BadConfig: there is no such file, module or App; the message says which.
    """
    place, _, name = target.partition(":")
    module = _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
    if name:
        found = getattr(module, name, None)
        if not isinstance(found, App):
            raise BadConfig(f"{target}: {name} is no semel.App there")
        return found
    apps = [value for value in vars(module).values() if isinstance(value, App)]
    if len(apps) != 1:
        raise BadConfig(f"{target}: found {len(apps)} Apps; name one, as in {place}:app")
    return apps[0]


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise BadConfig(f"{path}: no such file (looked from {Path.cwd()})")
    path = path.resolve()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"semel_app_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise BadConfig(f"{path}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def _from_module(name: str) -> Any:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name and (name == missing.name or name.startswith(missing.name + ".")):
            raise BadConfig(f"{name}: no such module (looked from {Path.cwd()})") from None
        raise
