"""`semel reconcile`: what no program may decide about an operation, and a person's judgement."""

from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from semel.core import ledger_reads
from semel.core import reconcile as core
from semel.core.canonical import canonical
from semel.core.operations import Reply
from semel.core.reads import PAGE
from semel.core.reconcile import Judgement, Kind
from semel.core.text import load
from semel.db.execute import run
from semel.errors import NoSuchOperation, NotReconcilable
from semel.ops.cli.approval import user
from semel.ops.cli.command import Desk, command, group
from semel.ops.cli.operation import Actor, Key, Name, looked_up, missing, one_of
from semel.ops.cli.run import Limit

reconcile = group("Operations that wait for a person's judgement.")

Decision = Literal["succeeded", "failed"]
_COLUMNS = (
    "request_id",
    "project_id",
    "kind",
    "event_type",
    "actor_user_id",
    "status",
    "attempts",
    "mode",
    "holder_name",
    "updated_at",
)
_REFUSED = {
    "foreign": "it is another system's, which is never touched",
    "refused": "its state is none that a person judges",
    "changed": "it is no longer in the state that was judged",
    "alive": "its holder beats: it is being executed",
    "locked": "a transaction that has not ended holds it: semel drain check names it",
}


@command(reconcile, "list")
def list_(
    desk: Desk,
    kind: Annotated[
        Kind | None,
        typer.Option(
            help="unknown: PROCESSING, held by nobody. legacy: nothing to compare with."
        ),
    ] = None,
    limit: Limit = PAGE,
) -> None:
    """What a person must judge: unknown outcomes first. Nothing is listed for its age."""
    with desk.connection() as conn:
        found: list[dict[str, Any]] = []
        for project in desk.projects(conn):
            page = run(conn, core.reconcile_list(project, kind=kind, limit=limit))
            found += page
    found.sort(key=lambda record: record["kind"] != "unknown")
    desk.listing(found[:limit], _COLUMNS, f"nothing to judge in {desk.where}")


@command(reconcile, "resolve")
def resolve(
    desk: Desk,
    *,
    key: Key,
    decision: Annotated[
        Decision,
        typer.Option("--as", help="succeeded: it had its effect. failed: it had none."),
    ],
    reason: Annotated[
        str, typer.Option("--reason", metavar="R", help="How that was found out; kept.")
    ],
    result: Annotated[
        str | None,
        typer.Option("--result", metavar="JSON", help="succeeded: what a retry is answered."),
    ] = None,
    attempts: Annotated[
        int | None,
        typer.Option("--attempts", min=0, help="Refuse if it is another attempt by now."),
    ] = None,
    who: Annotated[
        str | None,
        typer.Option("--by", metavar="NAME", help="Who judges; else who you are here."),
    ] = None,
    actor: Actor = None,
    name: Name = None,
) -> None:
    """
    Judge an operation: the next same request replays it, or executes it again.

    Refused while it is being executed, or a transaction holds it, and where it has changed since
    this command read it.
    """
    if result is not None and decision == "failed":
        raise typer.BadParameter("--result is what succeeded: leave it out, or --as succeeded")
    reply = None
    if result is not None:
        body = canonical(load(result.encode()))
        reply = Reply(status=200, headers=[("content-type", "application/json")], body=body)
    judgement: Judgement = "SUCCEEDED" if decision == "succeeded" else "FAILED"
    with desk.connection() as conn:
        project, found = looked_up(desk, conn, key, actor, name)
        row = run(conn, ledger_reads.show_operation(project, one_of(found))) if found else None
        if row is None:
            raise missing(project, key, actor)
        if attempts is not None and row["attempts"] != attempts:
            raise NotReconcilable(f"it is at attempt {row['attempts']}, and not at {attempts}")
        outcome, status = run(
            conn,
            core.reconcile_resolve(
                project,
                str(row["request_id"]),
                attempts=int(str(row["attempts"])),
                updated_at=datetime.fromisoformat(str(row["updated_at"])),
                judgement=judgement,
                by=who or user(),
                reason=reason,
                reply=reply,
            ),
        )
    if outcome == "unknown":
        raise NoSuchOperation(f"operation {row['request_id']} went meanwhile")
    if outcome != "won":
        state = status or row["status"]
        raise NotReconcilable(f"{row['request_id']} is {state}: {_REFUSED[outcome]}")
    desk.answer(
        {
            "project_id": project,
            "request_id": row["request_id"],
            "was": row["status"],
            "status": status,
            "reply_kept": reply is not None,
        },
        f"{row['request_id']} was {row['status']} and is {status}",
    )
