"""`semel migrate`: apply, verify or print the schema."""

from typing import Annotated

import typer

from semel.db import migrate as schema
from semel.errors import BadConfig
from semel.ops import place
from semel.ops.cli import screen
from semel.ops.cli.command import Desk


def migrate(
    desk: Desk,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; refuse a schema that differs.")
    ] = False,
    print_: Annotated[
        bool, typer.Option("--print", help="Print it as SQL, for your own tools.")
    ] = False,
) -> None:
    """Bring the database to this program's schema."""
    if check and print_:
        raise BadConfig("--check and --print are two wishes: name one")
    if print_:
        screen.text(schema.script())
        return
    with (
        place.database(desk.settings) as dsn,
        place.opened(desk.settings, dsn, name="semel-migrate") as conn,
    ):
        if check:
            schema.check(conn)
            desk.answer(
                {"version": schema.version(), "applied": []},
                f"schema {schema.version()} is current",
            )
            return
        applied = schema.migrate(conn)
    count = len(applied)
    said = (
        f"schema {schema.version()}: {count} file{'s' * (count != 1)} applied"
        if count
        else f"schema {schema.version()} is current"
    )
    desk.answer({"version": schema.version(), "applied": applied}, said)
