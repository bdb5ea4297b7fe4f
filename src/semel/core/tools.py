"""
Tools: send a call, take it back, and answer one from outside.

One function here per function in sql/functions/tools.sql that is called from outside it. What a
tool answers later with is a link's token, as an approval's; the database keeps its SHA-256 only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from semel.core.call import Call
from semel.core.text import dump

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from semel.core.approvals import Link

#: Servers that are in no semel.toml: functions of the program itself, and agents.
APP, AGENTS = "app", "agents"
#: The agent whose runs make the calls; of a function, `semel.tool.` and its name.
AGENT = "semel.tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a step asks of a tool."""

    server: str
    tool: str
    arguments: Any  # JSON
    key: str  # the idempotency key
    callback: bool = False  # it may answer later
    attempts: int | None = None  # of the run that makes the call

    def told(self) -> dict[str, Any]:
        """As `tool_ask` reads it, and as the input of the call's run."""
        return {
            "server": self.server,
            "tool": self.tool,
            "arguments": self.arguments,
            "key": self.key,
            "callback": self.callback,
            "attempts": self.attempts,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Whether a call may be sent."""

    outcome: Literal["won", "sent", "gone", "lost"]
    repeatable: bool
    seconds_left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What became of an answer from outside."""

    call_id: UUID | None
    run_id: UUID | None
    outcome: Literal["won", "already", "unknown"]
    state: str | None
    agent: str | None  # whose run goes on


def tool_send(
    project: str,
    worker: str,
    run_id: UUID,
    fence: int,
    *,
    turn: int,
    repeatable: bool,
    link: Link | None = None,
    now: datetime | None = None,
) -> Call[Leave]:
    """
    Journal that the call of the run *run_id* is sent now, if it may be.

    Args:
        turn: 0 is the call; each next one resumes a sealed state.
        repeatable: What the tool says; the first time counts.
        link: What it may answer with later.

    Source: sql/functions/tools.sql, tool_send.
    """
    return Call(
        "select outcome, repeatable, seconds_left"
        " from semel.tool_send(%s, %s, %s, %s, %s, %s, %s, %s)",
        (project, worker, run_id, fence, turn, repeatable, link and link.hash, now),
        lambda rows: Leave(outcome=rows[0][0], repeatable=rows[0][1], seconds_left=rows[0][2]),
    )


def tool_unsend(
    project: str,
    worker: str,
    run_id: UUID,
    fence: int,
    *,
    turn: int,
    now: datetime | None = None,
) -> Call[str]:
    """
    Take back that it was sent: it never left. Answers won or lost.

    Source: sql/functions/tools.sql, tool_unsend.
    """
    return Call(
        "select semel.tool_unsend(%s, %s, %s, %s, %s, %s)",
        (project, worker, run_id, fence, turn, now),
        lambda rows: str(rows[0][0]),
    )


def tool_answer(
    project: str, link: Link, answer: Mapping[str, Any], *, now: datetime | None = None
) -> Call[Told]:
    """
    Answer a call from outside: {"result": …} or {"error": {"message": …}}.

    Source: sql/functions/tools.sql, tool_answer.
    """
    return Call(
        "select call_id, run_id, outcome, state, agent from semel.tool_answer(%s, %s, %s, %s)",
        (project, link.hash, dump(answer), now),
        lambda rows: Told(
            call_id=rows[0][0],
            run_id=rows[0][1],
            outcome=rows[0][2],
            state=rows[0][3],
            agent=rows[0][4],
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the metrics show of calls, over all projects."""

    open: list[tuple[str, str, int]]  # server, state, how many
    ended: list[tuple[tuple[UUID, str], tuple[str, str, float]]]  # call; server, state, seconds


def tool_figures(within: timedelta) -> Call[Figures]:
    """Calls that go on, and those whose callers were told *within* this time."""

    def read(rows: Sequence[Any]) -> Figures:
        return Figures(
            open=[(server, state, count) for _, server, state, _, count, _ in rows if count],
            ended=[
                ((run_id, key), (server, state, seconds))
                for run_id, server, state, key, count, seconds in rows
                if not count
            ],
        )

    return Call(
        "select null::uuid, t.server, t.state, null, count(*)::int, null::float8"
        " from semel.tools as t where t.answered_at is null group by t.server, t.state"
        " union all select t.run_id, t.server, t.state, t.step_key, 0,"
        "  extract(epoch from t.answered_at - t.asked_at)::float8 from semel.tools as t"
        " where t.answered_at > statement_timestamp() - %s",
        (within,),
        read,
    )


def unknown_calls(within: timedelta) -> Call[list[tuple[str, str, UUID]]]:
    """Calls whose outcome nobody knows, of those that ended *within* this time; newest first."""
    return Call(
        "select t.project_id, t.server || '.' || t.tool, t.run_id from semel.tools as t"
        " where t.state = 'UNKNOWN' and t.answered_at > statement_timestamp() - %s"
        " order by t.answered_at desc",
        (within,),
        lambda rows: [(project, tool, run_id) for project, tool, run_id in rows],
    )
