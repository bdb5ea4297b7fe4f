"""
Batches: runs that are started together, page by page, and told of as one.

One function here per function in sql/functions/batches.sql: same name, same arguments; and the
reads of the view. SQL decides what is new and when a batch is over. Nothing here opens a
connection or reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from semel.core.call import Call
from semel.core.inbox import MEMORY
from semel.core.reads import PAGE, record, records
from semel.core.runs import require_agent, require_priority, require_project, span
from semel.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from semel.core.reads import Record

NAME_BYTES_MAX = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A batch as `batch_open` found it; *digest* is of its inputs, once it is closed."""

    outcome: Literal["new", "open", "exists"]
    agent: str
    on_complete: str | None
    digest: bytes | None
    total: int
    duplicates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What became of a page. *place*, from 0, is that of a conflict in it."""

    outcome: Literal["won", "conflict", "refused"]
    started: int
    duplicates: int
    place: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A batch that is complete now; *callback* is the run that is told, if there is one."""

    batch: str
    done: int
    failed: int
    cancelled: int
    on_complete: str | None
    callback: Any


def batch_open(
    project: str,
    batch: str,
    agent: str,
    *,
    on_complete: str | None = None,
    now: datetime | None = None,
) -> Call[Opened]:
    """
    Begin a batch, or find the one of that name.

    Raises:
        BadRequest: an argument is none; seen here, so that the transaction is unharmed.

    Source: sql/functions/batches.sql, batch_open.
    """
    require_project(project)
    require_agent(agent)
    if on_complete is not None:
        require_agent(on_complete)
    require_name(batch)
    return Call(
        "select outcome, agent, on_complete, digest, total, duplicates"
        " from semel.batch_open(%s, %s, %s, %s, %s)",
        (project, batch, agent, on_complete, now),
        lambda rows: Opened(
            outcome=rows[0][0],
            agent=rows[0][1],
            on_complete=rows[0][2],
            digest=None if rows[0][3] is None else bytes(rows[0][3]),
            total=rows[0][4],
            duplicates=rows[0][5],
        ),
    )


def require_name(batch: Any) -> None:
    """
    Check a batch's name.

    Raises:
        BadRequest: it is none.
    """
    if not (
        isinstance(batch, str)
        and batch.isprintable()
        and 0 < len(batch.encode(errors="replace")) <= NAME_BYTES_MAX
    ):
        raise BadRequest(f"a batch's name is 1 to {NAME_BYTES_MAX} bytes of printable text")


def batch_add(
    project: str,
    batch: str,
    inputs: str,
    *,
    keys: Sequence[str | None] | None = None,
    priority: int = 5,
    max_attempts: int | None = None,
    delay: timedelta | None = None,
    deadline: timedelta | None = None,
    memory: timedelta = MEMORY,
    now: datetime | None = None,
) -> Call[Added]:
    """
    Start a run of an open batch for each element of *inputs*, a JSON array as text.

    Args:
        keys: For each, None or what at most one run is started for; as for `runs.run_start`.

    Source: sql/functions/batches.sql, batch_add.
    """
    require_priority(priority, max_attempts)
    span("delay", delay)
    span("deadline", deadline)
    return Call(
        "select outcome, started, duplicates, place from semel.batch_add("
        "%s, %s, %s, %s::text[], 'api', %s, %s, %s, %s, %s, %s)",
        (
            project,
            batch,
            inputs,
            None if keys is None else list(keys),
            priority,
            max_attempts,
            delay,
            deadline,
            memory,
            now,
        ),
        lambda rows: Added(
            outcome=rows[0][0],
            started=rows[0][1],
            duplicates=rows[0][2],
            place=rows[0][3],
        ),
    )


def batch_close(project: str, batch: str, digest: bytes) -> Call[tuple[str, int, int]]:
    """
    Nothing more comes; answers won, already or unknown, the runs it has, and the duplicates.

    Source: sql/functions/batches.sql, batch_close.
    """
    return Call(
        "select outcome, total, duplicates from semel.batch_close(%s, %s, %s)",
        (project, batch, digest),
        lambda rows: (rows[0][0], rows[0][1], rows[0][2]),
    )


def batch_settle(project: str, *, now: datetime | None = None) -> Call[list[Settled]]:
    """
    Complete the batches of which no run lives; answers which.

    Source: sql/functions/batches.sql, batch_settle.
    """
    return Call(
        "select batch, done, failed, cancelled, on_complete, callback_id"
        " from semel.batch_settle(%s, p_now => %s)",
        (project, now),
        lambda rows: [
            Settled(
                batch=batch,
                done=done,
                failed=failed,
                cancelled=cancelled,
                on_complete=agent,
                callback=callback,
            )
            for batch, done, failed, cancelled, agent, callback in rows
        ],
    )


def batch_expire(project: str, keep: timedelta, *, now: datetime | None = None) -> Call[int]:
    """
    Forget batches that completed *keep* ago; answers how many.

    Source: sql/functions/batches.sql, batch_expire.
    """
    return Call(
        "select semel.batch_expire(%s, %s, p_now => %s)",
        (project, keep, now),
        lambda rows: int(rows[0][0]),
    )


def list_batches(
    project: str, *, before: str | None = None, limit: int = PAGE
) -> Call[list[Record]]:
    """At most *limit* batches, newest first; *before* names the last of the page before."""
    return Call(
        "select to_jsonb(b) from semel.batches as b where b.project_id = %s"
        " and (%s::text is null or (b.created_at, b.batch) < ("
        "  select o.created_at, o.batch from semel.batches as o"
        "  where o.project_id = %s and o.batch = %s))"
        " order by b.created_at desc, b.batch desc limit %s",
        (project, before, project, before, limit),
        records,
    )


def show_batch(project: str, batch: str) -> Call[Record | None]:
    """One batch and how far it is."""
    return Call(
        "select to_jsonb(b) from semel.batches as b where b.project_id = %s and b.batch = %s",
        (project, batch),
        record,
    )


def count_open() -> Call[int]:
    """How many batches of all projects are not complete."""
    return Call("select count(*) from semel.open_batches", (), lambda rows: int(rows[0][0]))
