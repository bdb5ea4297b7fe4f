"""
App: the agents of one program, and how a worker finds them.

    app = App()

    @app.agent("triage", max_attempts=3)
    async def triage(run: Run) -> dict: ...

Nothing starts by importing an application; `semel worker FILE` or `semel worker MODULE` does.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from semel.errors import BadConfig
from semel.runtime.handlers import Agent, Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from semel.runtime.handlers import Executor

F = TypeVar("F", bound="Callable[..., Any]")


class App:
    """The agents of one program, by name."""

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        self.compensations: dict[str, Callable[..., Any]] = {}

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

        Raises:
            BadConfig: the name is taken, or the settings contradict the function.
        """

        def register(handler: F) -> F:
            if name in self.agents:
                raise BadConfig(f"agent {name} is registered twice; give one another name")
            if name.startswith("semel."):
                raise BadConfig(f"agent {name}: names that begin with semel. are Semel's own")
            fitting: Executor = "async" if inspect.iscoroutinefunction(handler) else "thread"
            self.agents[name] = Agent(
                name=name,
                handler=handler,
                max_attempts=max_attempts,
                concurrency=concurrency,
                executor=executor or fitting,
                backoff=backoff or Backoff(),
                version=version,
                joins=joins,
            )
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
