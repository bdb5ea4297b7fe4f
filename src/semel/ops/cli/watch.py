"""`semel run watch`: what becomes of a run, or of all runs of a project, as it happens."""

import time
from collections.abc import Iterator
from typing import Annotated, Any
from uuid import UUID

import psycopg
import typer

from semel.core import reads
from semel.db.execute import run as ask
from semel.errors import NoSuchRun
from semel.ops.cli import screen
from semel.ops.cli.command import Desk, command, parse_id
from semel.ops.cli.plot import moment
from semel.ops.cli.run import project_of, run

LOOK_SECONDS = 0.5
#: Of the runs seen live, so many are asked about again.
KNOWN_MAX = 1000
FINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED"})

Change = dict[str, Any]


@command(run, "watch")
def watch(
    desk: Desk,
    run_id: Annotated[
        UUID | None, typer.Argument(metavar="ID", parser=parse_id, help="Until it has ended.")
    ] = None,
) -> None:
    """
    Say each change of a run until it ends, or of all runs of the project until Ctrl-C.

    Exits 0 for a run that ends COMPLETED, 1 for another end. Without ID it looks at the 200
    newest runs, at those that run, and at those it has seen live. What lasts less than half a
    second may be missed.
    """
    with desk.connection() as conn:
        if run_id is None:
            for change in _changes(conn, desk):
                _say(desk, change)
        status = _follow(desk, conn, run_id) if run_id else None
    if status != "COMPLETED":
        raise typer.Exit(1)


def _follow(desk: Desk, conn: psycopg.Connection[Any], run_id: UUID) -> str:
    """Say the changes of one run; answers the state it ended in."""
    project = project_of(desk, conn, run_id)
    before: tuple[Any, ...] | None = None
    while True:
        found = ask(conn, reads.watch_runs(project, [run_id], newest=0))
        if not found:
            raise NoSuchRun(f"no run {run_id} in project {project}")
        if _mark(found[0]) != before:
            before = _mark(found[0])
            _say(desk, found[0])
        status = str(found[0]["status"])
        if status in FINAL:
            return status
        time.sleep(LOOK_SECONDS)


def _changes(conn: psycopg.Connection[Any], desk: Desk) -> Iterator[Change]:
    """The changes of all runs in scope, from now on."""
    seen: dict[str, dict[str, Change]] = {}
    while True:
        for project in desk.projects(conn):
            before = seen.get(project, {})
            live = [r for r, record in before.items() if record["status"] not in FINAL]
            known = [UUID(run_id) for run_id in sorted(live, reverse=True)[:KNOWN_MAX]]
            found = ask(conn, reads.watch_runs(project, known))
            is_first = project not in seen
            seen[project] = {str(record["run_id"]): record for record in found}
            if not is_first:
                changed = [
                    record
                    for run_id, record in seen[project].items()
                    if run_id not in before or _mark(before[run_id]) != _mark(record)
                ]
                yield from sorted(changed, key=_at)
        time.sleep(LOOK_SECONDS)


def _at(record: Change) -> str:
    """The moment of its latest change that the record knows."""
    return str(record["finished_at"] or record["started_at"] or record["created_at"])


def _mark(record: Change) -> tuple[Any, ...]:
    """What makes a change worth saying; a heartbeat does not."""
    return (record["status"], record["attempt_count"], record["fence"], record["due_at"])


def _say(desk: Desk, record: Change) -> None:
    if desk.json:
        screen.line(record)
        return
    said = f"{moment(_at(record))}  {record['run_id']}  {record['agent']}  {record['status']}"
    if record["attempt_count"]:
        said += f", attempt {record['attempt_count']} of {record['max_attempts']}"
    if record["worker_id"] and record["status"] == "RUNNING":
        said += f", worker {record['worker_id']}"
    if record["failure_code"]:
        said += f": {record['failure_code']} {record['failure_reason']}"
    screen.text(said)
