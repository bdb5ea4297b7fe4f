"""`semel event`: what arrived, why it did or did not make a run, and what to do about it."""

from typing import Annotated, Any
from uuid import UUID

import psycopg
import typer

from semel.core import deliveries, projects, reads, sources
from semel.db.execute import run
from semel.edges import replay as edge
from semel.errors import NoSuchEvent
from semel.model import Verdict
from semel.ops import source_checks
from semel.ops.cli import plot, timeline
from semel.ops.cli.command import Desk, Id, command, group
from semel.ops.cli.run import Limit

event = group("Events and their deliveries.")

#: Of a raw body, so much is shown.
BODY_BYTES_MAX = 4096

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
_DELIVERIES = (
    "delivery_id",
    "received_at",
    "project_id",
    "source",
    "verdict",
    "reason",
    "run_id",
)


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
def show(desk: Desk, told: Id) -> None:
    """One event and its deliveries; or one delivery, with the beginning of its raw body."""
    with desk.connection() as conn:
        project = _project(desk, conn, told)
        record = run(conn, reads.show_event(project, told))
        if record is not None:
            desk.answer(record, timeline.of_event(record))
            return
        arrived = run(conn, reads.show_delivery(project, told))
        raw = run(conn, deliveries.delivery_read(project, told))
    if arrived is None or raw is None:
        raise NoSuchEvent(
            f"no event or delivery {told} in project {project}, or its memory has ended"
        )
    shown = None if raw.body is None else raw.body[:BODY_BYTES_MAX]
    answer = {
        **arrived,
        "body": None if shown is None else timeline.escaped(shown),
        "body_shown": None if shown is None else len(shown),
    }
    desk.answer(answer, timeline.of_delivery(answer))


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
        unkept = {} if found or started else run(conn, sources.outcomes(source_checks.WINDOW))
    refused = sum(
        counts.get("refused", 0)
        for (project, name), counts in unkept.items()
        if name == source and desk.scope in {project, None}
    )
    answer = {
        "source": source,
        "provider_event_id": provider_id,
        "project_id": desk.scope,
        "explanation": timeline.explanation(
            found, started, f"id {provider_id} of source {source}"
        )
        + (f". The source refused {_requests(refused)} in the last hour" if refused else ""),
        "deliveries": found,
    }
    said = [str(answer["explanation"]), *(f"  {each}" for each in timeline.deliveries(found))]
    desk.answer(answer, "\n".join(said))


def _requests(count: int) -> str:
    return "one request" if count == 1 else f"{count} requests"


@command(event, "replay")
def replay(
    desk: Desk,
    told: Id,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen, and let none of it be.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Make a run on purpose of what is known already.")
    ] = False,
) -> None:
    """Judge an event or a delivery again as configured today; --force makes a run on purpose."""
    with desk.connection() as conn:
        project = _project(desk, conn, told)
        delivery, became = edge.replay(
            conn, desk.settings, project, told, dry_run=dry_run, force=force
        )
    events = [_became(one, dry_run=dry_run) for one in became]
    answer = {
        "project_id": project,
        "delivery_id": delivery.delivery_id,
        "source": delivery.source,
        "was": delivery.verdict,
        "dry_run": dry_run,
        "forced": force,
        **(events[0] if len(events) == 1 else {"events": events}),
    }
    desk.answer(answer, "\n".join(_said(one, dry_run=dry_run) for one in events))


def _became(one: edge.Replayed, *, dry_run: bool) -> dict[str, Any]:
    """What a person or program is told; ids that a rollback took back are not."""
    made = dry_run and one.accepted.verdict == "new"
    return {
        "verdict": one.accepted.verdict,
        "reason": one.accepted.reason,
        "started": one.started,
        "event_id": None if made else one.accepted.event_id,
        "run_id": None if dry_run and one.started else one.accepted.run_id,
        "agent": one.agent,
        "input": one.input,
        "differs": one.differs,
    }


def _said(one: dict[str, Any], *, dry_run: bool) -> str:
    if one["started"]:
        what = "would start a run" if dry_run else f"started run {one['run_id']}"
        versus = {
            True: ", unlike the first run",
            False: ", as the first run",
            None: "",
        }[one["differs"]]
        return f"{what} of {one['agent']}{versus}: {one['reason']}\n{plot.value(one['input'])}"
    would = "would be " if dry_run else ""
    run_id = f"; its run is {one['run_id']}" if one["run_id"] else ", and no run"
    said = f"{would}{one['verdict']}{run_id}: {one['reason']}"
    if one["differs"]:
        said += f"\nread today it is for {one['agent']}, unlike the first run:"
        said += f"\n{plot.value(one['input'])}"
    return said


def _project(desk: Desk, conn: psycopg.Connection[Any], told: UUID) -> str:
    """The project that was told, or the one that has the event or delivery."""
    if desk.told:
        return desk.told
    there = run(conn, projects.list_projects())
    found = run(conn, projects.project_of_arrival(told, there))
    if found is None:
        raise NoSuchEvent(
            f"no event or delivery {told} in any project, or its memory has ended"
        )
    return found
