"""`semel journal`: what was said, and how far its consumers have come."""

from typing import Annotated, Any

import typer

from semel.core import consumers, journal_reads
from semel.core.reads import PAGE
from semel.db.execute import run
from semel.errors import CursorLost, NoSuchConsumer
from semel.ops.cli.command import Desk, command, group
from semel.ops.cli.run import Limit

journal = group("Journals, and their consumers.")

#: Larger than any seq; where a cursor is sent that is to read nothing old.
_NEWEST = 2**63 - 1
_ENTRIES = ("seq", "project_id", "topic", "payload", "request_id", "run_id", "finished_at")
_CONSUMERS = (
    "consumer",
    "project_id",
    "seq",
    "behind",
    "passed",
    "holder",
    "lease_until",
    "moved_at",
)


def _place(written: str) -> int:
    if written in {"oldest", "newest"}:
        return 0 if written == "oldest" else _NEWEST
    if not written.isdecimal() or len(written) > len(str(_NEWEST)) or int(written) > _NEWEST:
        raise typer.BadParameter(f"{written[:40]!r} is no place: a seq, oldest or newest")
    return int(written)


Consumer = Annotated[str, typer.Argument(metavar="CONSUMER")]


@command(journal, "list")
def list_(
    desk: Desk,
    topic: Annotated[str | None, typer.Option(metavar="T", help="Only those of it.")] = None,
    limit: Limit = PAGE,
) -> None:
    """Entries, the newest first; what is committed and not numbered yet has no SEQ."""
    with desk.connection() as conn:
        found: list[dict[str, Any]] = []
        for project in desk.projects(conn):
            found += run(conn, journal_reads.list_journal(project, topic=topic, limit=limit))
    found.sort(key=lambda record: str(record["finished_at"]), reverse=True)
    desk.listing(found[:limit], _ENTRIES, f"no such entries in {desk.where}")


@command(journal, "consumers")
def consumers_(desk: Desk) -> None:
    """
    Consumers, and how many entries each has yet to pass.

    PASSED is true where retention took entries that it had not read: it stands still until
    `semel journal seek` moves it.
    """
    with desk.connection() as conn:
        found: list[dict[str, Any]] = []
        for project in desk.projects(conn):
            found += run(conn, journal_reads.list_consumers(project))
    desk.listing(found, _CONSUMERS, f"nobody reads a journal in {desk.where}")


@command(journal, "seek")
def seek(
    desk: Desk,
    name: Consumer,
    to: Annotated[
        int, typer.Argument(metavar="SEQ", parser=_place, help="Or oldest, or newest.")
    ],
) -> None:
    """Have CONSUMER go on behind SEQ, or as near as entries are kept; who reads now has lost it."""
    with desk.connection() as conn:
        outcome, at = run(conn, consumers.journal_seek(desk.project, name, to))
    if outcome == "unknown":
        raise _unknown(desk, name)
    if outcome == "busy":
        raise CursorLost(f"an instance of {name} is just taking a batch; try again")
    answer = {"consumer": name, "project_id": desk.project, "outcome": outcome, "seq": at}
    desk.answer(answer, f"{name} goes on behind {at} in project {desk.project}")


@command(journal, "forget")
def forget(desk: Desk, name: Consumer) -> None:
    """Forget CONSUMER; one of the same name begins anew."""
    with desk.connection() as conn:
        outcome = run(conn, consumers.journal_forget(desk.project, name))
    if outcome == "unknown":
        raise _unknown(desk, name)
    answer = {"consumer": name, "project_id": desk.project, "outcome": outcome}
    desk.answer(answer, f"forgotten in project {desk.project}")


def _unknown(desk: Desk, name: str) -> NoSuchConsumer:
    return NoSuchConsumer(f"no consumer {name[:150]!r} in project {desk.project}")
