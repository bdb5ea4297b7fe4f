"""
Reconcile: what waits for a person's judgement, and the judgement.

One function here per function in sql/functions/reconcile.sql. The SQL decides what may be judged;
nothing is decided by age, here or there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from semel.core.call import Call
from semel.core.drain import ALIVE
from semel.core.reads import PAGE, records

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from semel.core.operations import Reply
    from semel.core.reads import Record

#: unknown: PROCESSING, and nobody executes it; legacy: nothing to compare a request with.
Kind = Literal["unknown", "legacy"]
Judgement = Literal["SUCCEEDED", "FAILED"]
Outcome = Literal["won", "unknown", "foreign", "refused", "changed", "alive", "locked"]


def reconcile_list(
    project: str,
    *,
    kind: Kind | None = None,
    after: tuple[str, str] | None = None,
    limit: int = PAGE,
    alive: timedelta = ALIVE,
    now: datetime | None = None,
) -> Call[list[Record]]:
    """
    Operations that wait for a judgement, unknown ones first, then by request_id.

    *after* is (kind, request_id) of the last one of the page before.

    Source: sql/functions/reconcile.sql, reconcile_list.
    """
    return Call(
        "select to_jsonb(r) || jsonb_build_object('project_id', %s::text)"
        " from semel.reconcile_list(%s, %s, %s, %s, %s, %s, %s) as r",
        (project, project, kind, *(after or ("", "")), limit, alive, now),
        records,
    )


def reconcile_resolve(
    project: str,
    request_id: str,
    *,
    attempts: int,
    updated_at: datetime,
    judgement: Judgement,
    by: str,
    reason: str,
    reply: Reply | None = None,
    alive: timedelta = ALIVE,
    now: datetime | None = None,
) -> Call[tuple[Outcome, str | None]]:
    """
    Judge an operation as it was seen in *attempts* and *updated_at*.

    Args:
        judgement: SUCCEEDED: the next same request gets *reply*, or is told that it was executed.
            FAILED: it had no effect, and the next same request executes it.
        by: Who judges.

    Returns:
        The outcome, and the state the operation is in now.

    Source: sql/functions/reconcile.sql, reconcile_resolve.
    """
    status, headers, body = (
        (reply.status, json.dumps(reply.headers), reply.body) if reply else (200, None, None)
    )
    return Call(
        "select outcome, status from semel.reconcile_resolve(%s, %s, %s, %s, %s, %s, %s,"
        " %s, %s::text::jsonb, %s, %s, %s)",
        (
            project,
            request_id,
            attempts,
            updated_at,
            judgement,
            by,
            reason,
            status,
            headers,
            body,
            alive,
            now,
        ),
        lambda rows: (rows[0][0], rows[0][1]),
    )
