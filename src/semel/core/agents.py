"""
Agents: pause them, resume them, limit them, and wake who waits for their runs.

One function here per function in sql/functions/agents.sql: same name, same arguments; and the
one NOTIFY there is, which no correctness rests on. Nothing here opens a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.call import Call, nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.core.flow import Rate


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


def agent_set(
    project: str,
    agent: str,
    what: Sequence[str],
    *,
    concurrency: int | None = None,
    rate: Rate | None = None,
    per_limit: int | None = None,
) -> Call[str]:
    """
    Set limits of *agent* in place of what its code says; answers won or already.

    Args:
        what: Which are set, of concurrency, rate and per_limit. None, in the argument of that
            name, is no limit; per_limit is always one.

    Source: sql/functions/agents.sql, agent_set.
    """
    return Call(
        "select outcome from semel.agent_set(%s, %s, %s::text[], %s, %s, %s, %s)",
        (
            project,
            agent,
            list(what),
            concurrency,
            rate.claims if rate else None,
            rate.span if rate else None,
            per_limit,
        ),
        lambda rows: str(rows[0][0]),
    )


def agent_clear(project: str, agent: str, what: Sequence[str] | None = None) -> Call[str]:
    """
    Let the code of *agent* say again what was set, None: all; answers won or already.

    Source: sql/functions/agents.sql, agent_clear.
    """
    return Call(
        "select outcome from semel.agent_clear(%s, %s, %s::text[])",
        (project, agent, None if what is None else list(what)),
        lambda rows: str(rows[0][0]),
    )


def agent_wake(agents: Sequence[str]) -> Call[None]:
    """Tell idle workers that there is work for *agents*; only after the commit that made it."""
    return Call(
        "select pg_notify('semel', agent) from unnest(%s::text[]) as agent",
        (list(agents),),
        nothing,
    )
