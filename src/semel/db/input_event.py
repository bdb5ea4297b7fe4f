"""
The `input_event` table of a system before this one: its drain, and taking its operations over.

    input_event (request_id, target, event_type, payload, actor_user_id, status, attempts, result,
                 error, created_at, processing_at, completed_at)

The table is named by a person. PostgreSQL parses the name and answers which table it is; only
that answer, quoted, becomes part of a statement. What it holds is read and never written; while it
is copied, SHARE keeps everyone else from writing to it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from semel.core import drain
from semel.core.operations import REQUEST_BYTES_MAX
from semel.core.operations_import import BATCH_MAX, Legacy, operation_import
from semel.core.spelling import spelled
from semel.db.execute import run
from semel.errors import BadInput, NotALedger, NotDrained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semel.core.drain import Writer

COLUMNS = (
    "request_id",
    "target",
    "event_type",
    "payload",
    "actor_user_id",
    "status",
    "attempts",
    "result",
    "error",
    "created_at",
    "processing_at",
    "completed_at",
)
STATUSES = frozenset({"PENDING", "PROCESSING", "SUCCEEDED", "FAILED"})
#: Of results, so much is sent in one batch; a single one may be longer.
BATCH_BYTES_MAX = 8 * 1024 * 1024
#: Rows that the server hands out at a time.
FETCH_ROWS = 200
#: Ids of conflicts that a report names.
NAMED_MAX = 100


@dataclass(frozen=True, slots=True)
class Undrained:
    """What keeps the table from being drained."""

    processing: int  # the seed's own query
    writers: list[Writer]

    @property
    def drained(self) -> bool:
        """Whether both are none."""
        return not self.processing and not self.writers


@dataclass(slots=True, kw_only=True)
class Report:
    """What an import did."""

    read: int = 0
    imported: int = 0
    changed: int = 0
    known: int = 0
    unusable: int = 0  # an id that no request here can have: none, empty, or too long
    by_target: Counter[str] = field(default_factory=Counter)
    conflicts: list[str] = field(default_factory=list)  # the first NAMED_MAX
    conflicting: int = 0


@dataclass(frozen=True, slots=True)
class InputEventTable:
    """A table of that shape."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def _quoted(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    def drain(self, conn: psycopg.Connection[Any]) -> Undrained:
        """Its writers first, then its PROCESSING rows: who commits in between is in the rows."""
        open_ = run(conn, drain.writers(self._quoted.as_string(conn)))
        return Undrained(self._processing(conn), open_)

    def take(
        self, conn: psycopg.Connection[Any], project: str, *, stuck: bool = False
    ) -> Report:
        """
        Copy every operation into the ledger of *project*, in one transaction; all or nothing.

        Args:
            conn: In autocommit.
            stuck: Copy PROCESSING operations too: they stay what they are, and wait for a
                judgement here. Transactions that still write are refused all the same.

        Raises:
            NotDrained: something is PROCESSING, or a transaction writes to the table.
            NotALedger: a row has a state, or a result, that no such table holds.
        """
        found = self.drain(conn)
        if found.writers or (found.processing and not stuck):
            raise NotDrained(f"{self} is not drained: {said(found)}")
        report = Report()
        with conn.transaction():
            # A short wait: behind our lock every writer of the old system would queue.
            conn.execute("set local lock_timeout = '2s'")
            conn.execute("set local timezone = 'UTC'")  # what a time without a zone is in
            try:
                conn.execute(sql.SQL("lock table {} in share mode").format(self._quoted))
            except psycopg.errors.LockNotAvailable:
                raise NotDrained(f"a transaction holds {self} for writing") from None
            processing = self._processing(conn)
            if processing and not stuck:
                raise NotDrained(f"{self} is not drained: {processing} PROCESSING")
            for page in self._pages(conn, report):
                taken = run(conn, operation_import(project, str(self), page))
                report.imported += taken.imported
                report.changed += taken.changed
                report.known += taken.known
                report.conflicting += len(taken.conflicts)
                report.conflicts += taken.conflicts[: NAMED_MAX - len(report.conflicts)]
        return report

    def _processing(self, conn: psycopg.Connection[Any]) -> int:
        """The query that the seed gives its operators."""
        query = sql.SQL(
            "select count(*) from {} where target = 'API' and status = 'PROCESSING'"
        )
        try:
            [[count]] = conn.execute(query.format(self._quoted)).fetchall()
        except psycopg.Error as error:
            raise _unreadable(self, error) from error
        return int(count)

    def _pages(self, conn: psycopg.Connection[Any], report: Report) -> Iterator[list[Legacy]]:
        query = sql.SQL(
            "select request_id::text, target::text, event_type::text,"
            " actor_user_id::text, coalesce(payload::jsonb, '{{}}')::text,"
            " status::text, greatest(coalesce(attempts, 0), 0)::int, result::jsonb::text,"
            " error::text, {}, {}, {} from {} order by request_id"
        ).format(*map(_time, ("created_at", "processing_at", "completed_at")), self._quoted)
        last = ""
        page: list[Legacy] = []
        size = 0
        try:
            with conn.cursor("semel_import") as rows:
                rows.itersize = FETCH_ROWS
                rows.execute(query)
                for row in rows:
                    report.read += 1
                    report.by_target[row[1]] += 1
                    if not 0 < len((row[0] or "").encode()) <= REQUEST_BYTES_MAX:
                        report.unusable += 1
                        continue
                    if row[0] == last:
                        raise NotALedger(f"{self} has the operation {last[:80]!r} twice")
                    last = row[0]
                    one = _legacy(self, row)
                    size += len(one.result or b"")
                    page.append(one)
                    if len(page) == BATCH_MAX or size > BATCH_BYTES_MAX:
                        yield page
                        page, size = [], 0
        except psycopg.Error as error:
            raise _unreadable(self, error) from error
        if page:
            yield page


def input_event_table(conn: psycopg.Connection[Any], told: str) -> InputEventTable:
    """
    The table that *told* names: `name` or `schema.name`, quoted where SQL wants it.

    Raises:
        NotALedger: there is none, or it has not the columns.
    """
    try:
        found = conn.execute(
            "select n.nspname, c.relname,"
            " array(select a.attname::text from pg_attribute as a"
            "       where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)"
            " from pg_class as c join pg_namespace as n on n.oid = c.relnamespace"
            " where c.oid = to_regclass(%s) and c.relkind in ('r', 'p')",
            (told,),
        ).fetchone()
    except psycopg.Error as error:
        if (error.sqlstate or "").startswith(("0A", "22", "42")):
            raise NotALedger(f"{told[:80]!r} is no table's name: {_said(error)}") from None
        raise
    if found is None:
        raise NotALedger(
            f"there is no table {told[:80]} in this database: write SCHEMA.TABLE; a table of"
            " another database must be copied here first"
        )
    table = InputEventTable(found[0], found[1])
    missing = [column for column in COLUMNS if column not in found[2]]
    if missing:
        raise NotALedger(
            f"{table} has no column {', '.join(missing)}: an input_event table has"
            f" {', '.join(COLUMNS)}"
        )
    return table


def said(found: Undrained) -> str:
    """What is not drained, in words."""
    parts = []
    if found.processing:
        parts.append(f"{found.processing} PROCESSING")
    if found.writers:
        parts.append(f"{len(found.writers)} transactions that write to it")
    return " and ".join(parts) or "nothing is PROCESSING and nothing writes to it"


def _legacy(table: InputEventTable, row: Any) -> Legacy:
    request, target, event, actor, payload, status, attempts, result, error, *times = row
    if target not in {None, "API"}:  # kept only so that its id conflicts, whatever it says
        status, event = status or "", event or ""
    elif status not in STATUSES or target is None or event is None:
        raise NotALedger(
            f"{table} has an operation {request[:80]!r} in state {status!r} of target {target!r}"
            f" and type {event!r}: states are {', '.join(sorted(STATUSES))}, and neither is empty"
        )
    created_at, processing_at, completed_at = times
    return Legacy(
        request_id=request,
        target=target,
        event_type=event,
        actor=actor,
        payload=payload,
        status=status,
        attempts=attempts,
        result=None if result is None else _answered(result.encode()),
        error=error,
        created_at=created_at,
        processing_at=processing_at,
        completed_at=completed_at,
    )


def _time(column: str) -> sql.Composed:
    """A *column* as a time; none where Python has no such time, as for infinity."""
    return sql.SQL(
        "case when {0}::timestamptz between '0001-01-02' and '9999-12-30' then {0}::timestamptz end"
    ).format(sql.Identifier(column))


def _answered(result: bytes) -> bytes:
    """*result* as the system before answered it: the canonical JSON of its version."""
    try:
        return spelled(result, 1, "js")
    except BadInput:
        return result  # larger or deeper than we take from outside; it is JSON all the same


def _unreadable(table: InputEventTable, error: psycopg.Error) -> Exception:
    """A refusal where the table is at fault, else *error* itself."""
    if (error.sqlstate or "").startswith(("22", "42")):
        return NotALedger(f"{table} cannot be read: {_said(error)}")
    return error


def _said(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).partition("\n")[0]
