"""
Drain: what is still being executed, in the ledger and in transactions that nobody sees yet.

Two halves that one number cannot hold: rows that say PROCESSING, and transactions that have
written to a table and not ended. The second half is asked first: what commits in between is then
found in the rows. Ages are shown and decide nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.core.call import Call

if TYPE_CHECKING:
    from datetime import datetime

#: A holder of recorded operations that was silent for so long is dead.
ALIVE = timedelta(seconds=30)
#: The ledger, as `writers` wants it.
LEDGER = "semel.operation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Processing:
    """The PROCESSING operations of one project."""

    project: str
    atomic: int  # durable although no transaction of ours leaves one so
    recorded: int  # durable by design
    held: int  # of the recorded: whose holder beats


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """A transaction of this database that has written to a table, or waits to."""

    pid: int | None  # None: prepared
    gid: str | None  # of a prepared one
    application: str
    role: str | None
    state: str | None  # active, idle in transaction, prepared; None: not ours to see
    waits: bool  # for the table itself
    age: timedelta | None  # of the transaction; None: not ours to see


def drain_count(
    *, alive: timedelta = ALIVE, now: datetime | None = None
) -> Call[list[Processing]]:
    """
    Projects that have operations in PROCESSING; none that has not.

    Source: sql/functions/drain.sql, drain_count.
    """
    return Call(
        "select project_id, atomic, recorded, held from semel.drain_count(%s, %s)",
        (alive, now),
        lambda rows: [
            Processing(project=project, atomic=atomic, recorded=recorded, held=held)
            for project, atomic, recorded, held in rows
        ],
    )


def writers(table: str) -> Call[list[Writer]]:
    """
    Open and prepared transactions that hold *table* for writing, the oldest first.

    With the caller's own rights: sessions of other roles show their age and state to
    pg_read_all_stats only. Transactions on other nodes of a sharded server are not seen.

    Args:
        table: `schema.name`, quoted as SQL wants it; its partitions count.
    """
    return Call(
        # A prepared transaction has no session; the id that it holds beside the table names it.
        "select l.pid, p.gid, coalesce(a.application_name, ''), coalesce(a.usename, p.owner),"
        " case when p.gid is null then a.state else 'prepared' end, not bool_or(l.granted),"
        " clock_timestamp() - coalesce(p.prepared, a.xact_start)"
        " from pg_locks as l"
        " left join pg_stat_activity as a on a.pid = l.pid"
        " left join pg_locks as t on l.pid is null and t.pid is null"
        "  and t.locktype = 'transactionid' and t.virtualtransaction = l.virtualtransaction"
        " left join pg_prepared_xacts as p on p.transaction = t.transactionid"
        " where l.locktype = 'relation'"
        " and l.database = (select d.oid from pg_database as d"
        "  where d.datname = current_database())"
        " and l.relation in (select %s::text::regclass"
        "  union all select f.relid from pg_partition_tree(%s::text::regclass) as f)"
        " and l.mode in ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock',"
        "  'AccessExclusiveLock')"
        " and l.pid is distinct from pg_backend_pid()"
        " group by l.pid, p.gid, p.owner, p.prepared, l.virtualtransaction, a.application_name,"
        "  a.usename, a.state, a.xact_start"
        " order by coalesce(p.prepared, a.xact_start) nulls last, l.pid",
        (table, table),
        lambda rows: [_writer(row) for row in rows],
    )


def _writer(row: Any) -> Writer:
    pid, gid, application, role, state, waits, age = row
    return Writer(
        pid=pid,
        gid=gid,
        application=application,
        role=role,
        state=state,
        waits=waits,
        age=age,
    )
