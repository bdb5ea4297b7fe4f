"""`semel event import-legacy`: ids that a first-seed system has seen stay seen here."""

from typing import Annotated

import typer

from semel.core.legacy import event_import
from semel.db.execute import run
from semel.db.legacy import dedupe_table
from semel.errors import NotImportable, UnknownSource
from semel.ops.cli.command import Desk, command
from semel.ops.cli.event import event

#: The source of starts over /v1 and by programs, which needs no configuration.
IMPLICIT = "api"


@command(event, "import-legacy")
def import_legacy(
    desk: Desk,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="Its dedupe table, as TABLE or SCHEMA.TABLE.")
    ],
    source: Annotated[
        str, typer.Option("--source", metavar="S", help="The source whose ids they are.")
    ],
    channel: Annotated[
        str | None,
        typer.Option(
            "--channel", metavar="C", help="Rows of this channel_type; that of S if not told."
        ),
    ] = None,
) -> None:
    """
    Remember the ids in TABLE, of the project and channel, with the runs they made.

    A later arrival is a duplicate and names the old run. Memory counts from the import: what is
    still in the table repeats nothing there, however old it is. It may be run again, and is, once
    nothing writes to the table any more.
    """
    ours = _channel(desk, source)
    theirs = channel or ours
    if "alertmanager" in {ours, theirs}:
        raise NotImportable(
            "ids of alertmanager cannot be taken over: the old system named a notification by"
            " its group key and a hash, here an event is a change of an alert's state (am1:…)."
            " Alerts that still fire make one run each when they are next reported; let them"
            " resolve first, or expect it"
        )
    read = imported = known = 0
    with desk.connection() as conn:
        found = dedupe_table(conn, table)
        for page in found.pages(conn, desk.project, theirs):
            new, old = run(conn, event_import(desk.project, source, ours, page))
            read, imported, known = read + len(page), imported + new, known + old
    desk.answer(
        {
            "table": str(found),
            "project_id": desk.project,
            "source": source,
            "channel_type": theirs,
            "read": read,
            "imported": imported,
            "known": known,
        },
        f"{imported} ids imported, {known} were known, of {read} in {found} of project"
        f" {desk.project} and channel {theirs}",
    )


def _channel(desk: Desk, name: str) -> str:
    """The channel type of the project's source *name*."""
    configured = desk.settings.sources.get((desk.project, name))
    if configured is not None:
        return configured.channel
    if name == IMPLICIT:
        return "api"
    there = sorted(s for project, s in desk.settings.sources if project == desk.project)
    raise UnknownSource(
        f"there is no source {name[:80]!r} in project {desk.project!r}; there are"
        f" {', '.join([*there, IMPLICIT] if IMPLICIT not in there else there)}"
    )
