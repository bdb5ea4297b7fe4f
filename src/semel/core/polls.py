"""
Polls: which process asks for a bot's events, and how far it has come.

One function here per function in sql/functions/polls.sql: same name, same arguments. The SQL
decides; this module gives the answer a type. Nothing here opens a connection or reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from semel.core.call import Call
from semel.core.inbox import MEMORY, offered
from semel.core.text import dump
from semel.model import Accepted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from semel.model import Offer

LEASE = timedelta(seconds=30)
#: Of a poll, as the view `polls` says it.
State = Literal[
    "starting",
    "polling",
    "stopped",
    "webhook",
    "conflict",
    "refused",
    "throttled",
    "failing",
    "elsewhere",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A bot's events on a server, and who asks for them."""

    project: str
    bot: str  # "123456@https://api.telegram.org"
    source: str
    holder: UUID
    place: str  # where this process is, for people
    lease: timedelta = LEASE


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of an attempt to take the lease, and what is known of the queue."""

    outcome: Literal["taken", "held", "waits"]
    fence: int
    next_id: int | None  # all that came below it is committed
    ask_id: int | None  # to ask from; None: from the oldest
    source: str  # of who has it
    place: str  # where that is
    remaining: timedelta  # until it is worth another attempt
    state: State
    said: str
    failures: int  # in a row
    missing: int
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The lease as it is now; None of it where it was lost."""

    next_id: int | None
    ask_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What became of a batch."""

    outcome: Literal["committed", "lost", "stale"]
    accepted: list[Accepted]  # in the order of the offers; of the others none
    missing: int
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """A row of the view `polls`."""

    project: str
    bot: str
    source: str
    state: State
    said: str
    since: datetime
    for_: timedelta  # so long it is in that state
    live: bool
    place: str
    next_id: int | None
    missing: int
    missing_from: int | None
    missing_upto: int | None
    missing_age: timedelta | None
    restarts: int


def poll_take(queue: Queue, *, now: datetime | None = None) -> Call[Taken | None]:
    """
    Take the lease of *queue*; None where that is for others to say, at this very moment.

    Source: sql/functions/polls.sql, poll_take.
    """

    def read(rows: Sequence[Any]) -> Taken | None:
        if not rows:
            return None
        row = rows[0]
        return Taken(
            outcome=row[0],
            fence=row[1] or 0,
            next_id=row[2],
            ask_id=row[3],
            source=row[4],
            place=row[5],
            remaining=row[6],
            state=row[7],
            said=row[8],
            failures=row[9],
            missing=row[10],
            restarts=row[11],
        )

    return Call(
        "select outcome, fence, next_id, ask_id, source, place, remaining, state, said, failures,"
        " missing, restarts from semel.poll_take(%s, %s, %s, %s, %s, %s, %s)",
        (
            queue.project,
            queue.bot,
            queue.source,
            queue.holder,
            queue.place,
            queue.lease,
            now,
        ),
        read,
    )


def poll_keep(
    queue: Queue, fence: int, *, answered: bool = False, now: datetime | None = None
) -> Call[Kept | None]:
    """
    Hold the lease for as long again; None: it is lost.

    Args:
        answered: The server has answered, so nothing is wrong any more.

    Source: sql/functions/polls.sql, poll_keep.
    """
    return Call(
        "select outcome, next_id, ask_id from semel.poll_keep(%s, %s, %s, %s, %s, %s, %s)",
        (queue.project, queue.bot, queue.holder, fence, queue.lease, answered, now),
        lambda rows: (
            Kept(next_id=rows[0][1], ask_id=rows[0][2]) if rows[0][0] == "kept" else None
        ),
    )


def poll_commit(
    queue: Queue,
    fence: int,
    offers: Sequence[Offer],
    *,
    ids: Sequence[int],
    next_id: int,
    seen: int | None,
    memory: timedelta = MEMORY,
    now: datetime | None = None,
) -> Call[Committed]:
    """
    Accept *offers* and move on, in one transaction.

    Args:
        offers: At most 256.
        ids: Of each at the server.
        next_id: To ask from afterwards; above all of them.
        seen: The next_id that was committed when they were asked for.

    Source: sql/functions/polls.sql, poll_commit.
    """
    bodies = list(dict.fromkeys(offer.body for offer in offers))
    index = {body: n for n, body in enumerate(bodies)}
    events = [{**offered(offer), "body": index[offer.body]} for offer in offers]

    def read(rows: Sequence[Any]) -> Committed:
        (outcome, *_, missing, restarts), *each = rows
        return Committed(
            outcome=outcome,
            accepted=[
                Accepted(verdict=row[1], event_id=row[2], run_id=row[3], reason=row[4])
                for row in each
            ],
            missing=missing or 0,
            restarts=restarts or 0,
        )

    return Call(
        "select outcome, verdict, event_id, run_id, reason, missing, restarts from"
        " semel.poll_commit(%s, %s, %s, %s, %s, %s, %s::bigint[], %s, %s::bytea[], %s, %s, %s)",
        (
            queue.project,
            queue.bot,
            queue.holder,
            fence,
            seen,
            next_id,
            list(ids),
            dump(events),
            bodies,
            queue.lease,
            memory,
            now,
        ),
        read,
    )


def poll_leave(
    queue: Queue,
    fence: int,
    state: State,
    *,
    said: str = "",
    wait: timedelta = timedelta(0),
    now: datetime | None = None,
) -> Call[bool]:
    """
    Give the lease back, so that nobody asks before *wait* has passed; False: it was lost already.

    Source: sql/functions/polls.sql, poll_leave.
    """
    return Call(
        "select semel.poll_leave(%s, %s, %s, %s, %s, %s, %s, %s)",
        (queue.project, queue.bot, queue.holder, fence, state, said, wait, now),
        lambda rows: rows[0][0] == "left",
    )


def polls_of(bot: str | None, project: str = "", source: str = "") -> Call[list[Poll]]:
    """
    Every project's poll of *bot*; None: of the bots that this *source* of *project* polled last.

    Source: sql/views/polls.sql.
    """
    return Call(
        "select project_id, bot, source, state, said, since, clock_timestamp() - since, live,"
        " place, next_id, missing, missing_from, missing_upto, clock_timestamp() - missing_at,"
        " restarts from semel.polls where bot = %s or bot in (select o.bot from semel.polls as o"
        " where %s::text is null and o.project_id = %s and o.source = %s) order by project_id",
        (bot, bot, project, source),
        lambda rows: [
            Poll(
                project=row[0],
                bot=row[1],
                source=row[2],
                state=row[3],
                said=row[4],
                since=row[5],
                for_=row[6],
                live=row[7],
                place=row[8],
                next_id=row[9],
                missing=row[10],
                missing_from=row[11],
                missing_upto=row[12],
                missing_age=row[13],
                restarts=row[14],
            )
            for row in rows
        ],
    )
