"""Builders for calls of tools. Seconds count from NOW."""

from datetime import timedelta
from typing import Any

from durable import begin, claim, park
from fix_world import Conn, second
from semel.core import tools
from semel.core.approvals import Link
from semel.core.tools import Ask, Leave, Told
from semel.core.waits import Wait
from semel.db.execute import run
from semel.model import Claim

TOOL = "semel.tool"


def ask(key: str = "pods", due: float = 60, **more: Any) -> Wait:
    """The wait for a tool."""
    told: dict[str, Any] = {"server": "cluster", "tool": "list", "arguments": {}, "key": "k"}
    asked = Ask(**(told | more))
    return Wait(key=key, kind="tool", due=timedelta(seconds=due), ask=asked)


def asking(conn: Conn, **more: Any) -> tuple[Claim, Claim]:
    """A run that waits for a tool, and the claim of the run that makes the call."""
    caller = begin(conn)
    assert [("pods", "parked", None)] == park(conn, caller, ask(**more))
    return caller, claim(conn, "w2", agent=TOOL)


def send(
    conn: Conn,
    held: Claim,
    turn: int = 0,
    *,
    repeatable: bool = False,
    at: float = 0,
    **more: Any,
) -> Leave:
    call = tools.tool_send(
        "p", held.worker, held.run_id, held.fence, turn=turn, repeatable=repeatable,
        now=second(at), **more,
    )  # fmt: skip
    return run(conn, call)


def unsend(conn: Conn, held: Claim, turn: int = 0) -> str:
    call = tools.tool_unsend(
        "p", held.worker, held.run_id, held.fence, turn=turn, now=second(0)
    )
    return run(conn, call)


def answer(conn: Conn, link: Link, value: Any = 1, *, at: float = 0) -> Told:
    return run(conn, tools.tool_answer("p", link, {"result": value}, now=second(at)))
