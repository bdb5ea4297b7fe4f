"""
Legacy tables: reading what a first-seed system left in this database.

    dedupe (dedupe_id, project_id, channel_type, provider_event_id, run_id, created_at)

The table is named by a person. PostgreSQL parses the name and answers which table it is; only
that answer, quoted, becomes part of a statement. Nothing here writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from semel.core.legacy import BATCH_MAX, Seen
from semel.errors import NotImportable

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = (
    "dedupe_id",
    "project_id",
    "channel_type",
    "provider_event_id",
    "run_id",
    "created_at",
)


@dataclass(frozen=True, slots=True)
class DedupeTable:
    """A table of that shape."""

    schema: str
    name: str

    def pages(
        self, conn: psycopg.Connection[Any], project: str, channel: str
    ) -> Iterator[list[Seen]]:
        """
        The rows of one project and channel type, BATCH_MAX at a time, in the order of their ids.

        That order is the table's own unique index, so no page reads another's rows. A row that
        is written behind the page under way is found by reading again.
        """
        page = sql.SQL(
            "select provider_event_id::text, run_id::uuid,"
            " greatest(least(created_at::timestamptz, now()), 'epoch') from {}"
            " where project_id = %s and channel_type = %s"
            " and (%s::text is null or provider_event_id > %s)"
            " order by provider_event_id limit %s"
        ).format(sql.Identifier(self.schema, self.name))
        last: str | None = None
        while True:
            try:
                rows = conn.execute(page, (project, channel, last, last, BATCH_MAX)).fetchall()
            except psycopg.Error as error:
                raise _unreadable(self, error) from error
            if rows:
                yield [Seen(id=row[0], run_id=row[1], at=row[2]) for row in rows]
                last = rows[-1][0]
            if len(rows) < BATCH_MAX:
                return

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def dedupe_table(conn: psycopg.Connection[Any], told: str) -> DedupeTable:
    """
    The table that *told* names: `name` or `schema.name`, quoted where SQL wants it.

    Raises:
        NotImportable: there is none, or it has not the columns.
    """
    try:
        found = conn.execute(
            "select n.nspname, c.relname,"
            " array(select a.attname::text from pg_attribute as a"
            "       where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)"
            " from pg_class as c join pg_namespace as n on n.oid = c.relnamespace"
            " where c.oid = to_regclass(%s) and c.relkind in ('r', 'p', 'v', 'm', 'f')",
            (told,),
        ).fetchone()
    except (psycopg.errors.SyntaxError, psycopg.DataError, psycopg.NotSupportedError) as error:
        raise NotImportable(f"{told[:80]!r} is no table's name: {_said(error)}") from None
    except psycopg.Error as error:
        if (error.sqlstate or "").startswith("42"):
            raise NotImportable(f"{told[:80]!r} is no table's name: {_said(error)}") from None
        raise
    if found is None:
        raise NotImportable(
            f"there is no table {told[:80]} in this database: write SCHEMA.TABLE; a table of"
            " another database must be copied here first"
        )
    table = DedupeTable(found[0], found[1])
    missing = [column for column in COLUMNS if column not in found[2]]
    if missing:
        raise NotImportable(
            f"{table} has no column {', '.join(missing)}: a dedupe table has {', '.join(COLUMNS)}"
        )
    return table


def _unreadable(table: DedupeTable, error: psycopg.Error) -> Exception:
    """A refusal where the table is at fault, else *error* itself."""
    if (error.sqlstate or "").startswith(("22", "42")):
        return NotImportable(f"{table} cannot be read: {_said(error)}")
    return error


def _said(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).partition("\n")[0]
