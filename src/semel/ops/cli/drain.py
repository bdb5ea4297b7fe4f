"""`semel drain`: is anything still being executed, before new code takes over."""

from datetime import timedelta
from typing import Annotated, Any

import psycopg
import typer

from semel.core import drain as core
from semel.core.drain import LEDGER, Writer
from semel.db import input_event
from semel.db.execute import run
from semel.errors import NotDrained
from semel.ops.cli import screen
from semel.ops.cli.command import Desk, command, group

drain = group("What is still being executed.")


@command(drain, "check")
def check(
    desk: Desk,
    table: Annotated[
        str | None,
        typer.Option(
            "--table", metavar="SCHEMA.TABLE", help="Of an input_event table, not the ledger."
        ),
    ] = None,
) -> None:
    """
    Operations that are PROCESSING, and transactions that hold the ledger; exit 0 when none is.

    The transactions are those of this database, whatever their project. A recorded operation
    counts while its holder executes it, and afterwards until it is judged.
    """
    with desk.connection() as conn:
        answer = _of_table(conn, table) if table else _of_ledger(desk, conn)
    desk.answer(answer, _told(answer))
    if not answer["drained"]:
        raise NotDrained(
            f"{answer['processing']} operations are PROCESSING, {len(answer['transactions'])}"
            f" transactions hold {answer['table']}"
        )


def _of_table(conn: psycopg.Connection[Any], table: str) -> dict[str, Any]:
    found = input_event.input_event_table(conn, table)
    undrained = found.drain(conn)
    return {
        "drained": undrained.drained,
        "table": str(found),
        "processing": undrained.processing,
        "transactions": [_shown(each) for each in undrained.writers],
    }


def _of_ledger(desk: Desk, conn: psycopg.Connection[Any]) -> dict[str, Any]:
    open_ = run(conn, core.writers(LEDGER))  # first: what they commit meanwhile is then counted
    counted = run(conn, core.drain_count())
    of = [each for each in counted if desk.told is None or each.project == desk.told]
    projects = [
        {
            "project_id": each.project,
            "atomic": each.atomic,
            "recorded": each.recorded,
            "held": each.held,
        }
        for each in of
    ]
    processing = sum(each.atomic + each.recorded for each in of)
    return {
        "drained": not processing and not open_,
        "table": LEDGER,
        "processing": processing,
        "projects": projects,
        "transactions": [_shown(each) for each in open_],
    }


def _shown(writer: Writer) -> dict[str, Any]:
    return {
        "pid": writer.pid,
        "gid": writer.gid,
        "application": writer.application,
        "role": writer.role,
        "state": writer.state,
        "waits": writer.waits,
        "age_seconds": None if writer.age is None else writer.age.total_seconds(),
    }


def _told(answer: dict[str, Any]) -> str:
    lines = [f"{answer['processing']} PROCESSING in {answer['table']}"]
    lines += [
        f"  {each['project_id']}: {each['atomic']} atomic, for semel reconcile;"
        f" {each['recorded']} recorded, of which {each['held']} have a holder that beats"
        for each in answer.get("projects", ())
    ]
    lines.append(f"{len(answer['transactions'])} transactions hold it for writing")
    lines += [f"  {_line(each)}" for each in answer["transactions"]]
    return "\n".join(lines)


def _line(each: dict[str, Any]) -> str:
    name = f"prepared {each['gid']!r}" if each["gid"] is not None else f"pid {each['pid']}"
    age = each["age_seconds"]
    since = "of unknown age" if age is None else f"open for {timedelta(seconds=round(age))}"
    waits = ", waits for the table" if each["waits"] else ""
    who = " ".join(filter(None, (each["application"], each["role"], each["state"])))
    return screen.word(f"{name}, {since}{waits} ({who})")
