"""
Tools: what a handler may call by `run.tool`, and what the answer of one means to it.

A server is a section of semel.toml, `app` (functions of the program, `App.tool`) or `agents`
(runs). Nothing here makes a call: the run of the agent `semel.tool` does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.core.text import dump
from semel.core.tools import AGENTS, APP, Ask
from semel.errors import (
    ApprovalRejected,
    BadRequest,
    SemelError,
    ToolError,
    ToolNotCalled,
    ToolTimedOut,
    ToolUnknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from semel.config import ToolServer

NAME_BYTES_MAX = 255
#: Arguments are kept with the call: this much of them.
ARGUMENTS_BYTES_MAX = 256 * 1024
#: For `app` and `agents`, where the code does not say.
TIMEOUT = timedelta(minutes=5)
TIMEOUT_MAX = timedelta(days=366)
#: Of a call to `app`: a function that takes its worker along does so no more often.
ATTEMPTS = 3
#: What a function may be called: it is part of an agent's name.
FUNCTION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function of the program, under its name."""

    name: str
    fn: Callable[..., Any]
    idempotent: bool  # may be called again under the same key


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a configured server is to a handler."""

    timeout: timedelta
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """The servers and functions that the handlers of one process know."""

    servers: Mapping[str, Reach] = field(default_factory=dict)
    functions: frozenset[str] = frozenset()

    @classmethod
    def of(cls, functions: Iterable[str], servers: Mapping[str, tuple[float, int]]) -> Toolbox:
        """Of these functions, and servers with their timeouts in seconds and attempts."""
        reaches = {
            name: Reach(timeout=timedelta(seconds=seconds), attempts=attempts)
            for name, (seconds, attempts) in servers.items()
        }
        return cls(servers=reaches, functions=frozenset(functions))

    def missing(self, ask: Ask) -> ToolNotCalled | None:
        """Why *ask* leads nowhere, as far as that is known here."""
        if ask.server == AGENTS:
            return None
        if ask.server == APP:
            if ask.tool in self.functions:
                return None
            there = ", ".join(sorted(self.functions)) or "none"
            return ToolNotCalled(
                f"the program has no tool {ask.tool[:80]!r} (there are {there});"
                f' put @app.tool("{ask.tool[:80]}") on it'
            )
        if ask.server in self.servers:
            return None
        there = ", ".join(sorted({*self.servers, APP, AGENTS}))
        return ToolNotCalled(
            f"no tool server is called {ask.server[:80]!r} (there are {there});"
            f" add [tools.{ask.server[:80]}] to semel.toml"
        )

    def timeout(self, server: str) -> timedelta:
        """How long *server* is waited for where the code does not say."""
        reach = self.servers.get(server)
        return reach.timeout if reach else TIMEOUT

    def attempts(self, server: str) -> int | None:
        """How often the run of a call to *server* may start; None: as its agent says."""
        if server == AGENTS:
            return None
        reach = self.servers.get(server)
        return reach.attempts if reach else ATTEMPTS


def told_of(servers: Mapping[str, ToolServer]) -> dict[str, tuple[float, int]]:
    """The configured *servers* as `Toolbox.of` takes them; JSON."""
    return {
        name: (each.timeout.total_seconds(), each.attempts) for name, each in servers.items()
    }


def checked(server: Any, tool: Any, arguments: Any) -> Any:
    """
    The arguments of a call; a program that nobody type-checks may say anything.

    Raises:
        BadRequest: they are none, or the server or tool is.
    """
    for what, name in (("server", server), ("tool", tool)):
        fits = isinstance(name, str) and "\0" not in name
        if not fits or not 1 <= len(name.encode("utf-8", "replace")) <= NAME_BYTES_MAX:
            raise BadRequest(
                f"a {what}'s name is a text of 1 to {NAME_BYTES_MAX} bytes, not {name!r}"[:150]
            )
    if server == AGENTS:
        if tool.startswith("semel."):
            raise BadRequest(f"{tool!r} is no agent that a run may start"[:150])
    else:
        arguments = {} if arguments is None else arguments
        if not isinstance(arguments, dict):
            raise BadRequest(
                f"the arguments of {server}.{tool} are {type(arguments).__name__}:"
                " write a dict, by name"
            )
    try:
        size = len(dump(arguments).encode())
    except (TypeError, ValueError, RecursionError) as bad:
        raise BadRequest(f"the arguments of {server}.{tool} are no JSON: {bad}"[:300]) from None
    if size > ARGUMENTS_BYTES_MAX:
        raise BadRequest(
            f"the arguments of {server}.{tool} have {size} bytes;"
            f" {ARGUMENTS_BYTES_MAX} can be kept"
        )
    return arguments


def value_of(ask: Ask, answer: dict[str, Any], timeout: timedelta) -> Any:
    """
    What the handler is given for *answer*, which its journal has.

    Raises:
        ToolError, ToolTimedOut, ToolUnknown, ToolNotCalled, ApprovalRejected: by the answer.
    """
    if "result" in answer:
        return answer["result"]
    raise _error_of(f"{ask.server}.{ask.tool}", answer, timeout)


def _error_of(name: str, answer: dict[str, Any], timeout: timedelta) -> SemelError:
    match answer:
        case {"error": error}:
            said = error.get("message") if isinstance(error, dict) else error
            return ToolError(f"{name}: {said or 'it failed and does not say why'}")
        case {"rejected": why}:
            return ApprovalRejected(f"{name}: {why}")
        case {"timed_out": _, "sent": sent}:
            acted = "it was sent, and may act" if sent else "it was never sent"
            return ToolTimedOut(f"{name} did not answer within {timeout}: {acted}")
        case {"refused": why}:
            return ToolNotCalled(f"{name} was not called: {why}")
        case {"unknown": why}:
            return ToolUnknown(f"{name} was called and did not answer: {why}")
        case _:
            return ToolUnknown(f"{name} was called, and its answer is none")
