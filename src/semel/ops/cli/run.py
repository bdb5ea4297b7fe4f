"""`semel run`: start a run, list runs, show one with all that happened to it."""

import json
from typing import Annotated, Any, Literal

import typer

from semel.core import projects, reads, runs
from semel.db import execute
from semel.errors import KeyConflict, NoSuchRun
from semel.ops.cli import timeline
from semel.ops.cli.command import Desk, Id, command, group

run = group("Runs.")

Status = Literal[
    "PENDING",
    "RUNNING",
    "WAITING_TOOL",
    "WAITING_APPROVAL",
    "RESUMED",
    "COMPLETED",
    "FAILED",
    "CANCELLED",
]
Limit = Annotated[int, typer.Option(min=1, max=reads.PAGE_MAX, help="How many, newest first.")]
_COLUMNS = (
    "run_id",
    "project_id",
    "agent",
    "status",
    "attempt_count",
    "created_at",
    "failure_code",
)


@command(run, "start")
def start(
    desk: Desk,
    agent: Annotated[str, typer.Argument(metavar="AGENT")],
    input_: Annotated[
        str, typer.Option("--input", metavar="JSON", help="What the handler gets as run.input.")
    ] = "null",
    key: Annotated[
        str | None, typer.Option(metavar="K", help="The same key again starts nothing.")
    ] = None,
    priority: Annotated[
        int, typer.Option(metavar="N", min=0, max=9, help="0 (last) to 9 (first).")
    ] = 5,
) -> None:
    """Start a run of AGENT."""
    try:
        value = json.loads(input_)
    except ValueError as bad:
        raise typer.BadParameter(f"--input is no JSON: {bad}") from None
    with desk.connection() as conn:
        started = execute.run(
            conn, runs.run_start(desk.project, agent, value, key=key, priority=priority)
        )
    if started.outcome == "conflict":
        raise KeyConflict(
            f"key {_short(key)} was used in project {desk.project} with another agent or"
            " input; nothing was started"
        )
    answer = {
        "run_id": started.run_id,
        "event_id": started.event_id,
        "project_id": desk.project,
        "agent": agent,
        "outcome": started.outcome,
    }
    again = " (started before with this key)" if started.outcome == "duplicate" else ""
    desk.answer(answer, f"{started.run_id}{again}")


@command(run, "list")
def list_(
    desk: Desk,
    status: Annotated[Status | None, typer.Option(help="Only those in this state.")] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="A", help="Only those of this agent.")
    ] = None,
    limit: Limit = reads.PAGE,
) -> None:
    """Runs, newest first."""
    with desk.connection() as conn:
        found: list[dict[str, Any]] = []
        for project in desk.projects(conn):
            call = reads.list_runs(project, status=status, agent=agent, limit=limit)
            page = execute.run(conn, call)
            found += page
    found.sort(key=lambda record: str(record["run_id"]), reverse=True)
    desk.listing(found[:limit], _COLUMNS, f"no such runs in {desk.where}")


@command(run, "show")
def show(desk: Desk, run_id: Id) -> None:
    """One run: its events, attempts and steps, and how it ended."""
    with desk.connection() as conn:
        there = execute.run(conn, projects.list_projects())
        project = desk.told or execute.run(conn, projects.project_of_run(run_id, there))
        record = execute.run(conn, reads.show_run(project, run_id)) if project else None
    if record is None:
        where = f"project {desk.told}" if desk.told else "any project"
        raise NoSuchRun(f"no run {run_id} in {where}")
    desk.answer(record, timeline.of_run(record))


def _short(key: str | None) -> str:
    return f"{key[:8]}…" if key and len(key) > 8 else str(key)  # noqa: PLR2004 - never a whole key
