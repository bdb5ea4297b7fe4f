"""
The seam of a tool server: a call goes in, and what the tool answered comes out.

    look ──> may it be repeated? ──> (the SQL's leave) ──> send ──> an answer, as a dict with one of
        result    JSON, what the caller gets
        error     {"message": …}: the tool's own, or that its answer cannot be kept
        refused   why the tool was not executed, and will not be
        accepted  it answers later, to the callback
        input     what it wants from a person first, and the sealed state to resume with

A server never repeats a call by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from semel.core.text import dump, load
from semel.errors import BadRequest, ToolDown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

Answer: TypeAlias = "dict[str, Any]"

#: A longer answer is an error: its tool should keep it elsewhere and answer where.
ANSWER_BYTES_MAX = 1024 * 1024
#: The journal counts what stands around a result as well.
KEPT_BYTES_MAX = ANSWER_BYTES_MAX - len('{"result":}')
#: Of what a tool says of a failure this much is kept.
SAID_CHARS_MAX = 2000
#: The name under which MCP tools find the callback, and say that they will use it.
META_CALLBACK, META_ACCEPTED = "semel/callback", "semel/accepted"
META_KEY = "idempotency_key"


class Unsent(ToolDown):
    """The call did not reach its tool. `retry_after`: the shortest pause that was asked for."""

    def __init__(self, said: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(said)
        self.retry_after = retry_after


class Unanswered(Exception):
    """The call may have reached its tool, and no answer that can be read came back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """One sending of a call."""

    tool: str
    arguments: dict[str, Any]
    key: str  # the same at each sending
    callback: str | None  # where it may answer later
    seconds: float  # then nobody waits any more
    state: str | None = None  # sealed, of an earlier answer
    inputs: Mapping[str, Mapping[str, Any]] | None = None  # what it asked for


class Server(Protocol):
    """One server, for as long as the worker lives."""

    async def look(self, tool: str) -> bool | None:
        """
        Whether a call of *tool* may be repeated; None: there is no such tool.

        Raises:
            Unsent: it cannot be asked now.
        """

    async def meet(self) -> None:
        """
        Return once it has shown that it is there.

        Raises:
            Unsent: it has not.
        """

    async def send(self, sending: Sending) -> Answer:
        """
        What the tool answers.

        Raises:
            Unsent, Unanswered.
        """

    async def close(self) -> None:
        """Let go of it, and end what was started for it."""


def kept(value: Any) -> Answer:
    """*value* as the answer of a tool, or the error that it cannot be kept."""
    try:
        raw = dump(value).encode()
        load(b'{"result":' + raw + b"}")
    except (TypeError, ValueError, RecursionError, BadRequest) as bad:
        return failed(f"it answered what is no JSON that can be kept: {bad}")
    size = len(raw)
    if size > KEPT_BYTES_MAX:
        return failed(
            f"it answered {size} bytes; at most {KEPT_BYTES_MAX} are kept. What it did stands"
        )
    return {"result": value}


def failed(said: str, **more: Any) -> Answer:
    """That the tool failed, as it says."""
    return {"error": {"message": said_of(said), **more}}


def said_of(said: object) -> str:
    """What somebody outside said, fit to be kept: cut, and without what jsonb cannot hold."""
    text = str(said)[:SAID_CHARS_MAX].replace("\0", "")
    return text.encode("utf-8", "replace").decode()
