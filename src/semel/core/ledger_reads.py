"""
Ledger reads: what the view `operations` says, as JSON, for the API and the command line.

What operations answered is granted apart: it is in a record only where it was asked for, and null
where the database does not let this role read it. Nothing here changes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from semel.core.call import Call
from semel.core.reads import PAGE, record, records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import LiteralString

    from semel.core.reads import Record

OperationStatus = Literal["PENDING", "PROCESSING", "SUCCEEDED", "FAILED"]

#: A longer reply is not shown in a list.
LISTED_BYTES_MAX = 64 * 1024

_FIELDS: LiteralString = (
    "jsonb_build_object('project_id', o.project_id, 'request_id', o.request_id,"
    " 'target', o.target, 'event_type', o.event_type, 'actor_user_id', o.actor_user_id,"
    " 'status', o.status, 'attempts', o.attempts, 'mode', o.mode, 'holder', o.holder,"
    " 'holder_name', o.holder_name, 'holder_beat_at', o.holder_beat_at,"
    " 'reply_status', o.reply_status, 'reply_bytes', o.reply_bytes, 'gone', o.gone,"
    " 'error_code', o.error_code, 'error', o.error, 'imported_from', o.imported_from,"
    " 'created_at', o.created_at, 'updated_at', o.updated_at,"
    " 'processing_at', o.processing_at, 'completed_at', o.completed_at)"
)


def list_operations(
    project: str,
    *,
    status: str | None = None,
    operation: str | None = None,
    before: str | None = None,
    results: bool = False,
    limit: int = PAGE,
) -> Call[list[Record]]:
    """
    At most *limit* operations, newest first, optionally of one status or procedure.

    *before* is the request_id of the last one of the page before. With *results* a record has a
    `result`, null above LISTED_BYTES_MAX.
    """
    result: LiteralString = (
        " || jsonb_build_object('result', case when o.reply_bytes <= %s then o.result end)"
    )
    return Call(
        "select "  # noqa: S608 - literals
        + _FIELDS
        + (result if results else "")
        + " from semel.operation_newest(%s, %s, %s, %s, %s) as n join semel.operations as o"
        " on o.project_id = %s and o.request_id = n.request_id"
        " order by n.created_at desc, n.request_id desc",
        (
            *((LISTED_BYTES_MAX,) if results else ()),
            project,
            status,
            operation,
            before,
            limit,
            project,
        ),
        records,
    )


def show_operation(project: str, request_id: str) -> Call[Record | None]:
    """One operation, with what identifies its input, its reply, and what was judged of it."""
    return Call(
        "select "  # noqa: S608 - literals
        + _FIELDS
        + " || jsonb_build_object('payload', o.payload, 'reply_headers', o.reply_headers,"
        " 'result', o.result, 'judgements', (select coalesce(jsonb_agg(jsonb_build_object("
        "   'judgement_id', j.judgement_id, 'judged_at', j.judged_at, 'judged_by', j.judged_by,"
        "   'reason', j.reason, 'before', j.before, 'after', j.after)"
        "   order by j.judged_at, j.judgement_id), '[]')"
        "  from semel.judgements as j"
        "  where j.project_id = o.project_id and j.request_id = o.request_id))"
        " from semel.operations as o where o.project_id = %s and o.request_id = %s",
        (project, request_id),
        record,
    )


def operation_of_key(project: str, base: str) -> Call[list[str]]:
    """
    The request ids of one key, at most 200: *base*, and those of tRPC that continue it.

    Source: sql/functions/operations_read.sql, operation_of_key.
    """
    return Call(
        "select request_id from semel.operation_of_key(%s, %s)",
        (project, base),
        lambda rows: [row[0] for row in rows],
    )


def project_of_operation(request_id: str, projects: Sequence[str]) -> Call[str | None]:
    """The one of *projects* that has this operation."""
    return Call(
        "select p from unnest(%s::text[]) as p where exists (select from semel.operations as o"
        " where o.project_id = p and o.request_id = %s)",
        (list(projects), request_id),
        _first,
    )


def results_readable() -> Call[bool]:
    """Whether this role may read what operations answered."""
    return Call(
        "select has_column_privilege('semel.operation', 'reply_body', 'select')",
        (),
        lambda rows: bool(rows[0][0]),
    )


def _first(rows: Sequence[Any]) -> str | None:
    return rows[0][0] if rows else None
