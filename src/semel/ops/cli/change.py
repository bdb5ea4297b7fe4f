"""
`semel run cancel`, `retry` and `priority`: what an operator changes of runs.

Of one run by its id; cancel and retry also of all that a filter names, a page in each transaction,
every run as it would be alone. Nothing is done to every run by accident: a filter says something.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, get_args
from uuid import UUID

import psycopg
import typer

from semel.config import values
from semel.config.settings import AGENT
from semel.core import bulk, transitions
from semel.core.agents import agent_wake
from semel.core.call import Call
from semel.core.runs import span
from semel.core.text import dump
from semel.db import execute
from semel.errors import BadConfig, BadRequest
from semel.model import RunStatus
from semel.ops.cli.command import Desk, Id, command, parse_id
from semel.ops.cli.run import project_of, refuse, run

MaybeId = Annotated[
    UUID | None,
    typer.Argument(metavar="[ID]", parser=parse_id, help="One run; else those of a filter."),
]
Agent = Annotated[str | None, typer.Option(metavar="A", help="Those of this agent.")]
Status = Annotated[RunStatus | None, typer.Option(help="Those in this state.")]
Before = Annotated[
    str | None,
    typer.Option(metavar="T", help="Those created before a time, or so long ago, such as 2h."),
]
InBatch = Annotated[
    str | None, typer.Option("--batch", metavar="B", help="Those of this batch.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")]

_RETRIED = ("FAILED", "CANCELLED", "PENDING")


@command(run, "cancel")
def cancel(
    desk: Desk,
    run_id: MaybeId = None,
    *,
    reason: Annotated[
        str, typer.Option(metavar="R", help="Kept with the run.")
    ] = "cancelled by an operator",
    agent: Agent = None,
    status: Status = None,
    before: Before = None,
    batch: InBatch = None,
    dry_run: DryRun = False,
) -> None:
    """End a run that has not ended, or all of a filter; handlers are told by the next beat."""
    dead_after = desk.settings.worker.dead_after
    if run_id is None:
        wanted = _filter(agent, status, before, batch, among=bulk.LIVE, default=bulk.LIVE)

        def page(project: str, runs: Sequence[UUID]) -> Call[list[bulk.Moved]]:
            return bulk.run_cancel_page(project, runs, reason=reason, dead_after=dead_after)

        _all(desk, wanted, page, "cancelled", dry_run=dry_run)
        return
    _alone(agent, status, before, batch, dry_run)
    with desk.connection() as conn:
        project = project_of(desk, conn, run_id)
        outcome, found = execute.run(
            conn,
            transitions.run_cancel(project, run_id, reason=reason, dead_after=dead_after),
        )
    refuse(run_id, project, outcome, f"it is {found}, and stays so")
    said = "cancelled" if outcome == "won" else "was cancelled before"
    answer = {"run_id": run_id, "project_id": project, "outcome": outcome}
    desk.answer({**answer, "status": "CANCELLED"}, said)


@command(run, "retry")
def retry(
    desk: Desk,
    run_id: MaybeId = None,
    *,
    agent: Agent = None,
    status: Status = None,
    before: Before = None,
    batch: InBatch = None,
    dry_run: DryRun = False,
) -> None:
    """
    Let a failed or cancelled run start again, or one that waits for its retry start now.

    With a filter those that have FAILED, where --status says no other state.
    """
    if run_id is None:
        wanted = _filter(agent, status, before, batch, among=_RETRIED, default=("FAILED",))
        _all(desk, wanted, bulk.run_retry_page, "pending again", dry_run=dry_run)
        return
    _alone(agent, status, before, batch, dry_run)
    with desk.connection() as conn:
        project = project_of(desk, conn, run_id)
        outcome, found, started = execute.run(conn, transitions.run_retry(project, run_id))
    refuse(run_id, project, outcome, f"it is {found}, or another live run has its unique key")
    answer = {"run_id": started, "project_id": project, "outcome": outcome}
    said = "pending again" if outcome == "won" else f"is compensated; begun anew as {started}"
    desk.answer({**answer, "status": "PENDING"}, said)


@command(run, "priority")
def priority(
    desk: Desk,
    run_id: Id,
    number: Annotated[
        int, typer.Argument(metavar="N", min=0, max=9, help="0 (last) to 9 (first).")
    ],
) -> None:
    """Give a run that waits another priority; one that runs keeps its own."""
    with desk.connection() as conn:
        project = project_of(desk, conn, run_id)
        outcome, found = execute.run(
            conn, transitions.run_prioritise(project, run_id, priority=number)
        )
    refuse(run_id, project, outcome, f"it is {found}, and waits for nobody")
    answer = {"run_id": run_id, "project_id": project, "outcome": outcome}
    said = f"has priority {number}" + ("" if outcome == "won" else ", and had it before")
    desk.answer({**answer, "status": found, "priority": number}, said)


def _filter(
    agent: str | None,
    status: str | None,
    before: str | None,
    batch: str | None,
    *,
    among: tuple[str, ...],
    default: tuple[str, ...],
) -> bulk.Filter:
    if status is not None and status not in among:
        others = ", ".join(name for name in get_args(RunStatus) if name in among)
        raise typer.BadParameter(f"--status {status}: only {others} can be moved so")
    if agent is not None and not AGENT.fullmatch(agent):
        raise typer.BadParameter(f"{agent[:150]!r} is no agent")
    at, ago = _moment(before)
    try:
        return bulk.Filter(
            statuses=(status,) if status else default,
            narrowed=status is not None,
            agent=agent,
            batch=batch,
            before=at,
            ago=ago,
        )
    except BadRequest as bad:
        raise typer.BadParameter(str(bad)) from None


def _moment(told: str | None) -> tuple[datetime | None, timedelta | None]:
    """A time with its zone, or so long ago."""
    if told is None:
        return None, None
    with suppress(BadConfig, BadRequest, OverflowError):
        ago: timedelta = values.read("--before", "timedelta", told)
        span("before", ago)
        return None, ago
    at = None
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(told)
        at = moment.astimezone(UTC) if moment.tzinfo else None
    if at is None:
        raise typer.BadParameter(
            f"--before {told[:40]!r}: write a time with its zone, such as 2026-11-30T12:00:00Z,"
            " or how long ago, such as 2h; a hundred years at most"
        )
    return at, None


def _alone(*told: Any) -> None:
    if any(told):
        raise typer.BadParameter("a run's ID and a filter: write one of them")


def _all(
    desk: Desk,
    wanted: bulk.Filter,
    page: Callable[[str, Sequence[UUID]], Call[list[bulk.Moved]]],
    said: str,
    *,
    dry_run: bool,
) -> None:
    with desk.connection() as conn:
        matched, before = execute.run(conn, bulk.count_found(desk.project, wanted))
        tally = bulk.Tally(matched=matched)
        after: UUID | None = None
        while not dry_run:
            found = execute.run(
                conn, bulk.find_page(desk.project, wanted, before=before, after=after)
            )
            if not found:
                break
            after = found[-1]
            tally.add(_moved(conn, desk.project, found, page))
        if tally.done and wanted.agent:
            execute.run(conn, agent_wake([wanted.agent]))
    answer = {
        "project_id": desk.project,
        "matched": matched,
        "done": tally.done,
        "outcomes": dict(tally.outcomes),
        "failures": [
            {"run_id": each.run_id, "outcome": each.outcome, "status": each.status}
            for each in tally.failures
        ],
        "dry_run": dry_run,
    }
    desk.answer(answer, _told(tally, said, dry_run=dry_run))


def _moved(
    conn: psycopg.Connection[Any],
    project: str,
    runs: Sequence[UUID],
    page: Callable[[str, Sequence[UUID]], Call[list[bulk.Moved]]],
) -> list[bulk.Moved]:
    try:
        return execute.run(conn, page(project, runs))
    except Exception as error:
        if conn.closed or len(runs) == 1 or not execute.retryable(error):
            raise
        # One of them was at odds with somebody: each by itself, so that it holds up no other.
        return [each for one in runs for each in _moved(conn, project, [one], page)]


def _told(tally: bulk.Tally, said: str, *, dry_run: bool) -> str:
    if dry_run:
        return f"{tally.matched} runs; nothing was done"
    lines = [f"{tally.done} of {tally.matched} runs {said}"]
    lines += [
        f"  {each.run_id} {each.outcome}: it is {dump(each.status).strip(chr(34))}"
        for each in tally.failures
    ]
    return "\n".join(lines)
