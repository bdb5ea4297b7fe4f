"""
`semel worker APP` works; `semel worker list`, `drain`, `resume` and `slots` ask it of others.

An order stands in the worker's row, in each project where it has one, and its next beat tells it.
"""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import psycopg
import typer
from typer.core import TyperGroup

from semel.config import values
from semel.core import reads, workers
from semel.core.call import Call
from semel.core.draining import Holding, worker_holding
from semel.core.projects import list_projects
from semel.db.execute import run
from semel.errors import BadConfig, NoSuchWorker, RunRefused
from semel.ops.cli import screen
from semel.ops.cli.command import Desk, command
from semel.ops.cli.process import worker as work

#: What is not another verb is an application; so the command is called as the manual writes it.
APP = "APP"
LOOK_SECONDS = 0.5

_COLUMNS = (
    "worker_id",
    "project_id",
    "host",
    "slots",
    "held",
    "agents",
    "versions",
    "beat_at",
    "draining_at",
    "drained_at",
    "stopped_at",
)


class _Verbs(TyperGroup):
    """A noun that works by itself: its first word is a verb, or what `APP` is called with."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        place = _first_word(args)
        if place is not None and args[place] in self.commands:
            args = [args[place], *args[:place], *args[place + 1 :]]
        elif place is not None or "--help" not in args:
            args = [APP, *args]
        return super().parse_args(ctx, args)


def _first_word(args: list[str]) -> int | None:
    """Where the first of *args* stands that is no option, and no option's value."""
    for place, arg in enumerate(args):
        if not arg.startswith("-") and (not place or args[place - 1] != "--project"):
            return place
    return None


worker = typer.Typer(
    cls=_Verbs,
    help="Claim runs of APP and execute their handlers; or ask something of workers.",
    rich_markup_mode=None,
    add_completion=False,
)
command(worker, APP)(work)

Id = Annotated[str, typer.Argument(metavar="ID", help="As `semel worker list` calls it.")]


def span_of(name: str, told: str | None) -> timedelta | None:
    """
    *told* as a time to wait.

    Raises:
        BadParameter: it is none.
    """
    if told is None:
        return None
    try:
        span: timedelta = values.read(name, "timedelta", told)
    except (BadConfig, OverflowError) as bad:
        raise typer.BadParameter(str(bad)) from None
    return span


Timeout = Annotated[
    str | None,
    typer.Option(metavar="D", help="Wait no longer than this; exit code 1 then."),
]


@command(worker, "list")
def list_(desk: Desk) -> None:
    """Workers, the latest sign of life first."""
    with desk.connection() as conn:
        found: list[dict[str, Any]] = []
        for project in desk.projects(conn):
            found += run(conn, reads.list_workers(project))
    desk.listing(found, _COLUMNS, f"no workers in {desk.where}")


@command(worker, "drain")
def drain(desk: Desk, worker_id: Id, *, timeout: Timeout = None) -> None:
    """Have a worker claim nothing more, and wait until it holds nothing; it stays, idle."""
    longest = span_of("--timeout", timeout)
    with desk.connection() as conn:
        projects = _order(conn, worker_id, lambda p: workers.worker_drain(p, worker_id))
        dead_after = desk.settings.worker.dead_after

        def look() -> tuple[int, bool]:
            found = [
                run(conn, worker_holding(project, worker_id, dead_after=dead_after))
                for project in projects
            ]
            there = [each for each in found if each is not None]
            return sum(each.held for each in there), all(_over(each) for each in there)

        held, over = wait(desk, f"worker {worker_id} drains", look, longest)
    conclude(desk, {"worker_id": worker_id, "held": held}, over=over)


@command(worker, "resume")
def resume(desk: Desk, worker_id: Id) -> None:
    """Have a worker that was drained claim again, from its next beat on."""
    with desk.connection() as conn:
        _order(conn, worker_id, lambda p: workers.worker_drain(p, worker_id, on=False))
    desk.answer({"worker_id": worker_id, "outcome": "won"}, "claims again with its next beat")


@command(worker, "slots")
def slots(
    desk: Desk,
    worker_id: Id,
    number: Annotated[
        int | None,
        typer.Argument(
            metavar="[N]", min=1, max=10_000, help="Runs at a time; without it its own number."
        ),
    ] = None,
) -> None:
    """Have a worker hold N runs at a time, from its next beat on; what it holds goes on."""
    with desk.connection() as conn:
        _order(conn, worker_id, lambda p: workers.worker_slots(p, worker_id, number))
    said = f"has {number} slots" if number else "has the slots it was started with"
    answer = {"worker_id": worker_id, "slots": number, "outcome": "won"}
    desk.answer(answer, f"{said}, from its next beat on")


def _order(
    conn: psycopg.Connection[Any], worker_id: str, order: Callable[[str], Call[str]]
) -> list[str]:
    """Give an order wherever the worker has a row; answers where that is."""
    there: list[str] = []
    outcomes: set[str] = set()
    for project in run(conn, list_projects()):
        outcome = run(conn, order(project))
        outcomes.add(outcome)
        if outcome in {"won", "already"}:
            there.append(project)
    if not there and "refused" in outcomes:
        raise RunRefused(f"worker {worker_id[:80]} has stopped")
    if not there:
        raise NoSuchWorker(f"no worker {worker_id[:80]!r} in any project")
    return there


def _over(each: Holding) -> bool:
    return each.held == 0 and (each.drained or each.gone)


def wait(
    desk: Desk, said: str, look: Callable[[], tuple[int, bool]], longest: timedelta | None
) -> tuple[int, bool]:
    """Look until it is over or *longest* has passed, and say when the number held changes."""
    until = None if longest is None else time.monotonic() + longest.total_seconds()
    told: int | None = None
    while True:
        held, over = look()
        if held != told and not desk.json:
            screen.text(f"{said}: {held} running")
        told = held
        if over or (until is not None and time.monotonic() >= until):
            return held, over
        time.sleep(LOOK_SECONDS)


def conclude(desk: Desk, answer: dict[str, Any], *, over: bool) -> None:
    """Say how a drain ended; the exit code is 1 where it has not."""
    outcome = "drained" if over else "draining"
    desk.answer({**answer, "outcome": outcome}, outcome if over else "drains still")
    if not over:
        raise typer.Exit(1)
