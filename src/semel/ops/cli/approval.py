"""`semel approval`: what is asked of people, and their decisions."""

import os
import pwd
from typing import Annotated, Any, Literal
from uuid import UUID

import psycopg
import typer

from semel.core import projects, reads
from semel.core.agents import agent_wake
from semel.core.approvals import Decision, approval_decide
from semel.db.execute import run
from semel.edges.ballot import REASON_CHARS_MAX
from semel.errors import ApprovalDecided, ApprovalExpired, Forbidden, NoSuchApproval
from semel.ops.cli import screen
from semel.ops.cli.command import Desk, Id, command, group

approval = group("Approvals.")

State = Literal["PENDING", "APPROVED", "REJECTED", "EXPIRED", "VOID"]
_COLUMNS = (
    "approval_id",
    "project_id",
    "state",
    "title",
    "votes",
    "run_id",
    "created_at",
    "expires_at",
)
#: A voter as the audit keeps it.
NAME_CHARS_MAX = 200


def _reason(written: str) -> str:
    if not 0 < len(written.strip()) <= REASON_CHARS_MAX:
        raise typer.BadParameter(f"a reason is 1 to {REASON_CHARS_MAX} characters")
    return written.strip()


def _name(written: str) -> str:
    if not (0 < len(written.strip()) <= NAME_CHARS_MAX and written.isprintable()):
        raise typer.BadParameter(f"a name is 1 to {NAME_CHARS_MAX} printable characters")
    return written.strip()


Reason = Annotated[
    str | None, typer.Option("--reason", metavar="R", parser=_reason, help="Kept with it.")
]
As = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="NAME", parser=_name, help="Who decides; else who you are here."
    ),
]


def user() -> str:
    """The account that this command runs as."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container, whose accounts are not this machine's
        return f"uid {os.getuid()}"


@command(approval, "list")
def list_(
    desk: Desk,
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=reads.PAGE_MAX, help="How many, newest first.")
    ] = reads.PAGE,
) -> None:
    """Approvals, newest first."""
    with desk.connection() as conn:
        found: list[dict[str, Any]] = []
        for project in desk.projects(conn):
            page = run(conn, reads.list_approvals(project, state=state, limit=limit))
            found += page
    found.sort(key=lambda record: str(record["created_at"]), reverse=True)
    shown = found[:limit]
    if not desk.json:
        shown = [{**record, "votes": _votes(record)} for record in shown]
    desk.listing(shown, _COLUMNS, f"no such approvals in {desk.where}")


@command(approval, "approve")
def approve(desk: Desk, approval_id: Id, reason: Reason = None, who: As = None) -> None:
    """Approve it."""
    _decide(desk, approval_id, "approve", reason, who)


@command(approval, "reject")
def reject(desk: Desk, approval_id: Id, reason: Reason = None, who: As = None) -> None:
    """Reject it: the handler is told, and may go on otherwise."""
    _decide(desk, approval_id, "reject", reason, who)


def _decide(
    desk: Desk, approval_id: UUID, decision: Decision, reason: str | None, who: str | None
) -> None:
    with desk.connection() as conn:
        project = _project_of(desk, conn, approval_id)
        decided = run(
            conn,
            approval_decide(
                project,
                decision,
                via="cli",
                approval_id=approval_id,
                voter=who or user(),
                reason=reason,
            ),
        )
        if decided.outcome == "won" and decided.agent:
            run(conn, agent_wake([decided.agent]))
    match decided.outcome:
        case "unknown":
            raise NoSuchApproval(f"no approval {approval_id} in project {project}")
        case "void":
            raise NoSuchApproval(f"approval {approval_id} is void: its run ended or asked anew")
        case "expired":
            raise ApprovalExpired(f"approval {approval_id} was not decided in time")
        case "refused":
            raise Forbidden(
                f"{who or user()} asked for it, or is not among its approvers:"
                " --as names another"
            )
        case "already":
            at = screen.word(decided.decided_at)
            raise ApprovalDecided(f"it was {str(decided.state).lower()} at {at}")
        case "won" | "voted":
            pass
    answer = {
        "approval_id": approval_id,
        "project_id": project,
        "run_id": decided.run_id,
        "outcome": decided.outcome,
        "state": decided.state,
    }
    said = "recorded; more approvals are needed"
    if decided.outcome == "won":
        said = f"{str(decided.state).lower()}; run {decided.run_id} goes on"
    desk.answer(answer, said)


def _project_of(desk: Desk, conn: psycopg.Connection[Any], approval_id: UUID) -> str:
    """The project that was told, or the one that has the approval."""
    if desk.told:
        return desk.told
    there = run(conn, projects.list_projects())
    found = run(conn, projects.project_of_approval(approval_id, there))
    if found is None:
        raise NoSuchApproval(f"no approval {approval_id} in any project")
    return found


def _votes(record: dict[str, Any]) -> str:
    votes = [f"{vote['voter']}: {vote['decision']}" for vote in record["votes"] or ()]
    return ", ".join(votes) or f"0 of {record['need']}"
