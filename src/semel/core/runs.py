"""
Runs: start one, lease it, end it.

One function here per function in sql/functions/{runs,claims,transitions,workers,recovery}.sql:
same name, same arguments. The SQL decides who won; this module gives the answer a type. Nothing
here opens a connection or reads a clock.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.core.call import Call, nothing
from semel.core.inbox import MEMORY
from semel.core.text import dump
from semel.errors import BadKey, BadRequest
from semel.model import Claim, Ended, Hint, Reaped, Started

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

NO_DELAY = timedelta(0)

_PROJECT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_AGENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
KEY_CHARS_MAX = 255

#: RESUMED, then priority 9 to 0.
ORDINARY_LANES = tuple(range(11))


def run_start(
    project: str,
    agent: str,
    input: Any,  # noqa: A002 - the contract's word
    *,
    key: str | None = None,
    source: str = "api",
    priority: int = 5,
    max_attempts: int | None = None,
    delay: timedelta | None = None,
    deadline: timedelta | None = None,
    unique: str | None = None,
    memory: timedelta = MEMORY,
    now: datetime | None = None,
) -> Call[Started]:
    """
    Start a run inside the caller's transaction; nothing is seen of it if that rolls back.

    Args:
        input: Any JSON.
        key: With a key, at most one run for (project, source, key) while it is remembered.
        priority: 0 (last) to 9 (first).
        max_attempts: How often it may start; None is what its agent says.
        delay: Ready only after this, from now.
        deadline: FAILED with E-RUN-004 when it has not finished by then, from now.
        unique: At most one live run of *agent* for it; the answer is `exists` and that run.

    Raises:
        BadRequest, BadKey: an argument is none; seen here, so that the transaction is unharmed.

    Source: sql/functions/runs.sql, run_start.
    """
    if not _PROJECT.fullmatch(project):
        raise BadRequest(f"{project[:80]!r} is no project: 1 to 64 of a-z, 0-9, _ and -")
    if not _AGENT.fullmatch(agent):
        raise BadRequest(f"{agent[:150]!r} is no agent: 1 to 128 of A-Z, a-z, 0-9, _, . and -")
    if priority not in range(10):
        raise BadRequest(f"priority {priority}: write 0 (last) to 9 (first)")
    if max_attempts is not None and max_attempts < 1:
        raise BadRequest(f"max_attempts {max_attempts}: write 1 or more")
    if key is not None and not (key.isprintable() and 0 < len(key) <= KEY_CHARS_MAX):
        raise BadKey(f"a key is 1 to {KEY_CHARS_MAX} printable characters")
    try:
        text = dump(input)
    except (TypeError, ValueError, RecursionError) as bad:
        raise BadRequest(f"the input is no JSON: {bad}") from None
    return Call(
        "select run_id, event_id, outcome"
        " from semel.run_start(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            project,
            agent,
            text,
            key,
            source,
            priority,
            max_attempts,
            delay,
            deadline,
            unique,
            memory,
            now,
        ),
        lambda rows: Started(run_id=rows[0][0], event_id=rows[0][1], outcome=rows[0][2]),
    )


def run_claim(
    project: str,
    agent: str,
    worker: str,
    *,
    limit: int,
    lease: timedelta,
    max_attempts: int = 3,
    lanes: Sequence[int] = ORDINARY_LANES,
    marks: Sequence[datetime | None] = (),
    oldest: bool = False,
    now: datetime | None = None,
) -> Call[list[Claim]]:
    """
    Lease up to *limit* ready runs of *agent* to *worker*.

    Args:
        limit: 1 to the worker's free slots.
        max_attempts: For runs that name none themselves.
        lanes: Where to look, in this order; by default RESUMED, then priority 9 to 0.
        marks: For each lane, the ready_at of the last run claimed there; the scan begins 100 ms
            before it. None, or missing: from the start.
        oldest: The lane whose first run waits longest goes first.

    Source: sql/functions/claims.sql, run_claim.
    """

    def read(rows: Sequence[Any]) -> list[Claim]:
        return [
            Claim(
                project=project,
                worker=worker,
                agent=agent,
                run_id=row[0],
                fence=row[1],
                attempt=row[2],
                max_attempts=row[3],
                text=row[4],
                source=row[5],
                event_id=row[6],
                priority=row[7],
                lane=row[8],
                ready_at=row[9],
            )
            for row in rows
        ]

    return Call(
        "select run_id, fence, attempt, max_attempts, input, source, event_id, priority, lane,"
        " ready_at from semel.run_claim("
        "%s, %s, %s, %s, %s, %s, %s::int[], %s::timestamptz[], %s, %s)",
        (
            project,
            agent,
            worker,
            limit,
            lease,
            max_attempts,
            list(lanes),
            list(marks),
            oldest,
            now,
        ),
        read,
    )


def run_complete(
    project: str,
    worker: str,
    ended: Sequence[tuple[UUID, int, str]],
    *,
    now: datetime | None = None,
) -> Call[list[Ended]]:
    """
    Finish runs that *worker* holds, as (run, fence, result as JSON text).

    Source: sql/functions/runs.sql, run_complete.
    """
    return Call(
        "select run_id, outcome from semel.run_complete("
        "%s, %s, %b::uuid[], %b::bigint[], %b::text[], %s)",
        (
            project,
            worker,
            [run for run, _, _ in ended],
            [fence for _, fence, _ in ended],
            [result for _, _, result in ended],
            now,
        ),
        _ended,
    )


def run_fail(
    claim: Claim,
    code: str,
    reason: str,
    *,
    delay: timedelta = NO_DELAY,
    retryable: bool = True,
    now: datetime | None = None,
) -> Call[list[Ended]]:
    """
    End an attempt that went wrong; the run is tried again after *delay* while attempts are left.

    Source: sql/functions/runs.sql, run_fail.
    """
    return Call(
        "select run_id, outcome from semel.run_fail(%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            claim.project,
            claim.worker,
            claim.run_id,
            claim.fence,
            code,
            reason,
            delay,
            retryable,
            now,
        ),
        _ended,
    )


def run_release(
    project: str,
    worker: str,
    held: Sequence[tuple[UUID, int]],
    *,
    now: datetime | None = None,
) -> Call[list[Ended]]:
    """
    Give runs back unharmed, as (run, fence): the next claim is no new attempt.

    Source: sql/functions/runs.sql, run_release.
    """
    return Call(
        "select run_id, outcome from semel.run_release(%s, %s, %s::uuid[], %s::bigint[], %s)",
        (project, worker, [run for run, _ in held], [fence for _, fence in held], now),
        _ended,
    )


def run_cancel(
    project: str,
    run_id: UUID,
    *,
    reason: str = "cancelled by an operator",
    now: datetime | None = None,
) -> Call[tuple[str, str | None]]:
    """
    Cancel a run; its handler is told by the next beat.

    Returns:
        won, already, refused (it ended otherwise) or unknown; and the state it was found in.

    Source: sql/functions/transitions.sql, run_cancel.
    """
    return Call(
        "select outcome, status from semel.run_cancel(%s, %s, %s, %s)",
        (project, run_id, reason, now),
        lambda rows: (rows[0][0], rows[0][1]),
    )


def run_retry(
    project: str, run_id: UUID, *, now: datetime | None = None
) -> Call[tuple[str, str | None]]:
    """
    Let a FAILED or CANCELLED run start again, max_attempts times more.

    Returns:
        won, refused or unknown; and the state it was found in.

    Source: sql/functions/transitions.sql, run_retry.
    """
    return Call(
        "select outcome, status from semel.run_retry(%s, %s, %s)",
        (project, run_id, now),
        lambda rows: (rows[0][0], rows[0][1]),
    )


def run_overdue(project: str, *, now: datetime | None = None) -> Call[list[UUID]]:
    """
    Fail the runs whose deadline has passed; answers which.

    Source: sql/functions/transitions.sql, run_overdue.
    """
    return Call(
        "select run_id from semel.run_overdue(%s, p_now => %s)",
        (project, now),
        lambda rows: [row[0] for row in rows],
    )


def agent_wake(agents: Sequence[str]) -> Call[None]:
    """Tell idle workers that there is work for *agents*; only after the commit that made it."""
    return Call(
        "select pg_notify('semel', agent) from unnest(%s::text[]) as agent",
        (list(agents),),
        nothing,
    )


def agent_pause(project: str, agent: str) -> Call[str]:
    """
    Claim no run of *agent* until it is resumed; answers won or already.

    Source: sql/functions/agents.sql, agent_pause.
    """
    return Call(
        "select outcome from semel.agent_pause(%s, %s)",
        (project, agent),
        lambda rows: str(rows[0][0]),
    )


def agent_resume(project: str, agent: str) -> Call[str]:
    """
    Claim runs of *agent* again; answers won or already.

    Source: sql/functions/agents.sql, agent_resume.
    """
    return Call(
        "select outcome from semel.agent_resume(%s, %s)",
        (project, agent),
        lambda rows: str(rows[0][0]),
    )


def run_hint(
    agents: Sequence[str],
    *,
    marks: Mapping[tuple[str, str, int], datetime] | None = None,
    now: datetime | None = None,
) -> Call[list[Hint]]:
    """
    Where runs of *agents* wait; a hint, never a truth.

    Args:
        marks: Look only at these (project, agent, lane), from each one's mark on. None: look
            everywhere from the start, which also finds what is due.

    Source: sql/functions/claims.sql, run_hint.
    """

    def read(rows: Sequence[Any]) -> list[Hint]:
        return [
            Hint(project=project, agent=agent, lane=lane, ready_at=ready_at)
            for project, agent, lane, ready_at in rows
        ]

    if marks is None:
        return Call(
            "select project_id, agent, lane, ready_at"
            " from semel.run_hint(%s::text[], p_now => %s)",
            (list(agents), now),
            read,
        )
    keys = list(marks)
    return Call(
        "select project_id, agent, lane, ready_at from semel.run_hint("
        "%s::text[], %s::text[], %s::text[], %s::int[], %s::timestamptz[], p_now => %s)",
        (
            list(agents),
            [project for project, _, _ in keys],
            [agent for _, agent, _ in keys],
            [lane for _, _, lane in keys],
            [marks[key] for key in keys],
            now,
        ),
        read,
    )


def run_due(
    project: str, agent: str | None = None, *, now: datetime | None = None
) -> Call[int]:
    """
    Make the project's due retries and delayed starts claimable; answers how many.

    Source: sql/functions/claims.sql, run_due.
    """
    return Call(
        "select semel.run_due(%s, %s, p_now => %s)",
        (project, agent, now),
        lambda rows: int(rows[0][0]),
    )


def run_beat(
    project: str,
    worker: str,
    held: Sequence[tuple[UUID, int]],
    *,
    lease: timedelta,
    now: datetime | None = None,
) -> Call[list[tuple[UUID, int]]]:
    """
    Beat for *worker*, renew what is past half of its lease.

    Returns:
        The (run, fence) pairs of *held* that it holds no longer: stop their handlers.

    Source: sql/functions/workers.sql, run_beat.
    """
    return Call(
        "select run_id, fence from semel.run_beat(%s, %s, %s::uuid[], %s::bigint[], %s, %s)",
        (project, worker, [run for run, _ in held], [fence for _, fence in held], lease, now),
        lambda rows: [(run_id, fence) for run_id, fence in rows],
    )


def run_reap(
    project: str,
    *,
    dead_after: timedelta,
    trust: bool = False,
    now: datetime | None = None,
) -> Call[list[Reaped]]:
    """
    Take runs from workers that are silent for *dead_after* or whose lease has passed.

    Args:
        trust: Let a test jump *now* past the guard against outages.

    Source: sql/functions/recovery.sql, run_reap.
    """
    return Call(
        "select run_id, worker_id, outcome from semel.run_reap(%s, %s, 1000, %s, %s)",
        (project, dead_after, trust, now),
        _reaped,
    )


def worker_lost(
    project: str, worker: str, *, now: datetime | None = None
) -> Call[list[Reaped]]:
    """
    Judge the runs of a worker that is known to be gone.

    Source: sql/functions/recovery.sql, worker_lost.
    """
    return Call(
        "select run_id, worker_id, outcome from semel.worker_lost(%s, %s, %s)",
        (project, worker, now),
        _reaped,
    )


def worker_register(
    project: str,
    worker: str,
    *,
    host: str,
    pid: int,
    slots: int,
    agents: Sequence[tuple[str, int, int | None, str]],
) -> Call[None]:
    """
    Announce a worker process and its agents, as (name, max_attempts, max_running, executor).

    Source: sql/functions/workers.sql, worker_register.
    """
    return Call(
        "select semel.worker_register("
        "%s, %s, %s, %s, %s, %s::text[], %s::int[], %s::int[], %s::text[])",
        (
            project,
            worker,
            host,
            pid,
            slots,
            [name for name, _, _, _ in agents],
            [attempts for _, attempts, _, _ in agents],
            [running for _, _, running, _ in agents],
            [executor for _, _, _, executor in agents],
        ),
        nothing,
    )


def worker_stop(project: str, worker: str) -> Call[None]:
    """
    Take leave: this worker holds nothing and will not beat again.

    Source: sql/functions/workers.sql, worker_stop.
    """
    return Call("select semel.worker_stop(%s, %s)", (project, worker), nothing)


def _ended(rows: Sequence[Any]) -> list[Ended]:
    return [Ended(run_id=run_id, outcome=outcome) for run_id, outcome in rows]


def _reaped(rows: Sequence[Any]) -> list[Reaped]:
    return [
        Reaped(run_id=run_id, worker=worker, outcome=outcome)
        for run_id, worker, outcome in rows
        if run_id is not None
    ]
