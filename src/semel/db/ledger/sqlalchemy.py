"""
SQLAlchemy: Session, AsyncSession, Connection and AsyncConnection, on psycopg or asyncpg.

What is fused goes past SQLAlchemy to the driver's connection, and SQLAlchemy is then told to
commit or roll back what it takes for open, which sends nothing more. A session's savepoint is its
own `begin_nested`, since a flush that fails would otherwise roll back all of the transaction, the
claim with it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from semel.db.ledger.asyncpg import Asyncpg
from semel.db.ledger.driver import Driver, State, Word
from semel.db.transact import answered
from semel.errors import TransactionUnfit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.core.call import Call

T = TypeVar("T")

_SAVEPOINTS = {Word.SAVEPOINT, Word.BACK, Word.RELEASE}


class SQLAlchemy(Driver):
    """A session or connection of SQLAlchemy."""

    def __init__(self, conn: Any, *, join: bool) -> None:
        super().__init__(join=join)
        conn = conn() if hasattr(conn, "registry") else conn  # a scoped session's own
        self._conn = conn
        self._sync: Any = (
            getattr(conn, "sync_session", None)
            or getattr(conn, "sync_connection", None)
            or conn
        )
        self.asynchronous = self._sync is not conn
        self._orm = hasattr(conn, "begin_nested") and hasattr(conn, "flush")
        self._line: Driver  # the driver's own connection
        self._was_open = False
        self._root: Any = None  # SQLAlchemy's transaction
        self._nested: Any = None
        self._engine: Any = None

    async def ready(self) -> None:
        """
        Check a connection out, and begin what SQLAlchemy takes for a transaction; nothing is sent.

        Raises:
            TransactionUnfit: the session has changes that are not flushed.
        """
        self._was_open = self._conn.in_transaction()
        if self._orm and not self.join and _unflushed(self._sync):
            raise TransactionUnfit(
                "the session has changes that are not flushed; make them inside the operation,"
                " or join=True"
            )
        connection = await answered(self._conn.connection()) if self._orm else self._conn
        if not self._orm and not self._was_open:
            await answered(self._conn.begin())
        self._root = self._sync.get_transaction()
        self._engine = connection.engine
        fairy = (
            await connection.get_raw_connection()
            if self.asynchronous
            else connection.connection
        )
        self._line = _line(fairy, join=self.join)
        await self._line.ready()
        self.reconnect = self._line.reconnect

    def state(self) -> State:
        """The driver's, while SQLAlchemy's transaction is the same."""
        if self._sync.get_transaction() is not self._root:
            return "ended"
        return self._line.state()

    def begins_itself(self) -> bool:
        """Unless its isolation level is AUTOCOMMIT."""
        return self._line.begins_itself()

    def check_owner(self) -> None:
        """No savepoint of SQLAlchemy's may be around us."""
        if self._sync.in_nested_transaction():
            raise TransactionUnfit(
                "the operation is in begin_nested(), which is a savepoint; move it out, or"
                " join=True"
            )
        self._line.check_owner()

    @property
    def pool(self) -> Any:
        """The engine's."""
        return self._engine.pool

    async def send(self, *parts: Word | Call[Any]) -> list[Any]:
        """On the driver's connection."""
        return await self._line.send(*self._own(parts))

    async def say(self, *parts: Word | Call[Any]) -> None:
        """On the driver's connection."""
        if own := self._own(parts):
            await self._line.say(*own)

    async def guard(self) -> None:
        """A session's savepoint."""
        if self._orm:
            self._nested = await answered(self._conn.begin_nested())
            await answered(self._conn.connection())  # else it is sent with its first statement

    async def seal(self, *calls: Call[Any], wakes: Sequence[Call[Any]] = ()) -> None:
        """What the session has not flushed yet goes first."""
        if self._nested is not None:
            await answered(self._nested.commit())
        elif self._orm:
            await answered(self._conn.flush())
        await super().seal(*calls, wakes=wakes)
        if not self.join:
            await answered(self._conn.commit())

    async def fail(self, call: Call[T]) -> T:
        """The session forgets what it wrote."""
        if self._nested is not None:
            await answered(self._nested.rollback())
        answer = await super().fail(call)
        if not self.join:
            await answered(self._conn.rollback())
        return answer

    async def leave(self) -> None:
        """A session keeps its objects as its own commit would."""
        await super().leave()
        if not self._was_open:
            await answered(self._conn.commit())

    async def abort(self) -> None:
        """What SQLAlchemy cannot roll back, or has lost, is told to its pool."""
        if self.join or self._root is None or (self._was_open and not self._entered):
            return
        await super().abort()
        try:
            if self._line.state() == "closed":
                # First: rolled back it would be in the pool again, for the next one to find closed.
                await answered(self._conn.invalidate())
            await answered(self._conn.rollback())
            lost = self._line.state() == "closed"
        except Exception:  # noqa: BLE001 - the work ended what SQLAlchemy takes for open
            lost = True
        if lost:
            for forget in (self._conn.invalidate, self._conn.rollback):
                with suppress(Exception):
                    await answered(forget())

    async def close(self) -> None:
        """Close the driver's connection."""
        await self._line.close()

    def _own(self, parts: tuple[Word | Call[Any], ...]) -> list[Word | Call[Any]]:
        """*parts*, without savepoints that the session makes itself."""
        if not self._orm:
            return list(parts)
        return [part for part in parts if not (isinstance(part, Word) and part in _SAVEPOINTS)]


class Adapted(Asyncpg):
    """asyncpg below SQLAlchemy, whose adapter begins the transaction and learns of its end."""

    def __init__(self, adapter: Any, conn: Any, *, join: bool) -> None:
        super().__init__(conn, join=join)
        self._adapter = adapter

    def begins_itself(self) -> bool:
        """Unless its isolation level is AUTOCOMMIT."""
        return not self._adapter.autocommit

    def check_owner(self) -> None:
        """SQLAlchemy's transaction is no block of somebody's."""

    async def _begin(self) -> None:
        # Its first statement would begin; a statement is a round trip.
        await self._adapter._start_transaction()  # noqa: SLF001
        if self._adapter.autocommit:
            await super()._begin()

    def _forget(self) -> None:
        super()._forget()
        self._adapter._transaction = None  # noqa: SLF001 - else it sends another COMMIT
        if hasattr(self._adapter, "_started"):  # SQLAlchemy 2.0
            self._adapter._started = False  # noqa: SLF001


def _line(fairy: Any, *, join: bool) -> Driver:
    from semel.db.ledger.choose import driver_of  # noqa: PLC0415 - it chooses us as well

    conn = fairy.driver_connection
    if type(conn).__module__.startswith("asyncpg"):
        return Adapted(fairy.dbapi_connection, conn, join=join)
    return driver_of(conn, join=join)


def _unflushed(session: Any) -> bool:
    return bool(
        session.new
        or session.deleted
        or any(session.is_modified(changed) for changed in session.dirty)
    )
