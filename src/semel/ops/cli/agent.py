"""`semel agent`: which agents there are, and how many of their runs are claimed, and how often."""

import re
from typing import Annotated, Any

import typer

from semel.config.settings import AGENT
from semel.core import agents, flow, reads
from semel.core.draining import agent_held
from semel.db.execute import run
from semel.errors import BadRequest
from semel.ops.cli.command import Desk, command, group
from semel.ops.cli.worker import Timeout, conclude, span_of, wait

agent = group("Agents.")

#: Of a limit; more run nowhere.
LIMIT_MAX = 1_000_000

_COLUMNS = (
    "agent",
    "project_id",
    "waiting",
    "running",
    "max_running",
    "rate",
    "left",
    "per",
    "per_limit",
    "key_waiting",
    "edits",
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

    RATE is how many claims there may be in which time, and LEFT what it leaves now. PER_LIMIT
    holds for each concurrency key, and KEY_WAITING runs wait for theirs. EDITS names what
    `semel agent set` has put in place of the code.

    VERSIONS are those of the code that live workers have, BEGUN counts the live runs of each
    version that began some, and UNSERVED the ready ones that no live worker will claim, '' being
    those that no version began.
    """
    with desk.connection() as conn:
        found: list[dict[str, Any]] = []
        for project in desk.projects(conn):
            within = desk.settings.worker.dead_after
            found += run(conn, reads.list_agents(project, within=within))
    if not desk.json:
        for record in found:
            rate = record["rate"]
            record["rate"] = rate and flow.rate_text(rate["claims"], float(rate["seconds"]))
            record["left"] = rate and rate["left"]
            record["edits"] = record["edits"] and ", ".join(record["edits"])
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


@command(agent, "set")
def set_(
    desk: Desk,
    name: Name,
    concurrency: Annotated[
        str | None,
        typer.Option(metavar="N", help="Runs at once over all workers; none: no limit."),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="N/TIME", help="Claims in a time, as 100/1m; none: no limit."),
    ] = None,
    per_limit: Annotated[
        str | None, typer.Option(metavar="N", help="Runs of one concurrency key at once.")
    ] = None,
) -> None:
    """
    Limit AGENT in the project, in place of what its code says, until `semel agent clear`.

    What runs goes on: under a lower limit nothing is claimed until less runs than it allows.
    """
    told = {"concurrency": concurrency, "rate": rate, "per_limit": per_limit}
    what = [each for each, value in told.items() if value is not None]
    if not what:
        raise typer.BadParameter("say at least one of --concurrency, --rate and --per-limit")
    limits: dict[str, Any] = {
        "concurrency": _limit("--concurrency", concurrency),
        "per_limit": _limit("--per-limit", per_limit, none=False),
    }
    try:
        limits["rate"] = None if rate in {None, "none"} else flow.rate(rate)
    except BadRequest as bad:
        raise typer.BadParameter(f"--{bad}") from None
    with desk.connection() as conn:
        outcome = run(conn, agents.agent_set(desk.project, name, what, **limits))
        run(conn, agents.agent_wake([name]))
    _answer(desk, name, outcome, "set" if outcome == "won" else "was set so before")


@command(agent, "clear")
def clear(
    desk: Desk,
    name: Name,
    concurrency: Annotated[bool, typer.Option("--concurrency", help="Only this.")] = False,
    rate: Annotated[bool, typer.Option("--rate", help="Only this.")] = False,
    per_limit: Annotated[bool, typer.Option("--per-limit", help="Only this.")] = False,
) -> None:
    """Let the code of AGENT say its limits again; by default all that were set."""
    told = {"concurrency": concurrency, "rate": rate, "per_limit": per_limit}
    what = [each for each, chosen in told.items() if chosen]
    with desk.connection() as conn:
        outcome = run(conn, agents.agent_clear(desk.project, name, what or None))
        run(conn, agents.agent_wake([name]))
    _answer(desk, name, outcome, "cleared" if outcome == "won" else "was not set")


def _limit(option: str, written: str | None, *, none: bool = True) -> int | None:
    if written is None or (none and written == "none"):
        return None
    if not re.fullmatch(r"[0-9]{1,9}", written) or not 1 <= int(written) <= LIMIT_MAX:
        orders = f" 1 to {LIMIT_MAX}{', or none' if none else ''}"
        raise typer.BadParameter(
            f"{option} {written[:20]}: write{orders}; to have no run claimed, pause the agent"
        )
    return int(written)


@command(agent, "drain")
def drain(desk: Desk, name: Name, *, timeout: Timeout = None) -> None:
    """Pause AGENT in the project, and wait until none of its runs is running; then resume it."""
    longest = span_of("--timeout", timeout)
    with desk.connection() as conn:
        run(conn, agents.agent_pause(desk.project, name))

        quiet = 0

        def look() -> tuple[int, bool]:
            # A claim that was under way when the agent was paused is seen by the second look.
            nonlocal quiet
            held = run(conn, agent_held(desk.project, name))
            quiet = 0 if held else quiet + 1
            return held, quiet > 1

        held, over = wait(desk, f"{name} is paused in project {desk.project}", look, longest)
    answer = {"agent": name, "project_id": desk.project, "held": held}
    conclude(desk, answer, over=over)


def _answer(desk: Desk, name: str, outcome: str, said: str) -> None:
    answer = {"agent": name, "project_id": desk.project, "outcome": outcome}
    desk.answer(answer, f"{said} in project {desk.project}")
