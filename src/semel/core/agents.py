"""
Agents: pause them, resume them, and wake who waits for their runs.

One function here per function in sql/functions/agents.sql: same name, same arguments; and the
one NOTIFY there is, which no correctness rests on. Nothing here opens a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.call import Call, nothing

if TYPE_CHECKING:
    from collections.abc import Sequence


def agent_pause(project: str, agent: str) -> Call[str]:
    """
    Claim no run of *agent* until it is resumed; answers won or already.

    Source: sql/functions/agents.sql, agent_pause.
    """
    return Call(
        "select outcome from semel.agent_pause(%s, %s)",
        (project, agent),
        lambda rows: str(rows[0][0]),
    )


def agent_resume(project: str, agent: str) -> Call[str]:
    """
    Claim runs of *agent* again; answers won or already.

    Source: sql/functions/agents.sql, agent_resume.
    """
    return Call(
        "select outcome from semel.agent_resume(%s, %s)",
        (project, agent),
        lambda rows: str(rows[0][0]),
    )


def agent_wake(agents: Sequence[str]) -> Call[None]:
    """Tell idle workers that there is work for *agents*; only after the commit that made it."""
    return Call(
        "select pg_notify('semel', agent) from unnest(%s::text[]) as agent",
        (list(agents),),
        nothing,
    )
