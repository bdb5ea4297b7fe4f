"""
Django: its connection on psycopg 3, in autocommit or inside ATOMIC_REQUESTS.

Statements go to psycopg's connection, and Django is told by an `atomic()` of its own, which sends
nothing there. What `on_commit` was given runs after the commit, and not after a failure. From
async code everything happens in the thread that Django keeps its connections in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from semel.db.ledger.driver import Driver, State, Word
from semel.db.ledger.psycopg import Psycopg
from semel.errors import TransactionUnfit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.core.call import Call

T = TypeVar("T")


class _Undone(Exception):
    """Tells atomic() that nothing of it remains."""


class Django(Driver):
    """A Django connection of this thread: `django.db.connection`, or one of `connections`."""

    def __init__(self, conn: Any, *, join: bool) -> None:
        super().__init__(join=join)
        self._conn = conn
        self._line: Psycopg
        self._atomic: Any = None
        self._hooks = 0  # of on_commit, from before

    async def ready(self) -> None:
        """
        Connect, and have Django know that a transaction begins; nothing is sent.

        Raises:
            TransactionUnfit: it is in an atomic block that is a savepoint.
            TypeError: it is no psycopg 3.
        """
        from django.db import connections, transaction  # noqa: PLC0415 - the caller has it

        conn = self._conn
        conn.ensure_connection()
        if not hasattr(conn.connection, "pgconn"):
            raise TypeError("the operation needs Django on psycopg 3")
        if not self.join and any(conn.savepoint_ids):
            raise TransactionUnfit(
                "the operation is in a nested atomic(), which is a savepoint; move it out, or"
                " join=True"
            )
        if not self.join and not conn.in_atomic_block and conn.get_autocommit():
            if conn != connections[conn.alias]:  # whose transaction atomic() begins
                raise TransactionUnfit(
                    "the connection is not this thread's; use django.db.connection"
                )
            self._atomic = transaction.atomic(using=conn.alias)
            self._atomic.__enter__()
        self._hooks = len(conn.run_on_commit)
        self._line = Psycopg(conn.connection, join=self.join)
        await self._line.ready()
        self.reconnect = self._line.reconnect

    def state(self) -> State:
        """psycopg's; ended where Django has another connection by now."""
        return self._line.state()

    def begins_itself(self) -> bool:
        """Inside atomic(), which begins with the first statement."""
        return self._line.begins_itself()

    @property
    def pool(self) -> Any:
        """psycopg_pool's, where Django uses one."""
        return self._line.pool

    async def send(self, *parts: Word | Call[Any]) -> list[Any]:
        """On psycopg's connection."""
        return await self._line.send(*parts)

    async def seal(self, *calls: Call[Any], wakes: Sequence[Call[Any]] = ()) -> None:
        """Commit; then what waited for it runs."""
        await super().seal(*calls, wakes=wakes)
        self._exit(None)

    async def fail(self, call: Call[T]) -> T:
        """Nothing that waited for the commit runs."""
        answer = await super().fail(call)
        self._conn.needs_rollback = False
        del self._conn.run_on_commit[self._hooks :]
        self._exit(_Undone())
        return answer

    async def leave(self) -> None:
        """Nothing was begun."""
        await super().leave()
        self._exit(None)

    async def abort(self) -> None:
        """A connection that is lost is opened anew by Django."""
        entered = self._entered
        await super().abort()
        if entered and not self.join:
            del self._conn.run_on_commit[self._hooks :]
        self._exit(_Undone())
        if entered and self._line.state() == "closed":
            self._conn.close()

    async def close(self) -> None:
        """Close psycopg's connection."""
        await self._line.close()

    def _exit(self, error: Exception | None) -> None:
        atomic, self._atomic = self._atomic, None
        if atomic is not None:
            atomic.__exit__(type(error) if error else None, error, None)
