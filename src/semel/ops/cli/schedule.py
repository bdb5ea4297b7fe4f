"""`semel schedule`: what starts runs by the clock, and an operator's word on it."""

from typing import Annotated, Any

import typer

from semel.core import schedules
from semel.core.schedule_spec import CatchUp, Overlap, Spec, check_name, of_told
from semel.core.text import load_object
from semel.db.execute import run
from semel.errors import BadRequest, BadSchedule, NoSuchSchedule, ScheduleRefused
from semel.ops.cli.command import Desk, command, group
from semel.ops.cli.run import Limit

schedule = group("Schedules.")

_COLUMNS = (
    "schedule",
    "project_id",
    "when",
    "timezone",
    "agent",
    "source",
    "state",
    "next_local",
    "next_utc",
    "last_tick_at",
    "error",
)
#: An edit that another one overtakes is made again on what is there then.
_TRIES = 3


def _name(written: str) -> str:
    try:
        return check_name(written)
    except BadSchedule as bad:
        raise typer.BadParameter(str(bad)) from None


Name = Annotated[str, typer.Argument(metavar="NAME", parser=_name)]


@command(schedule, "list")
def list_(desk: Desk, limit: Limit = schedules.PAGE) -> None:
    """
    Schedules by name, with their next three ticks in their zone and in UTC.

    SOURCE is whose word is in force, the code's or an operator's; a schedule is paused by an
    operator, and withdrawn when its program does not say it any more.
    """
    with desk.connection() as conn:
        found: list[dict[str, Any]] = []
        for project in desk.projects(conn):
            found += run(conn, schedules.list_schedules(project, limit=limit))
    if desk.json:
        desk.listing(found[:limit], (), "")
        return
    shown = [line for record in found[:limit] for line in _lines(record)]
    desk.listing(shown, _COLUMNS, f"no schedules in {desk.where}")


@command(schedule, "show")
def show(desk: Desk, name: Name) -> None:
    """One schedule, all of it."""
    with desk.connection() as conn:
        found = run(conn, schedules.show_schedule(desk.project, name))
    if found is None:
        raise _unknown(desk, name)
    desk.answer(found)


@command(schedule, "pause")
def pause(desk: Desk, name: Name) -> None:
    """Fire NAME in the project no more until it is resumed; what runs goes on."""
    with desk.connection() as conn:
        outcome = run(conn, schedules.schedule_pause(desk.project, name))
    _answer(desk, name, outcome, "paused" if outcome == "won" else "was paused before")


@command(schedule, "resume")
def resume(desk: Desk, name: Name) -> None:
    """Fire NAME again; ticks that came while it was paused are not made up for."""
    with desk.connection() as conn:
        outcome = run(conn, schedules.schedule_resume(desk.project, name))
    _answer(desk, name, outcome, "resumed" if outcome == "won" else "was not paused")


@command(schedule, "set")
def set_(
    desk: Desk,
    name: Name,
    *,
    cron: Annotated[
        str | None,
        typer.Option(help="Minute, hour, day, month, weekday; or with seconds first."),
    ] = None,
    every: Annotated[str | None, typer.Option(metavar="D", help="Instead, as in 15m.")] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="IANA's name, as in Asia/Taipei.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="A", help="Whose runs it starts.")
    ] = None,
    input_: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="Their input, an object.")
    ] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", help="0 to 9.")] = None,
    catch_up: Annotated[CatchUp | None, typer.Option(help="Of missed ticks.")] = None,
    catch_up_max: Annotated[
        int | None, typer.Option(metavar="N", help="With all, the newest so many.")
    ] = None,
    overlap: Annotated[Overlap | None, typer.Option(help="While the last run is live.")] = None,
    jitter: Annotated[
        str | None, typer.Option(metavar="D", help="Runs start up to so much later.")
    ] = None,
) -> None:
    """
    Edit NAME, or make it; what is not told stays as it is.

    The whole schedule is the operator's from then on: what code says of it waits for
    `semel schedule clear NAME`.
    """
    told: dict[str, Any] = {
        "cron": cron,
        "every": every,
        "timezone": timezone,
        "agent": agent,
        "input": None if input_ is None else _object(input_),
        "priority": priority,
        "catch_up": catch_up,
        "catch_up_max": catch_up_max,
        "overlap": overlap,
        "jitter": jitter,
    }
    with desk.connection() as conn:
        for _ in range(_TRIES):
            before = run(conn, schedules.show_schedule(desk.project, name))
            spec = _edited(before, told)
            revision = None if before is None else int(str(before["revision"]))
            call = schedules.schedule_set(desk.project, name, spec, revision=revision)
            outcome = run(conn, call)
            if outcome != "lost":
                break
        else:
            raise ScheduleRefused(
                f"schedule {name} changes again and again; look, and try later"
            )
    _answer(desk, name, outcome, "made" if outcome == "new" else "edited")


@command(schedule, "clear")
def clear(desk: Desk, name: Name) -> None:
    """Give NAME back to the code."""
    with desk.connection() as conn:
        outcome = run(conn, schedules.schedule_clear(desk.project, name))
    if outcome == "refused":
        raise ScheduleRefused(
            f"no code says schedule {name}: there is nothing to give it back to; delete it?"
        )
    said = "the code's again" if outcome == "won" else "was the code's before"
    _answer(desk, name, outcome, said)


@command(schedule, "delete")
def delete(desk: Desk, name: Name) -> None:
    """Forget NAME, which no code says, or none any more."""
    with desk.connection() as conn:
        outcome = run(conn, schedules.schedule_delete(desk.project, name))
    if outcome == "refused":
        raise ScheduleRefused(
            f"its program says schedule {name}, and would again: pause it, or take it out there"
        )
    _answer(desk, name, outcome, "deleted")


def _object(written: str) -> dict[str, Any]:
    try:
        return load_object(written.encode())
    except BadRequest as bad:
        raise BadRequest(f"--input: {bad}") from None


def _edited(before: dict[str, Any] | None, told: dict[str, Any]) -> Spec:
    """What was in force, with what is told instead; cron and every take each other's place."""
    kept: dict[str, Any] = {}
    if before is not None:
        spec = schedules.spec_of(before)
        kept = {name: getattr(spec, name) for name in told}
        if told["cron"] is not None and told["every"] is None:
            kept["every"] = None
        if told["every"] is not None and told["cron"] is None:
            kept["cron"] = None
    merged = {**kept, **{name: value for name, value in told.items() if value is not None}}
    if merged.get("agent") is None:
        raise BadSchedule("say whose runs it starts: --agent A")
    return of_told(merged)


def _lines(record: dict[str, Any]) -> list[dict[str, Any]]:
    """A schedule as a row, and a row below it for each further tick."""
    every = record["every_seconds"]
    ticks = record["next"] or [{"local": None, "at": None}]
    first, *rest = [{"next_local": tick["local"], "next_utc": tick["at"]} for tick in ticks]
    when = record["cron"] if every is None else f"every {every}s"
    return [{**record, **first, "when": when}, *({"schedule": " ", **more} for more in rest)]


def _unknown(desk: Desk, name: str) -> NoSuchSchedule:
    return NoSuchSchedule(f"there is no schedule {name} in project {desk.project}")


def _answer(desk: Desk, name: str, outcome: str, said: str) -> None:
    if outcome == "unknown":
        raise _unknown(desk, name)
    answer = {"schedule": name, "project_id": desk.project, "outcome": outcome}
    desk.answer(answer, f"{said} in project {desk.project}")
