"""`semel run signal`, `compensate` and `skip`: what a person says to a run."""

from typing import Annotated, Any

import psycopg
import typer

from semel.core import reads, story, undo
from semel.core.agents import agent_wake
from semel.core.text import load
from semel.core.waits import signal_send
from semel.db.execute import run as ask
from semel.edges.ballot import REASON_CHARS_MAX
from semel.errors import BadRequest, NoSuchRun, RunRefused
from semel.ops.cli.approval import user
from semel.ops.cli.command import Desk, Id, command
from semel.ops.cli.run import project_of, run


@command(run, "signal")
def signal(
    desk: Desk,
    run_id: Id,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the handler waits for.")],
    content: Annotated[
        str, typer.Option(metavar="JSON", help="What run.signal(name) answers.")
    ] = "null",
    key: Annotated[
        str | None, typer.Option(metavar="K", help="The same key again says nothing more.")
    ] = None,
) -> None:
    """Say something to a live run; it is kept until a step asks for it."""
    try:
        value = load(content.encode())
    except BadRequest as bad:
        raise typer.BadParameter(f"--content is no JSON that can be kept: {bad}") from None
    with desk.connection() as conn:
        project = project_of(desk, conn, run_id)
        sender = user()
        call = signal_send(project, run_id, name, value, key=key, sender=sender)
        outcome, status = ask(conn, call)
        if outcome == "won":
            _wake(conn, project, run_id)
    if outcome == "unknown":
        raise NoSuchRun(f"no run {run_id} in project {project}")
    if outcome == "refused":
        raise RunRefused(f"run {run_id}: it is {status}, and hears nothing more")
    answer = {"run_id": run_id, "project_id": project, "name": name, "outcome": outcome}
    said = "said" if outcome == "won" else "was said before with this key"
    desk.answer(answer, said)


@command(run, "compensate")
def compensate(desk: Desk, run_id: Id) -> None:
    """Let the held compensation of a run begin, where its journal no longer matched its code."""
    with desk.connection() as conn:
        project = project_of(desk, conn, run_id)
        outcome, status, undo_id = ask(conn, undo.run_compensate(project, run_id))
        if outcome == "won":
            _wake(conn, project, undo_id)
    if outcome == "unknown":
        raise NoSuchRun(f"no run {run_id} in project {project}")
    if outcome == "refused":
        raise RunRefused(f"run {run_id}: it is {status}, and nothing of it is to be undone")
    answer = {"run_id": run_id, "project_id": project, "outcome": outcome}
    said = "is compensated" if outcome == "won" else "was compensated before"
    desk.answer({**answer, "undo_run_id": undo_id}, f"{said} by run {undo_id}")


@command(run, "skip")
def skip(
    desk: Desk,
    run_id: Id,
    step: Annotated[str, typer.Argument(metavar="STEP", help="As `semel run show` calls it.")],
    reason: Annotated[str, typer.Option(metavar="R", help="Why it need not be undone; kept.")],
) -> None:
    """Have the compensation of a run pass over STEP; then retry the run that compensates."""
    if not 0 < len(reason.strip()) <= REASON_CHARS_MAX:
        raise typer.BadParameter(f"a reason is 1 to {REASON_CHARS_MAX} characters")
    with desk.connection() as conn:
        project = project_of(desk, conn, run_id)
        saga = ask(conn, story.saga_of(project, run_id))
        if saga is None:
            raise NoSuchRun(f"no run {run_id} in project {project}")
        call = undo.undo_skip(project, saga, step, reason=reason.strip(), who=user())
        outcome, undo_id = ask(conn, call)
    if outcome == "unknown":
        raise RunRefused(f"run {saga} has no compensation")
    if outcome == "refused":
        raise RunRefused(f"run {saga} has no step {step!r} with an undo")
    answer = {"run_id": saga, "project_id": project, "step": step, "outcome": outcome}
    said = (
        f"skipped; `semel run retry {undo_id}` where it has failed"
        if outcome == "won"
        else "was undone or skipped before"
    )
    desk.answer({**answer, "undo_run_id": undo_id}, said)


def _wake(conn: psycopg.Connection[Any], project: str, run_id: Any) -> None:
    agent = ask(conn, reads.agent_of(project, run_id))
    if agent is not None:
        ask(conn, agent_wake([agent]))
