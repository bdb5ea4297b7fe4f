"""
psycopg, sync and async: every verb is one round trip.

The statements go as one simple query, past psycopg's cursors: so neither the connection's row and
cursor factories and adapters nor the BEGIN that it sends by itself are in the way, and PgBouncer
sees nothing but a transaction. psycopg reads the transaction's state from libpq, hence keeps
knowing it.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import generators
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus

from semel.core.call import Call
from semel.db.ledger.driver import Driver, RolledBack, State, Word
from semel.db.ledger.literal import bound
from semel.db.transact import answered
from semel.errors import TransactionUnfit

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.pq.abc import PGresult

_STATES: dict[int, State] = {
    TransactionStatus.IDLE: "idle",
    TransactionStatus.ACTIVE: "closed",  # somebody is in the middle of a statement
    TransactionStatus.INTRANS: "open",
    TransactionStatus.INERROR: "aborted",
    TransactionStatus.UNKNOWN: "closed",
}
_GOOD = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY)

#: How to open another one; asked once for each, since a closed one no longer says.
_WAYS: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()


class Psycopg(Driver):
    """A psycopg Connection or AsyncConnection."""

    def __init__(self, conn: Any, *, join: bool) -> None:
        super().__init__(join=join)
        self._conn = conn
        self.asynchronous = isinstance(conn, psycopg.AsyncConnection)
        self._depth = 0

    async def ready(self) -> None:
        """Note how to open another one."""
        if not self._conn.closed:
            kind = psycopg.AsyncConnection if self.asynchronous else psycopg.Connection
            self.reconnect = _way(kind, self._conn)

    def state(self) -> State:
        """As libpq knows it."""
        if self._conn.closed:
            return "closed"
        return _STATES[self._conn.pgconn.transaction_status]

    def begins_itself(self) -> bool:
        """Unless in autocommit."""
        return not self._conn.autocommit

    def check_owner(self) -> None:
        """One `conn.transaction()` around us is its outermost; a second one is a savepoint."""
        self._depth = getattr(self._conn, "_num_transactions", 0)
        if self._depth > 1:
            raise TransactionUnfit(
                "the connection is in a nested conn.transaction(), which is a savepoint; move the"
                " operation out of it, or join=True"
            )
        if self._conn.pgconn.pipeline_status != PipelineStatus.OFF:
            raise TransactionUnfit(
                "the connection is in pipeline mode; begin the operation outside conn.pipeline()"
            )

    def is_in_block(self) -> bool:
        """In a `conn.transaction()`."""
        return self._depth > 0

    @property
    def pool(self) -> Any:
        """The psycopg_pool pool that it belongs to."""
        return getattr(self._conn, "_pool", None)

    async def send(self, *parts: Word | Call[Any]) -> list[Any]:
        """In one round trip."""
        sql = ";".join(
            self._said(part) if isinstance(part, Word) else bound(part) for part in parts
        )
        results = await answered(
            self._asend(sql.encode()) if self.asynchronous else self._send(sql.encode())
        )
        for result in results:
            if result.status not in _GOOD:
                encoding = self._conn.info.encoding if not self._conn.closed else "utf-8"
                raise psycopg.errors.error_from_result(result, encoding=encoding)
        if Word.COMMIT in parts and b"ROLLBACK" in [r.command_status for r in results]:
            raise RolledBack
        answers = [result for result in results if result.status == ExecStatus.TUPLES_OK]
        calls = [part for part in parts if isinstance(part, Call)]
        return [
            call.read(self._rows(result)) for call, result in zip(calls, answers, strict=True)
        ]

    async def close(self) -> None:
        """Close it; its pool replaces it."""
        await answered(self._conn.close())

    def _said(self, word: Word) -> str:
        if word is Word.BEGIN:
            return self._begin()
        if self._depth and word in (Word.COMMIT, Word.ROLLBACK):
            # The block around us goes on, in a transaction that it will end; where a statement
            # was before it, it has a savepoint, by this name, that it will release.
            chained = f"{word.value} and chain"
            return chained if self._conn.autocommit else f"{chained};savepoint _pg3_1"
        return str(word.value)

    def _begin(self) -> str:
        """As psycopg would: with the connection's own characteristics."""
        conn = self._conn
        words = ["begin"]
        if conn.isolation_level is not None:
            words.append(
                f"isolation level {conn.isolation_level.name.replace('_', ' ').lower()}"
            )
        if conn.read_only is not None:
            words.append("read only" if conn.read_only else "read write")
        return " ".join(words)

    def _send(self, sql: bytes) -> list[PGresult]:
        with self._conn.lock:
            self._conn.pgconn.send_query(sql)
            results: list[PGresult] = self._conn.wait(generators.execute(self._conn.pgconn))
            return results

    async def _asend(self, sql: bytes) -> list[PGresult]:
        async with self._conn.lock:
            self._conn.pgconn.send_query(sql)
            results: list[PGresult] = await self._conn.wait(
                generators.execute(self._conn.pgconn)
            )
            return results

    def _rows(self, result: PGresult) -> list[Any]:
        reader = Transformer(self._conn)
        reader.set_pgresult(result)
        return reader.load_rows(0, result.ntuples, tuple)


def _way(kind: Any, conn: Any) -> Callable[[], Any]:
    try:
        told = _WAYS[conn]
    except KeyError:
        told = {**conn.info.get_parameters()}
        if conn.info.password:
            told["password"] = conn.info.password
        _WAYS[conn] = told
    return partial(kind.connect, autocommit=True, prepare_threshold=None, **told)
