"""
psycopg, sync and async: every verb is one round trip.

The statements go past psycopg's cursors: so neither the connection's row and cursor factories and
adapters nor the BEGIN that it sends by itself are in the way. A claim and a close are prepared and
pipelined where psycopg itself may prepare; anything else, and all of it behind a pooler
(`prepare_threshold=None`), is one simple query. psycopg reads the transaction's state from libpq,
hence keeps knowing it.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus

from semel.core.call import Call, nothing
from semel.db.ledger import prepared
from semel.db.ledger.driver import REACH_SECONDS_MAX, Driver, RolledBack, State, Word
from semel.db.ledger.literal import bound
from semel.db.ledger.parameter import Unsendable, parameters
from semel.db.ledger.trip import piped, simple
from semel.db.transact import answered
from semel.errors import TransactionUnfit

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGresult

    from semel.db.ledger.trip import Step

_STATES: dict[int, State] = {
    TransactionStatus.IDLE: "idle",
    TransactionStatus.ACTIVE: "closed",  # somebody is in the middle of a statement
    TransactionStatus.INTRANS: "open",
    TransactionStatus.INERROR: "aborted",
    TransactionStatus.UNKNOWN: "closed",
}
_GOOD = frozenset((ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY))


@dataclass(slots=True)
class Known:
    """What is remembered of a connection, for as long as it is there."""

    reconnect: Callable[[], Any]  # asked once, since a closed one no longer says
    prepares: bool = True  # until the server lacks what psycopg's book says it has


_KNOWN: weakref.WeakKeyDictionary[Any, Known] = weakref.WeakKeyDictionary()


class Psycopg(Driver):
    """A psycopg Connection or AsyncConnection."""

    def __init__(self, conn: Any, *, join: bool) -> None:
        super().__init__(join=join)
        self._conn = conn
        self.asynchronous = isinstance(conn, psycopg.AsyncConnection)
        self._depth = 0
        self._known: Known

    async def ready(self) -> None:
        """Note how to open another one."""
        if not self._conn.closed:
            self._known = _known(self._conn, asynchronous=self.asynchronous)
            self.reconnect = self._known.reconnect

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
        calls = [part for part in parts if isinstance(part, Call)]
        results = await self._prepared(parts) if calls else None
        if results is None:
            said = (
                ";".join(self._said(part)) if isinstance(part, Word) else bound(part)
                for part in parts
            )
            results = await self._exchange(simple(self._conn.pgconn, ";".join(said).encode()))
        if results[-1].status not in _GOOD:  # what follows a failure has failed as well
            failures = (each for each in results if each.status == ExecStatus.FATAL_ERROR)
            failed = next(failures, results[-1])
            encoding = self._conn.info.encoding if not self._conn.closed else "utf-8"
            raise psycopg.errors.error_from_result(failed, encoding=encoding)
        if Word.COMMIT in parts:
            # ROLLBACK TO SAVEPOINT is answered by the same word.
            undone = [result.command_status for result in results].count(b"ROLLBACK")
            if undone > parts.count(Word.BACK):
                raise RolledBack
        answers = [result for result in results if result.status == ExecStatus.TUPLES_OK]
        return [
            call.read(() if call.read is nothing else self._rows(result))
            for call, result in zip(calls, answers, strict=True)
        ]

    async def close(self) -> None:
        """Close it; its pool replaces it."""
        await answered(self._conn.close())

    async def _prepared(self, parts: tuple[Word | Call[Any], ...]) -> list[PGresult] | None:
        """*parts* with statements that are prepared; None where they are to go as one query."""
        noted = prepared.names(self._conn) if self._known.prepares else None
        if noted is None:
            return None
        try:
            used, steps = self._steps(parts)
        except Unsendable:
            return None
        fresh: list[prepared.Statement] = []
        if prepared.CLAIM in used and not self.join:
            used += [prepared.CLOSE, *map(prepared.statement, self._said(Word.COMMIT))]
            fresh = [each for each in used if each.key not in noted]
        elif not all(each.key in noted for each in used):
            return None
        pgconn = self._conn.pgconn
        results = await self._exchange(
            piped(pgconn, [(each.name, each.text) for each in fresh], steps)
        )
        if not prepared.note(noted, used, fresh, results):
            self._known.prepares = False
            if parts[0] is Word.BEGIN:
                if pgconn.transaction_status == TransactionStatus.INERROR:
                    await self._exchange(simple(pgconn, b"rollback"))
                return None
        return results

    def _steps(
        self, parts: tuple[Word | Call[Any], ...]
    ) -> tuple[list[prepared.Statement], list[Step]]:
        used: list[prepared.Statement] = []
        steps: list[Step] = []
        for part in parts:
            if isinstance(part, Word):
                said = [prepared.statement(words) for words in self._said(part)]
                used += said
                steps += [(each.name, [], []) for each in said]
            else:
                used.append(prepared.statement(part.sql))
                steps.append((used[-1].name, *parameters(part)))
        return used, steps

    def _said(self, word: Word) -> list[str]:
        if word is Word.BEGIN:
            return [self._begin()]
        if self._depth and word in (Word.COMMIT, Word.ROLLBACK):
            # The block around us goes on, in a transaction that it will end; where a statement
            # was before it, it has a savepoint, by this name, that it will release.
            chained = f"{word.value} and chain"
            return [chained] if self._conn.autocommit else [chained, "savepoint _pg3_1"]
        return [word.value]

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

    async def _exchange(self, trip: PQGen[list[PGresult]]) -> list[PGresult]:
        conn = self._conn
        results: list[PGresult]
        if self.asynchronous:
            async with conn.lock:
                results = await conn.wait(trip)
        else:
            with conn.lock:
                results = conn.wait(trip)
        return results

    def _rows(self, result: PGresult) -> list[Any]:
        reader = Transformer(self._conn)
        reader.set_pgresult(result)
        return reader.load_rows(0, result.ntuples, tuple)


def _known(conn: Any, *, asynchronous: bool) -> Known:
    known = _KNOWN.get(conn)
    if known is None:
        told = {"connect_timeout": REACH_SECONDS_MAX, **conn.info.get_parameters()}
        if conn.info.password:
            told["password"] = conn.info.password
        kind: Any = psycopg.AsyncConnection if asynchronous else psycopg.Connection
        known = Known(partial(kind.connect, autocommit=True, prepare_threshold=None, **told))
        _KNOWN[conn] = known
    return known
