"""
Driver: what every connection can do for the ledger.

    claim   BEGIN where the connection is idle, one call, SAVEPOINT
    seal    the last calls, COMMIT                     join: RELEASE
    fail    ROLLBACK TO SAVEPOINT, one call, COMMIT    join: RELEASE
    leave   nothing was claimed: back to how it was found
    abort   ROLLBACK, whatever happened; a connection that cannot is closed

The verbs are coroutines. On a sync connection none of them ever waits, and `hand.drive` steps
through them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from semel.core.call import Call
from semel.db.execute import on
from semel.db.transact import answered, atransact, is_async, transact
from semel.errors import DatabaseUnreachable, TransactionUnfit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

#: idle: in no transaction. aborted: it refuses whatever is sent. ended: another transaction than
#: the one that claimed. closed: nothing can be sent.
State = Literal["idle", "open", "aborted", "ended", "closed"]


#: Until another connection is there, unless the program's own say otherwise.
REACH_SECONDS_MAX = 5

_UNWRITTEN = Call(
    "select pg_catalog.pg_current_xact_id_if_assigned() is null",
    (),
    lambda rows: bool(rows[0][0]),
)


class Word(Enum):
    """What is said to a transaction."""

    BEGIN = "begin"
    SAVEPOINT = "savepoint semel_once"
    BACK = "rollback to savepoint semel_once"
    RELEASE = "release savepoint semel_once"
    COMMIT = "commit"
    ROLLBACK = "rollback"


class RolledBack(Exception):
    """COMMIT was answered with ROLLBACK: the transaction was aborted, and nobody had said so."""


class Driver(ABC):
    """
    One connection, for one operation.

    Args:
        join: The transaction is the caller's: it is neither begun nor ended here.
    """

    #: Whether the connection is awaited.
    asynchronous = False

    def __init__(self, *, join: bool) -> None:
        self.join = join
        self._began = False
        self._entered = False  # something was sent that is not undone by itself
        #: Opens another connection to the same database; None where nobody knows how.
        self.reconnect: Callable[[], Any] | None = None

    # -- what each driver says for itself ---------------------------------------------------

    async def ready(self) -> None:  # noqa: B027 - most have
        """Have a connection that can be asked for its state."""

    @abstractmethod
    def state(self) -> State:
        """How the connection is, as far as its driver knows; nothing is sent."""

    @abstractmethod
    async def send(self, *parts: Word | Call[Any]) -> list[Any]:
        """
        Say *parts* in order, in as few round trips as the driver permits.

        Returns:
            What the calls answered.

        Raises:
            Exception: the driver's own error, of the first part that failed; the rest is not done.
        """

    async def say(self, *parts: Word | Call[Any]) -> None:
        """
        As `send`, where no answer matters: in one round trip.

        Raises:
            RolledBack: COMMIT did not commit.
        """
        await self.send(*parts)

    async def guard(self) -> None:  # noqa: B027 - most need nothing
        """It was claimed: have whatever a framework needs for `fail` besides the savepoint."""

    def check_owner(self) -> None:  # noqa: B027 - most can
        """
        Whether the transaction can be ended here.

        Raises:
            TransactionUnfit: somebody's savepoint is around us.
        """

    def begins_itself(self) -> bool:
        """Whether the first statement on an idle connection begins a transaction that stays."""
        return False

    def is_in_block(self) -> bool:
        """Whether a block around us is given another transaction when ours is ended."""
        return False

    @property
    def pool(self) -> Any:
        """The pool that lent the connection; None where there is none, or it cannot be known."""
        return None

    @abstractmethod
    async def close(self) -> None:
        """Close it for good; may raise."""

    # -- the verbs --------------------------------------------------------------------------

    async def claim(self, call: Call[T]) -> T:
        """
        Begin, and send *call* with a savepoint behind it.

        Raises:
            TransactionUnfit: the transaction is aborted, not ours to end, or there is none to join.
            DatabaseUnreachable: the connection is closed.
        """
        [answer] = await self.send(*self._begin_words(), call, Word.SAVEPOINT)
        return answer  # type: ignore[no-any-return]

    async def plain(self) -> None:
        """
        Begin without a claim; raises as `claim`.

        Raises:
            TransactionUnfit: also where the transaction has written already.
        """
        if words := self._begin_words():
            await self.send(*words)
        elif not self.join:
            [unwritten] = await self.send(_UNWRITTEN)
            if not unwritten:
                self._entered = False
                raise TransactionUnfit("the transaction has written already")

    def _begin_words(self) -> list[Word]:
        state = self.state()
        if state == "closed":
            raise DatabaseUnreachable("the connection is closed")
        if state == "aborted":
            raise TransactionUnfit("the transaction is aborted; roll it back first")
        if not self.join:
            self.check_owner()
        elif state == "idle" and not self.begins_itself():
            raise TransactionUnfit("join=True and there is no transaction: begin one first")
        self._began, self._entered = state == "idle", True
        return [Word.BEGIN] if self._began else []

    async def again(self, call: Call[T]) -> T:
        """Send *call* once more, where `claim` claimed nothing."""
        [answer] = await self.send(call, Word.SAVEPOINT)
        return answer  # type: ignore[no-any-return]

    async def seal(self, *calls: Call[Any], wakes: Sequence[Call[Any]] = ()) -> None:
        """Send the last *calls* and commit; then *wakes*, where no transaction goes on."""
        if self.join:
            await self.say(*calls, Word.RELEASE)
        else:
            await self.say(*calls, Word.COMMIT, *(() if self.is_in_block() else wakes))

    async def fail(self, call: Call[T]) -> T:
        """Undo what was written since the claim, send *call* and commit."""
        [answer] = await self.send(Word.BACK, call, Word.RELEASE if self.join else Word.COMMIT)
        return answer  # type: ignore[no-any-return]

    async def leave(self) -> None:
        """Nothing was claimed: end what was begun here, leave alone what was there before."""
        await self.say(Word.ROLLBACK if self._began and not self.join else Word.RELEASE)
        self._entered = False

    async def abort(self) -> None:
        """
        Roll back, or close what cannot be rolled back; never raises.

        A joined transaction is its owner's to roll back, and so is one that was refused.
        """
        entered, self._entered = self._entered, False
        if self.join or not entered or self.state() in ("idle", "ended", "closed"):
            return
        try:
            await self.say(Word.ROLLBACK)
        except Exception:  # noqa: BLE001 - it is lost then: closed, the server rolls back
            with suppress(Exception):
                await self.close()

    async def elsewhere(self, call: Call[T]) -> T:
        """
        Execute *call* in a transaction of its own on another connection, opened for it.

        Raises:
            DatabaseUnreachable: there is no way to another connection.
        """
        if self.reconnect is None:
            raise DatabaseUnreachable(
                "this connection does not say how to open another one; pass reconnect="
            )
        conn = await answered(self.reconnect())
        try:
            if is_async(conn):
                return await atransact(conn, lambda: answered(on(conn, call)))
            return transact(conn, lambda: cast("T", on(conn, call)))
        finally:
            with suppress(Exception):
                await answered(conn.close())
