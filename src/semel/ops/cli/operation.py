"""`semel operation`: what was asked for under a key, and what the next request of it gets."""

import sys
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer

from semel.core import ledger_reads, projects
from semel.core.digest import Input
from semel.core.ledger_reads import OperationStatus
from semel.core.operations import base_id
from semel.core.reads import PAGE
from semel.core.spelling import Decode
from semel.db.execute import run
from semel.edges.idempotency_key import find
from semel.errors import BadRequest, NoSuchOperation
from semel.ops import explained
from semel.ops.cli import plot, screen
from semel.ops.cli.command import Desk, command, group
from semel.ops.cli.run import Limit

operation = group("Operations of the ledger.")

#: How the id of a request that came with a client's key begins.
DERIVED = "http:"
_COLUMNS = (
    "request_id",
    "project_id",
    "event_type",
    "actor_user_id",
    "status",
    "attempts",
    "updated_at",
    "error",
)

Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="A request id, or the key that a client sent (with --actor)."
    ),
]
Actor = Annotated[
    str | None,
    typer.Option(
        "--actor", metavar="A", help="Who sent the key; otherwise nobody (anonymous)."
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--operation", metavar="NAME", help="The operation, a procedure's path in tRPC."
    ),
]


@command(operation, "list")
def list_(
    desk: Desk,
    status: Annotated[OperationStatus | None, typer.Option(help="Only those in it.")] = None,
    name: Name = None,
    limit: Limit = PAGE,
) -> None:
    """Operations, newest first, without their results."""
    with desk.connection() as conn:
        found: list[dict[str, Any]] = []
        for project in desk.projects(conn):
            call = ledger_reads.list_operations(
                project, status=status, operation=name, limit=limit
            )
            page = run(conn, call)
            found += page
    found.sort(key=lambda record: str(record["created_at"]), reverse=True)
    desk.listing(found[:limit], _COLUMNS, f"no such operations in {desk.where}")


@command(operation, "show")
def show(desk: Desk, *, key: Key, actor: Actor = None, name: Name = None) -> None:
    """One operation: its state, its reply where this role may read it, and who judged it."""
    with desk.connection() as conn:
        project, found = looked_up(desk, conn, key, actor, name)
        if not found:
            raise missing(project, key, actor)
        record = run(conn, ledger_reads.show_operation(project, one_of(found)))
    if record is None:
        raise missing(project, key, actor)
    desk.answer(record, _told(record))


@command(operation, "explain")
def explain(
    desk: Desk,
    *,
    key: Key,
    actor: Actor = None,
    name: Name = None,
    input_: Annotated[
        str | None,
        typer.Option("--input", metavar="FILE", help="Its JSON input, to compare; - is stdin."),
    ] = None,
    decode: Annotated[
        Decode, typer.Option("--decode", help="How the input is read: js is tRPC's way.")
    ] = "strict",
) -> None:
    """Why the next request of a key replays, conflicts, waits or executes, and what to do."""
    raw = None if input_ is None else _read(input_)
    with desk.connection() as conn:
        project, found = looked_up(desk, conn, key, actor, name)
        request_id = one_of(found) if found else _unseen(project, key, actor)
        row = run(conn, ledger_reads.show_operation(project, request_id))
        asked = explained.Asked(
            project=project,
            request_id=request_id,
            operation=name,
            actor=actor,
            actor_told=actor is not None,
            input=None if raw is None else _input(desk, project, raw, decode),
        )
        answer = explained.explain(conn, asked, row)
    code = f" ({answer['code']})" if answer["code"] else ""
    desk.answer(
        answer,
        f"the next request {answer['says']}{code}\n{answer['do']}\n  {project} {request_id}",
    )


def looked_up(
    desk: Desk, conn: psycopg.Connection[Any], key: str, actor: str | None, name: str | None
) -> tuple[str, list[str]]:
    """
    The project, and the request ids of what was told: an id as it is, or the ids of a key.

    Raises:
        BadKey: it is no id that is there, and no key that a client can send.
    """
    there = [desk.project] if desk.scope else run(conn, projects.list_projects())
    if actor is None:
        found = run(conn, ledger_reads.project_of_operation(key, there))
        if found is not None:
            return found, [key]
    if key.startswith(DERIVED):
        return desk.project, []
    [bare] = [find([("idempotency-key", key)], required=True)]
    for project in there or [desk.project]:
        base = base_id(project, actor, str(bare))
        ids = run(conn, ledger_reads.operation_of_key(project, base))
        wanted = [each for each in ids if name is None or each in {base, f"{base}:{name}"}]
        if wanted:
            return project, wanted
    return desk.project, []


def one_of(found: list[str]) -> str:
    """The one request id that was meant."""
    if len(found) > 1:
        raise BadRequest(
            f"the key has {len(found)} operations: {', '.join(found[:5])}; name one of the ids,"
            " or --operation"
        )
    return found[0]


def missing(project: str, key: str, actor: str | None) -> NoSuchOperation:
    """What is said where there is none."""
    who = "" if key.startswith(DERIVED) else f" of {'nobody' if actor is None else actor}"
    return NoSuchOperation(f"no operation {key[:80]!r}{who} in project {project}")


def _unseen(project: str, key: str, actor: str | None) -> str:
    """The id that a request of REST or `once` would have; that of a tRPC call continues it."""
    if key.startswith(DERIVED):
        return key
    return base_id(project, actor, str(find([("idempotency-key", key)], required=True)))


def _input(desk: Desk, project: str, raw: bytes, decode: Decode) -> Input:
    """What is compared, with the digest keys of the project."""
    ledger = desk.settings.ledger.get(project)
    keys = ledger.keys() if ledger else ()
    return Input.of_raw(raw, version=1 if decode == "js" else 2, decode=decode, keys=keys)


def _read(told: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if told == "-" else Path(told).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"--input {told[:80]!r}: {error.strerror}") from None


def _told(record: dict[str, Any]) -> str:
    lines = [
        (
            f"{record['event_type']} of {record['actor_user_id'] or 'nobody'},"
            f" {record['project_id']} {record['request_id']}"
        ),
        (
            f"  {record['status']} after {record['attempts']} attempts, {record['mode']}"
            f"{'' if record['target'] == 'API' else ', target ' + str(record['target'])}"
        ),
        (
            f"  came {screen.word(record['created_at'])},"
            f" last changed {screen.word(record['updated_at'])}"
        ),
        f"  identity {screen.word(record['payload'])}",
    ]
    if record["imported_from"]:
        lines.append(f"  imported from {record['imported_from']}")
    if record["error"]:
        lines.append(f"  {record['error_code'] or 'error'} {screen.word(record['error'])}")
    if record["gone"]:
        lines.append("  executed; its reply is not kept")
    elif record["reply_status"]:
        lines.append(f"  answered {record['reply_status']}, {record['reply_bytes']} bytes")
        lines.append(plot.value(record["result"]))
    judged: Any = record["judgements"]
    lines += [
        f"  judged {each['after']['status']} by {screen.word(each['judged_by'])} at"
        f" {screen.word(each['judged_at'])}: {screen.word(each['reason'])}"
        for each in judged
    ]
    return "\n".join(lines)
