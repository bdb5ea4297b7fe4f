"""
`semel run`: start, list, show with all that happened, cancel, retry.

`watch` is next door, and what is said to a run in steer.py.
"""

from typing import Annotated, Any
from uuid import UUID

import psycopg
import typer

from semel.core import projects, reads, runs, story, transitions
from semel.core.text import load
from semel.db import execute
from semel.edges import start as edge
from semel.errors import BadRequest, KeyConflict, NoSuchRun, RunRefused
from semel.model import RunKind, RunStatus
from semel.ops.cli import timeline
from semel.ops.cli.command import Desk, Id, command, group

run = group("Runs.")

Limit = Annotated[int, typer.Option(min=1, max=reads.PAGE_MAX, help="How many, newest first.")]
#: What is said of a run that was there.
_FOUND = {
    "duplicate": " (started before with this key)",
    "exists": " (not ended yet, and has this unique key)",
}
_COLUMNS = (
    "run_id",
    "project_id",
    "agent",
    "status",
    "attempt_count",
    "created_at",
    "failure_code",
    "kind",
)


@command(run, "start")
def start(
    desk: Desk,
    agent: Annotated[str, typer.Argument(metavar="AGENT")],
    *,
    input_: Annotated[
        str, typer.Option("--input", metavar="JSON", help="What the handler gets as run.input.")
    ] = "null",
    key: Annotated[
        str | None, typer.Option(metavar="K", help="The same key again starts nothing.")
    ] = None,
    priority: Annotated[
        int, typer.Option(metavar="N", min=0, max=9, help="0 (last) to 9 (first).")
    ] = 5,
    delay: Annotated[
        str | None, typer.Option(metavar="D", help="Ready only after this, such as 30s.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="D", help="Failed when it has not ended by then.")
    ] = None,
    unique: Annotated[
        str | None,
        typer.Option(
            metavar="U", help="While a run of AGENT with the same U lives, find that."
        ),
    ] = None,
) -> None:
    """Start a run of AGENT, or find the one that its key or its unique key stands for."""
    try:
        value = load(input_.encode())
    except BadRequest as bad:
        raise typer.BadParameter(f"--input is no JSON that can be kept: {bad}") from None
    try:
        ready, over = edge.times({"delay": delay, "deadline": deadline})
        alone = edge.unique_key(unique)
    except BadRequest as bad:
        raise typer.BadParameter(str(bad)) from None
    call = runs.run_start(
        desk.project,
        agent,
        value,
        key=key,
        priority=priority,
        delay=ready,
        deadline=over,
        unique=alone,
    )
    with desk.connection() as conn:
        started = execute.run(conn, call)
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
    desk.answer(answer, f"{started.run_id}{_FOUND.get(started.outcome, '')}")


@command(run, "list")
def list_(
    desk: Desk,
    status: Annotated[RunStatus | None, typer.Option(help="Only those in this state.")] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="A", help="Only those of this agent.")
    ] = None,
    kind: Annotated[
        RunKind | None, typer.Option(help="Only these: work, child, notify or undo.")
    ] = None,
    limit: Limit = reads.PAGE,
) -> None:
    """Runs, newest first."""
    with desk.connection() as conn:
        found: list[dict[str, Any]] = []
        for project in desk.projects(conn):
            call = reads.list_runs(project, status=status, agent=agent, kind=kind, limit=limit)
            page = execute.run(conn, call)
            found += page
    found.sort(key=lambda record: str(record["run_id"]), reverse=True)
    desk.listing(found[:limit], _COLUMNS, f"no such runs in {desk.where}")


@command(run, "show")
def show(desk: Desk, run_id: Id) -> None:
    """One run and all that happened to it, as one story."""
    with desk.connection() as conn:
        record = execute.run(conn, story.show_run(project_of(desk, conn, run_id), run_id))
    if record is None:
        raise NoSuchRun(f"no run {run_id} in project {desk.told}")
    desk.answer(record, timeline.of_run(record))


@command(run, "cancel")
def cancel(
    desk: Desk,
    run_id: Id,
    reason: Annotated[
        str, typer.Option(metavar="R", help="Kept with the run.")
    ] = "cancelled by an operator",
) -> None:
    """End a run that has not ended; its handler is told by the next beat."""
    with desk.connection() as conn:
        project = project_of(desk, conn, run_id)
        outcome, status = execute.run(
            conn,
            transitions.run_cancel(
                project, run_id, reason=reason, dead_after=desk.settings.worker.dead_after
            ),
        )
    _refuse(run_id, project, outcome, f"it is {status}, and stays so")
    said = "cancelled" if outcome == "won" else "was cancelled before"
    answer = {"run_id": run_id, "project_id": project, "outcome": outcome}
    desk.answer({**answer, "status": "CANCELLED"}, said)


@command(run, "retry")
def retry(desk: Desk, run_id: Id) -> None:
    """Let a failed or cancelled run start again, or one that waits for its retry start now."""
    with desk.connection() as conn:
        project = project_of(desk, conn, run_id)
        outcome, status, started = execute.run(conn, transitions.run_retry(project, run_id))
    _refuse(run_id, project, outcome, f"it is {status}, or another live run has its unique key")
    answer = {"run_id": started, "project_id": project, "outcome": outcome}
    said = "pending again" if outcome == "won" else f"is compensated; begun anew as {started}"
    desk.answer({**answer, "status": "PENDING"}, said)


def project_of(desk: Desk, conn: psycopg.Connection[Any], run_id: UUID) -> str:
    """The project that was told, or the one that has the run."""
    if desk.told:
        return desk.told
    there = execute.run(conn, projects.list_projects())
    found = execute.run(conn, projects.project_of_run(run_id, there))
    if found is None:
        raise NoSuchRun(f"no run {run_id} in any project")
    return found


def _refuse(run_id: UUID, project: str, outcome: str, because: str) -> None:
    if outcome == "unknown":
        raise NoSuchRun(f"no run {run_id} in project {project}")
    if outcome == "refused":
        raise RunRefused(f"run {run_id}: {because}")


def _short(key: str | None) -> str:
    return f"{key[:8]}…" if key and len(key) > 8 else str(key)  # noqa: PLR2004 - never a whole key
