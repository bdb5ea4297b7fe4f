"""
Schedules of an application: what `@app.schedule` keeps, and how a worker says it to the database.

A worker says all of its program's schedules when it starts, in one statement. From then on upkeep
fires them, also while no worker lives. Nothing here decides what is in force: SQL does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from semel import log
from semel.core.reads import list_agents
from semel.core.schedule_spec import check_name, of_told
from semel.core.schedules import schedule_seed
from semel.errors import BadSchedule

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import timedelta
    from typing import Any

    from semel.core.call import Call
    from semel.runtime.app import App

    Ask = Callable[[Call[Any]], Awaitable[Any]]


def say(
    app: App,
    name: str,
    told: Mapping[str, Any],
    *,
    handler: Callable[..., Any] | None = None,
) -> None:
    """
    Keep what *app* says of schedule *name*; without an agent, that of *handler*.

    Raises:
        BadSchedule: it says what cannot be, or says it twice.
    """
    check_name(name)
    if name in app.schedules:
        raise BadSchedule(f"schedule {name} is said twice; give one another name")
    if handler is not None:
        names = [agent.name for agent in app.agents.values() if agent.handler is handler]
        if len(names) != 1:
            raise BadSchedule(
                f'schedule {name}: say agent="...", or write it above the @app.agent of the'
                " function"
            )
        told = {**told, "agent": names[0]}
    try:
        app.schedules[name] = of_told(told)
    except BadSchedule as bad:
        raise BadSchedule(f"schedule {name}: {bad}") from None


def program_of(app: App, target: str) -> str:
    """What the program calls itself: its App's name, or that of its file or module."""
    place, _, name = target.partition(":")
    stem = Path(place).stem if place.endswith(".py") else place
    return app.name or (f"{stem}:{name}" if name else stem)


async def seed(
    app: App, ask: Ask, *, project: str, program: str, within: timedelta
) -> list[tuple[str, str]]:
    """
    Say the schedules of *app* in *project*; answers what changed.

    Args:
        within: A worker that was silent for longer is dead.

    Raises:
        BadSchedule: one starts an agent that neither this program nor any other has.
    """
    await _require_agents(app, ask, project, within)
    changed: list[tuple[str, str]] = await ask(schedule_seed(project, program, app.schedules))
    for schedule, outcome in changed:
        if outcome == "withdrawn":
            log.event("schedule.withdrawn", project=project, schedule=schedule, program=program)
        else:
            log.event(
                "schedule.said",
                project=project,
                schedule=schedule,
                program=program,
                outcome=outcome,
            )
    return changed


async def _require_agents(app: App, ask: Ask, project: str, within: timedelta) -> None:
    wanted = {spec.agent: name for name, spec in app.schedules.items()}
    missing = sorted(set(wanted) - set(app.agents))
    if not missing:
        return
    found = await ask(list_agents(project, within=within))
    announced = {record["agent"] for record in found if record["seen_at"]}
    for agent in missing:
        if agent not in announced:
            raise BadSchedule(
                f"schedule {wanted[agent]} starts agent {agent}, which this program does not have"
                f" and no worker has ever announced in project {project}: register it with"
                f' @app.agent("{agent}"), or start the worker that has it first'
            )
