"""`semel agent`: which agents there are, and whether their runs are claimed."""

from typing import Annotated, Any

import typer

from semel.config.settings import AGENT
from semel.core import agents, reads
from semel.db.execute import run
from semel.ops.cli.command import Desk, command, group

agent = group("Agents.")

_COLUMNS = (
    "agent",
    "project_id",
    "waiting",
    "running",
    "max_running",
    "max_attempts",
    "executor",
    "versions",
    "begun",
    "unserved",
    "paused_at",
    "seen_at",
)


def _name(written: str) -> str:
    if not AGENT.fullmatch(written):
        raise typer.BadParameter(
            f"{written[:150]!r} is no agent: 1 to 128 of A-Z, a-z, 0-9, _, . and -"
        )
    return written


Name = Annotated[str, typer.Argument(metavar="AGENT", parser=_name)]


@command(agent, "list")
def list_(desk: Desk) -> None:
    """
    Agents, how many of their runs wait and run, and their limits.

    VERSIONS are those of the code that live workers have, BEGUN counts the live runs of each
    version that began some, and UNSERVED the ready ones that no live worker will claim, '' being
    those that no version began.
    """
    with desk.connection() as conn:
        found: list[dict[str, Any]] = []
        for project in desk.projects(conn):
            within = desk.settings.worker.dead_after
            found += run(conn, reads.list_agents(project, within=within))
    desk.listing(
        found,
        _COLUMNS,
        f"no worker has announced an agent, and no run waits for one, in {desk.where}",
    )


@command(agent, "pause")
def pause(desk: Desk, name: Name) -> None:
    """Claim no run of AGENT in the project until it is resumed; what runs goes on."""
    with desk.connection() as conn:
        outcome = run(conn, agents.agent_pause(desk.project, name))
    said = "paused" if outcome == "won" else "was paused before"
    _answer(desk, name, outcome, said)


@command(agent, "resume")
def resume(desk: Desk, name: Name) -> None:
    """Claim runs of AGENT in the project again."""
    with desk.connection() as conn:
        outcome = run(conn, agents.agent_resume(desk.project, name))
    said = "resumed" if outcome == "won" else "was not paused"
    _answer(desk, name, outcome, said)


def _answer(desk: Desk, name: str, outcome: str, said: str) -> None:
    answer = {"agent": name, "project_id": desk.project, "outcome": outcome}
    desk.answer(answer, f"{said} in project {desk.project}")
