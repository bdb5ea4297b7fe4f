"""`semel operation import-legacy`: what a second-seed system executed replays here."""

from typing import Annotated

import typer

from semel.db import input_event
from semel.ops.cli.command import Desk, command
from semel.ops.cli.operation import operation


@command(operation, "import-legacy")
def import_legacy(
    desk: Desk,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="Its input_event table, as SCHEMA.TABLE.")
    ],
    stuck: Annotated[
        bool,
        typer.Option(
            "--stuck",
            help="Copy PROCESSING ones too, for `semel reconcile`; nothing decides them.",
        ),
    ] = False,
) -> None:
    """
    Take over the operations in TABLE for the project, whose name must be the profile's.

    It refuses until `semel drain check --table TABLE` is 0, and keeps others from writing to TABLE
    until its copy is committed. It may be run again; what was executed here meanwhile stays.
    """
    with desk.connection() as conn:
        found = input_event.input_event_table(conn, table)
        report = found.take(conn, desk.project, stuck=stuck)
    answer = {
        "table": str(found),
        "project_id": desk.project,
        "read": report.read,
        "targets": dict(report.by_target),
        "imported": report.imported,
        "changed": report.changed,
        "known": report.known,
        "unusable": report.unusable,
        "conflicting": report.conflicting,
        "conflicts": report.conflicts,
    }
    said = (
        f"{report.imported} operations imported, {report.changed} moved on, {report.known} were"
        f" known, of {report.read} in {found} for project {desk.project}"
    )
    if report.unusable:
        said += f"; {report.unusable} have ids that no request here can have"
    if report.conflicting:
        named = "\n".join(f"  {each}" for each in report.conflicts)
        said += (
            f"\n{report.conflicting} stand here for something else, or were executed here too;"
            f" they were left as they are:\n{named}"
        )
    desk.answer(answer, said)
