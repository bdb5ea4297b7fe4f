"""
`semel run`: start, list, and show with all that happened.

`watch` is next door; what is changed of a run is in change.py, and what is said to it in steer.py.
"""

from typing import Annotated, Any
from uuid import UUID

import psycopg
import typer

from semel.core import projects, reads, story
from semel.core.text import load
from semel.db import execute
from semel.edges import start as edge
from semel.errors import BadRequest, KeyConflict, NoSuchRun, RunRefused
from semel.model import RunKind, RunStatus
from semel.ops.cli import timeline
from semel.ops.cli.command import Desk, Id, command, group
from semel.runtime.start import StartMore, start_call

run = group("Runs.")

Limit = Annotated[int, typer.Option(min=1, max=reads.PAGE_MAX, help="How many, newest first.")]
#: What is said of a run that was there.
_FOUND = {
    "duplicate": " (started before with this key)",
    "exists": " (not ended yet, and has this unique key)",
    "replaced": " (waits still, and has this input now)",
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
    concurrency_key: Annotated[
        str | None,
        typer.Option(
            metavar="C", help="No more runs with the same C at once than AGENT allows."
        ),
    ] = None,
    debounce: Annotated[
        str | None,
        typer.Option(metavar="D", help="Ready once there was no call of K for so long."),
    ] = None,
    debounce_key: Annotated[
        str | None, typer.Option(metavar="K", help="What calls that become one run share.")
    ] = None,
    debounce_max: Annotated[
        str | None,
        typer.Option(metavar="D", help="Ready so long after the first call at most."),
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
        among = edge.unique_key(concurrency_key, name="concurrency_key")
    except BadRequest as bad:
        raise typer.BadParameter(str(bad)) from None
    options: StartMore = {
        "key": key,
        "priority": priority,
        "delay": ready,
        "deadline": over,
        "unique": alone,
        "concurrency_key": among,
        "debounce": debounce,
        "debounce_key": debounce_key,
        "debounce_max": debounce_max,
    }
    call = start_call(desk.project, agent, value, options)
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


def project_of(desk: Desk, conn: psycopg.Connection[Any], run_id: UUID) -> str:
    """The project that was told, or the one that has the run."""
    if desk.told:
        return desk.told
    there = execute.run(conn, projects.list_projects())
    found = execute.run(conn, projects.project_of_run(run_id, there))
    if found is None:
        raise NoSuchRun(f"no run {run_id} in any project")
    return found


def refuse(run_id: UUID, project: str, outcome: str, because: str) -> None:
    """
    Say why nothing was done, if nothing was.

    Raises:
        NoSuchRun, RunRefused: by *outcome*.
    """
    if outcome == "unknown":
        raise NoSuchRun(f"no run {run_id} in project {project}")
    if outcome == "refused":
        raise RunRefused(f"run {run_id}: {because}")


def _short(key: str | None) -> str:
    return f"{key[:8]}…" if key and len(key) > 8 else str(key)  # noqa: PLR2004 - never a whole key
