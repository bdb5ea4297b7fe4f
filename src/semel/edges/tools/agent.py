"""
Agent: the handler of `semel.tool`, the run that makes one call.

    look the tool up ──> leave to send, with the intent journaled ──> send ──> the answer journaled
          └──the server is down──> another attempt  ├──sent before, not to be repeated──> unknown
                                                    └──nobody waits any more──> nothing
    asks for input ──> an approval ──> resumed, once       says it answers later ──> parked

The run was made in the transaction that parked its caller; its result is what the caller's step is
told. A crash anywhere leaves either no intent, and the next attempt sends, or one, and the SQL
says whether the call may be repeated, under the same key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from semel.core.approvals import Link
from semel.core.tools import tool_send, tool_unsend
from semel.edges.tools import consent
from semel.edges.tools.server import Sending, Unanswered, Unsent, failed
from semel.errors import ApprovalRejected, LeaseLost, ToolDown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from uuid import UUID

    from semel.core.call import Call
    from semel.edges.tools.server import Answer, Server

T = TypeVar("T")

#: A tool that asks for input again and again is not indulged further.
ROUNDS_MAX = 10


class ToolRun(Protocol):
    """What it needs of a run."""

    @property
    def id(self) -> UUID:
        """The call's."""

    @property
    def project(self) -> str:
        """Of the call and its caller."""

    @property
    def worker(self) -> str:
        """Who holds the run."""

    @property
    def fence(self) -> int:
        """Of this attempt."""

    @property
    def input(self) -> Any:
        """As `semel.core.tools.Ask.told`."""

    def step(self, name: str, fn: Any, /, *args: Any) -> Any:
        """Execute a step."""

    def approval(self, title: str, *, action: Any, name: str | None = None) -> Any:
        """Ask people."""

    def answer(self) -> Any:
        """Wait for the callback."""


class Database(Protocol):
    """What it needs of a connection; `semel.db.link.Link` is one."""

    async def run(self, call: Call[T]) -> T:
        """The answer of *call*."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The call, as its run's input says it."""

    server: str
    tool: str
    arguments: dict[str, Any]
    key: str
    callback: bool


class Caller:
    """
    Makes calls.

    Args:
        servers: By name.
        links: What a callback begins with, without a slash at its end.
        clock: None, or the moment that a test says it is.
    """

    def __init__(
        self,
        servers: Mapping[str, Server],
        database: Database,
        *,
        links: str,
        clock: Callable[[], datetime | None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._servers = servers
        self._database = database
        self._links = links

    async def __call__(self, run: ToolRun) -> Answer:
        """
        What the caller's step is told.

        Raises:
            ToolDown: the tool was not reached, or may be asked again: another attempt does it.
            LeaseLost: the run is another's.
        """
        told = run.input
        asked = Asked(**{name: told[name] for name in Asked.__slots__})
        answer: Answer = await run.step("call", self._send, run, asked, 0, None, None)
        turn = 0
        while "input" in answer:
            turn += 1
            if turn > ROUNDS_MAX:
                return failed(f"it asked for input more than {ROUNDS_MAX} times")
            wanted = answer["input"]
            try:
                inputs = await self._consent(run, asked, turn, wanted["requests"])
            except consent.Unaskable as bad:
                return failed(str(bad))
            except ApprovalRejected as no:
                return {"rejected": str(no)}
            answer = await run.step(
                f"resume {turn}", self._send, run, asked, turn, wanted["state"], inputs
            )
        if "accepted" in answer:
            await run.answer()
        return answer

    async def _consent(
        self, run: ToolRun, asked: Asked, turn: int, requests: dict[str, Any]
    ) -> dict[str, Any] | None:
        """What a person gives; None where nobody is asked for anything."""
        if not requests:
            return None
        consent.check(requests)
        decided = await run.approval(
            consent.title(asked.server, asked.tool, requests),
            action={
                "server": asked.server,
                "tool": asked.tool,
                "arguments": asked.arguments,
                "asks": requests,
            },
            name=f"consent {turn}",
        )
        return consent.inputs(requests, decided["reason"])

    async def _send(
        self,
        run: ToolRun,
        asked: Asked,
        turn: int,
        state: str | None,
        inputs: dict[str, Any] | None,
    ) -> Answer:
        server = self._servers.get(asked.server)
        if server is None:
            raise ToolDown(f"this worker has no [tools.{asked.server}]: another one may")
        says = await server.look(asked.tool)
        if says is None:
            return {"refused": f"{asked.server} has no tool {asked.tool!r}"}
        link = Link.mint(run.project) if asked.callback else None
        held = (run.project, run.worker, run.id, run.fence)
        leave = await self._database.run(
            tool_send(*held, turn=turn, repeatable=says, link=link, now=self._clock())
        )
        match leave.outcome:
            case "lost":
                raise LeaseLost("another attempt makes the call")
            case "gone":
                return {"void": True}
            case "sent":
                return self._unknown(asked, "the worker that called it was lost in the call")
            case _:
                pass
        sending = Sending(
            tool=asked.tool,
            arguments=asked.arguments,
            key=asked.key,
            callback=f"{self._links}/tool/{link.token}" if link else None,
            seconds=leave.seconds_left,
            state=state,
            inputs=inputs,
        )
        try:
            return await server.send(sending)
        except Unsent:
            await self._database.run(tool_unsend(*held, turn=turn, now=self._clock()))
            raise
        except Unanswered as lost:
            if leave.repeatable:
                raise ToolDown(f"{lost}; it may be asked again") from None
            return self._unknown(asked, str(lost))

    def _unknown(self, asked: Asked, why: str) -> Answer:
        """Nobody knows what became of it; who was given a callback may still say."""
        return {"accepted": True, "reason": why} if asked.callback else {"unknown": why}
