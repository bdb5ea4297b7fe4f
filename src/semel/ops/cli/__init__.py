"""
The command line: noun, then verb; one file for each noun.

Exit codes: 0 done, 1 refused (the code is printed), 2 misuse, 3 the database is out of reach,
130 interrupted. Who decides is SQL; a command only asks and shows. No traceback is shown, except
with SEMEL_DEBUG=1 that of a fault of our own.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated, cast

import typer

from semel.db.execute import translated
from semel.errors import BadRequest, OurFault, SemelError
from semel.ops import leash
from semel.ops.cli import (
    agent,
    approval,
    batch,
    bench,
    change,
    db,
    drain,
    event,
    journal,
    legacy,
    look,
    operation,
    operation_legacy,
    process,
    reconcile,
    run,
    schedule,
    schema,
    screen,
    steer,
    token,
    up,
    watch,
    worker,
)
from semel.ops.cli.command import Desk, JsonFlag, ProjectName, checked, command

INTERRUPTED = 130
#: Every way of misusing a command; typer names only one of the family.
_Misuse = cast("type[Exception]", typer.BadParameter.__base__)

#: Verbs that have a file of their own: importing it adds them to their noun.
VERBS = (
    legacy.import_legacy,
    operation_legacy.import_legacy,
    change.cancel,
    steer.signal,
    watch.watch,
)

app = typer.Typer(
    help="Work that happens exactly once and survives crashes, on PostgreSQL.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
command(app, "up")(up.up)
command(app, "serve")(process.serve)
app.add_typer(worker.worker, name="worker")
command(app, "upkeep")(process.upkeep)
command(app, "migrate")(schema.migrate)
app.add_typer(db.db, name="db")
app.add_typer(run.run, name="run")
app.add_typer(batch.batch, name="batch")
app.add_typer(event.event, name="event")
app.add_typer(approval.approval, name="approval")
app.add_typer(operation.operation, name="operation")
app.add_typer(drain.drain, name="drain")
app.add_typer(reconcile.reconcile, name="reconcile")
app.add_typer(journal.journal, name="journal")
app.add_typer(agent.agent, name="agent")
app.add_typer(schedule.schedule, name="schedule")
app.add_typer(token.token, name="token")
command(app, "doctor")(look.doctor)
command(app, "config")(look.config)
command(app, "bench")(bench.bench)


def _version(asked: bool) -> None:
    if asked:
        screen.text(f"semel {metadata.version('semel')}")
        raise typer.Exit


@app.callback()
def _before(
    context: typer.Context,
    json: JsonFlag = False,
    project: ProjectName = None,
    version: Annotated[  # noqa: ARG001 - its callback answers it
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    context.obj = Desk(json=json, told=checked(project))


def _require_text(arguments: Sequence[str]) -> None:
    """Refuse bytes that are no UTF-8: no setting, id or reason is made of them."""
    for each in arguments:
        if not each.isascii() and any("\ud800" <= char <= "\udfff" for char in each):
            raise typer.BadParameter(f"{each[:80]!a} is not UTF-8")


def cli(arguments: Sequence[str]) -> int:
    """Run the command that *arguments* spell; answers the exit code."""
    json = "--json" in arguments
    leash.follow()
    try:
        _require_text(arguments)
        code = app(list(arguments) or ["--help"], prog_name="semel", standalone_mode=False)
    except _Misuse as misuse:
        return _misused(misuse, json=json)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except ImportError:
        raise  # an extra that is not installed: who called us knows its name
    except Exception as error:  # noqa: BLE001 - the last place that can say it in our words
        ours = translated(error)
        if isinstance(ours, SemelError):
            screen.refuse(ours, json=json)
            return ours.exit_code
        return _failed(error, json=json)
    return code if isinstance(code, int) else 0


def _misused(misuse: Exception, *, json: bool) -> int:
    if type(misuse).__name__ == "NoArgsIsHelpError":  # `semel run`: its message is the help
        print(misuse, file=sys.stderr)  # noqa: T201
        return 2
    said = getattr(misuse, "format_message", misuse.__str__)()
    screen.complain(
        BadRequest.code,
        said,
        "`semel --help`, or the command with --help, says what there is.",
        json=json,
    )
    return 2


def _failed(error: Exception, *, json: bool) -> int:
    if os.environ.get("SEMEL_DEBUG") == "1":
        traceback.print_exception(error)
    screen.complain(
        OurFault.code,
        f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}",
        "Run it again; if it comes back, report it with the traceback that SEMEL_DEBUG=1 shows.",
        json=json,
    )
    return OurFault.exit_code
