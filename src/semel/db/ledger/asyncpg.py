"""
asyncpg: what answers rows is a round trip of its own, whatever else goes together.

asyncpg reads no rows from several statements at once. BEGIN is its own transaction object's, since
nested `conn.transaction()` blocks refuse a transaction that they do not know.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from semel.db.execute import on
from semel.db.ledger.driver import REACH_SECONDS_MAX, Driver, RolledBack, State, Word
from semel.db.ledger.literal import bound
from semel.db.transact import answered

if TYPE_CHECKING:
    from collections.abc import Callable

    from semel.core.call import Call


class Asyncpg(Driver):
    """An asyncpg Connection, or a pool's proxy of one."""

    asynchronous = True

    def __init__(self, conn: Any, *, join: bool) -> None:
        super().__init__(join=join)
        self._conn = conn
        self._bare = getattr(conn, "_con", conn)  # behind the proxy
        self._in_block = False

    async def ready(self) -> None:
        """Note how to open another one."""
        self.reconnect = _way(self._bare)

    def state(self) -> State:
        """As asyncpg knows it; that a transaction is aborted, only the server tells."""
        if self._conn.is_closed():
            return "closed"
        return "open" if self._conn.is_in_transaction() else "idle"

    def check_owner(self) -> None:
        """A block around us is taken for the outermost; a nested one leaves no trace."""
        self._in_block = getattr(self._bare, "_top_xact", None) is not None

    def is_in_block(self) -> bool:
        """In a `conn.transaction()`."""
        return self._in_block

    @property
    def pool(self) -> Any:
        """The asyncpg pool that it belongs to."""
        return getattr(getattr(self._conn, "_holder", None), "_pool", None)

    async def send(self, *parts: Word | Call[Any]) -> list[Any]:
        """One round trip for each call, and one for the words between them."""
        answers: list[Any] = []
        words: list[Word] = []
        for part in parts:
            if part is Word.BEGIN:
                await self._begin()
            elif isinstance(part, Word):
                words.append(part)
            else:
                if words:
                    await self.say(*words)
                    words = []
                answers.append(await answered(on(self._conn, part)))
        if words:
            await self.say(*words)
        return answers

    async def say(self, *parts: Word | Call[Any]) -> None:
        """In one round trip: a call raises, or has nothing to say."""
        said = [self._said(part) if isinstance(part, Word) else bound(part) for part in parts]
        tag = await self._conn.execute(";".join(said))
        if not self._in_block and (Word.COMMIT in parts or Word.ROLLBACK in parts):
            self._forget()
        if Word.COMMIT in parts and tag == "ROLLBACK":
            raise RolledBack

    async def abort(self) -> None:
        """Also where the work has ended what asyncpg takes for open."""
        await super().abort()
        if self.state() == "idle" and not self.join:
            self._forget()

    async def close(self) -> None:
        """At once: what is still under way is not waited for."""
        self._bare.terminate()

    async def _begin(self) -> None:
        await self._conn.transaction().start()

    def _said(self, word: Word) -> str:
        if self._in_block and word in (Word.COMMIT, Word.ROLLBACK):
            return f"{word.value} and chain"  # for the block around us to end
        return str(word.value)

    def _forget(self) -> None:
        """The transaction was ended in the same round trip as its last statement."""
        if hasattr(self._bare, "_top_xact"):
            self._bare._top_xact = None  # noqa: SLF001 - it has no other way to be told


def _way(conn: Any) -> Callable[[], Any] | None:
    """As it was opened itself, for which there is no public word."""
    import asyncpg  # noqa: PLC0415 - the caller has it, we may not

    address, told = getattr(conn, "_addr", None), getattr(conn, "_params", None)
    if address is None or told is None:
        return None
    # A Unix socket's address is its path; connect takes the folder and the port in its name.
    host, port = (
        (address.rpartition("/")[0], int(address.rpartition(".")[2]))
        if isinstance(address, str)
        else address
    )
    return partial(
        asyncpg.connect,
        host=host,
        port=port,
        user=told.user,
        password=told.password,
        database=told.database,
        ssl=told.ssl,
        statement_cache_size=0,
        timeout=REACH_SECONDS_MAX,
    )
