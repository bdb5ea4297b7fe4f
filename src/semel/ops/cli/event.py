"""`semel event`: what arrived, and why it did or did not make a run."""

from typing import Annotated, Any

import typer

from semel.core import projects, reads
from semel.db.execute import run
from semel.errors import BadRequest
from semel.model import Verdict
from semel.ops.cli import timeline
from semel.ops.cli.command import Desk, Id, command, group
from semel.ops.cli.run import Limit

event = group("Events and their deliveries.")

SourceName = Annotated[
    str | None, typer.Option("--source", metavar="S", help="Only those of this source.")
]
_COLUMNS = (
    "event_id",
    "project_id",
    "source",
    "provider_event_id",
    "run_id",
    "hits",
    "last_seen_at",
)
_DELIVERIES = ("received_at", "project_id", "source", "verdict", "reason", "run_id")


@command(event, "list")
def list_(
    desk: Desk,
    source: SourceName = None,
    verdict: Annotated[
        Verdict | None, typer.Option(help="Deliveries with this verdict instead.")
    ] = None,
    limit: Limit = reads.PAGE,
) -> None:
    """Events, newest first; with --verdict the deliveries that got it."""
    with desk.connection() as conn:
        found: list[dict[str, Any]] = []
        for project in desk.projects(conn):
            call = (
                reads.list_deliveries(project, verdict=verdict, source=source, limit=limit)
                if verdict
                else reads.list_events(project, source=source, limit=limit)
            )
            page = run(conn, call)
            found += page
    order = "delivery_id" if verdict else "event_id"
    found.sort(key=lambda record: str(record[order]), reverse=True)
    none = f"no {'such deliveries' if verdict else 'events'} in {desk.where}"
    desk.listing(found[:limit], _DELIVERIES if verdict else _COLUMNS, none)


@command(event, "show")
def show(desk: Desk, event_id: Id) -> None:
    """One event and each of its deliveries."""
    with desk.connection() as conn:
        there = run(conn, projects.list_projects())
        project = desk.told or run(conn, projects.project_of_event(event_id, there))
        record = run(conn, reads.show_event(project, event_id)) if project else None
    if record is None:
        where = f"project {desk.told}" if desk.told else "any project"
        raise BadRequest(
            f"no event {event_id} in {where}, or its memory has ended:"
            " `semel event list` shows what is there"
        )
    desk.answer(record, timeline.of_event(record))


@command(event, "explain")
def explain(
    desk: Desk,
    source: Annotated[
        str, typer.Option("--source", metavar="S", help="The source it came to.")
    ],
    provider_id: Annotated[
        str, typer.Option("--id", metavar="PROVIDER_ID", help="The id its sender gave it.")
    ],
) -> None:
    """Why each delivery of an id made a run, or made none."""
    with desk.connection() as conn:
        found: list[dict[str, Any]] = []
        started: list[dict[str, Any]] = []
        for project in desk.projects(conn):
            came = run(conn, reads.explain_event(project, source, provider_id))
            known = run(conn, projects.events_of(project, source, provider_id))
            found += came
            started += known
    answer = {
        "source": source,
        "provider_event_id": provider_id,
        "project_id": desk.scope,
        "explanation": timeline.explanation(
            found, started, f"id {provider_id} of source {source}"
        ),
        "deliveries": found,
    }
    said = [str(answer["explanation"]), *(f"  {each}" for each in timeline.deliveries(found))]
    desk.answer(answer, "\n".join(said))
