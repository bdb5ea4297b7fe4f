"""`semel batch`: runs started together, and how far they are."""

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from semel.core import batches, reads
from semel.core.text import load
from semel.db.execute import run
from semel.errors import BadRequest, NoSuchBatch
from semel.ops.cli.command import Desk, command, group
from semel.runtime.start_many import start_many

batch = group("Batches of runs.")

_COLUMNS = (
    "batch",
    "project_id",
    "agent",
    "total",
    "pending",
    "running",
    "waiting",
    "done",
    "failed",
    "cancelled",
    "created_at",
    "completed_at",
)


@command(batch, "start")
def start(
    desk: Desk,
    agent: Annotated[str, typer.Argument(metavar="AGENT")],
    *,
    file: Annotated[
        str,
        typer.Option(metavar="F", help="One JSON input on each line; - is standard input."),
    ],
    name: Annotated[
        str | None, typer.Option(metavar="B", help="The same name again starts nothing.")
    ] = None,
    on_complete: Annotated[
        str | None, typer.Option(metavar="A", help="The agent that is told of the end.")
    ] = None,
    priority: Annotated[
        int, typer.Option(metavar="N", min=0, max=9, help="0 (last) to 9 (first).")
    ] = 5,
) -> None:
    """Start a run of AGENT for each line of a file: all of them, or none."""
    with _lines(file) as lines, desk.connection() as conn:
        began = start_many(
            conn,
            project=desk.project,
            agent=agent,
            inputs=_inputs(lines),
            batch=name,
            on_complete=on_complete,
            priority=priority,
        )
    answer = {
        "batch": began.name,
        "project_id": desk.project,
        "agent": agent,
        "outcome": began.outcome,
        "total": began.total,
    }
    said = "" if began.outcome == "new" else " (started before with this name)"
    desk.answer(answer, f"{began.name} of {began.total} runs{said}")


@command(batch, "list")
def list_(
    desk: Desk,
    limit: Annotated[
        int, typer.Option(min=1, max=reads.PAGE_MAX, help="How many, newest first.")
    ] = reads.PAGE,
) -> None:
    """Batches, newest first, and how far their runs are."""
    with desk.connection() as conn:
        found: list[dict[str, Any]] = []
        for project in desk.projects(conn):
            found += run(conn, batches.list_batches(project, limit=limit))
    found.sort(key=lambda record: str(record["created_at"]), reverse=True)
    desk.listing(found[:limit], _COLUMNS, f"no batches in {desk.where}")


@command(batch, "show")
def show(desk: Desk, name: Annotated[str, typer.Argument(metavar="BATCH")]) -> None:
    """One batch: how far its runs are, and the run that was told of its end."""
    with desk.connection() as conn:
        found = run(conn, batches.show_batch(desk.project, name))
    if found is None:
        raise NoSuchBatch(f"no batch {name[:80]!r} in project {desk.project}")
    desk.answer(found)


@contextmanager
def _lines(file: str) -> Generator[Iterator[bytes], None, None]:
    if file == "-":
        yield iter(sys.stdin.buffer)
        return
    path = Path(file)
    if not path.is_file():
        raise typer.BadParameter(f"--file {file}: no such file")
    with path.open("rb") as opened:
        yield iter(opened)


def _inputs(lines: Iterator[bytes]) -> Iterator[Any]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield load(line)
        except BadRequest as bad:
            raise BadRequest(f"line {number}: {bad}; nothing was started") from None
