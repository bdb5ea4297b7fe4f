"""
Aftermath: what became of an attempt whose COMMIT was not answered, or that could not say its end.

Asked on another connection, where the server answers for the transaction's id; nothing is guessed.
Where nobody can be asked, the outcome stays unknown, which is never told as a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from semel.core import operations
from semel.core.call import Call
from semel.db.ledger.drive import pause
from semel.edges import told

if TYPE_CHECKING:
    from semel.core.operations import Identity, Recovered
    from semel.db.ledger.driver import Driver
    from semel.edges.told import Told

T = TypeVar("T")

#: Before each time that another connection is asked.
PAUSES_SECONDS = (0.0, 0.2, 1.0, 3.0)


class Aftermath:
    """
    One attempt, looked at from another connection.

    Args:
        attempt: Which execution it was.
        xid: Of its transaction.
    """

    def __init__(self, driver: Driver, identity: Identity, attempt: int, xid: str) -> None:
        self._driver = driver
        self._identity = identity
        self._attempt = attempt
        self._xid = xid

    async def learn(self, failure: Told) -> Recovered:
        """
        What became of it; FAILED with *failure* where it came to nothing.

        Raises:
            Exception: nobody can be asked.
        """
        return await self._insist(
            operations.operation_recover(
                self._identity,
                self._attempt,
                self._xid,
                code=failure.code,
                error=failure.message,
            )
        )

    async def record(self, failure: Told) -> Recovered | None:
        """As `learn`; None where nobody can be asked, for who has an error to raise already."""
        try:
            return await self.learn(failure)
        except Exception:  # noqa: BLE001 - his error says more
            return None

    async def committed(self) -> bool:
        """Whether this very transaction was committed; raises as `learn`."""
        return await self._insist(
            Call(
                "select pg_catalog.pg_xact_status(%s::text::xid8)",
                (self._xid,),
                lambda rows: bool(rows[0][0] == "committed"),
            )
        )

    async def _insist(self, call: Call[T]) -> T:
        for seconds in PAUSES_SECONDS:
            try:
                await pause(seconds, asynchronous=self._driver.asynchronous)
                return await self._driver.elsewhere(call)
            except Exception as error:
                if not told.is_lost(error):
                    raise
                lost = error
        raise lost
