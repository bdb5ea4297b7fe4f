"""
Attempt: one execution of an operation, from its claim to its durable end.

    begin ──claimed──> the caller's work ──end──> SUCCEEDED, COMMIT
       │                                     ├──> back to the savepoint, FAILED, COMMIT
       │                                     ├──> a lost race, a lost connection: nothing is kept
       │                                     └──> COMMIT not answered: ask what became of it
       └──replay, or refused: nothing was written

The SQL decides what a request meets, the driver how it is sent. Here it is decided what an error
means: whether the work failed, the transaction is lost, or its end is not known. Nothing is
answered as success that is not committed, and no failure recorded of what may have been.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from semel.core import journals, operations, seals
from semel.core.operations import Reply
from semel.db.execute import translated
from semel.db.ledger.driver import RolledBack
from semel.db.ledger.permits import permit
from semel.db.stops import stop_here
from semel.edges import told
from semel.edges.aftermath import Aftermath
from semel.edges.refused import refused
from semel.edges.tally import MET, TALLY
from semel.edges.waking import wakes
from semel.errors import (
    DatabaseUnreachable,
    ErrorSwallowed,
    KeyConflict,
    LostRace,
    ResultNotKept,
    TransactionEnded,
    UnknownOutcome,
)

if TYPE_CHECKING:
    from datetime import timedelta

    from semel.core.call import Call
    from semel.core.operations import Begun
    from semel.core.seals import Seal, Store
    from semel.db.ledger.driver import Driver
    from semel.edges.identity import Asked
    from semel.edges.operation import Operation
    from semel.edges.tally import Outcome


class Attempt:
    """
    One execution.

    Args:
        asked: None without a key: a plain transaction, of which the ledger knows nothing.
        wait: For another request's claim of the same key.
        result_max: Bytes of a reply that are kept; of a longer one a tombstone is.
    """

    def __init__(
        self,
        driver: Driver,
        op: Operation,
        asked: Asked | None,
        *,
        wait: timedelta | None,
        result_max: int,
        store: Store = "plain",
        seal: Seal | None = None,
    ) -> None:
        self._driver = driver
        self._op = op
        self._asked = asked
        self._wait = wait
        self._result_max = result_max
        self._store = store
        self._seal = seal
        self._xid = ""
        self._over = False
        self._began = time.perf_counter()

    # -- the beginning ----------------------------------------------------------------------

    async def begin(self) -> None:
        """
        Claim the operation, or have what it replied.

        Raises:
            SemelError: it can be neither executed nor replayed; nothing was written.
        """
        stop_here("ledger.begin.before")
        await self._driver.ready()
        if self._asked is None:
            await self._driver.plain()
            return
        begun = await self._claim(self._asked)
        if begun.outcome == "claimed":
            await self._driver.guard()
            self._op.attempts, self._xid = begun.attempts, begun.xid or ""
            stop_here("ledger.begin.after")
            return
        self._over = True
        TALLY.count(MET[begun.outcome])
        await self._driver.leave()
        if begun.outcome != "replay" or begun.reply is None:
            raise refused(begun)
        self._op.attempts = begun.attempts
        self._op.replay = self._opened(begun.reply)

    async def _claim(self, asked: Asked) -> Begun:
        join, driver = self._driver.join, self._driver
        begun = await driver.claim(
            operations.operation_begin(asked.identity, wait=None, join=join)
        )
        begun = await self._under(asked, begun, join=join)
        if begun.outcome != "in_flight" or not self._wait:
            return begun
        with permit(driver.pool) as granted:
            if not granted:
                return begun
            # join: the first call saw that nothing was written, and its try has left an id.
            call = operations.operation_begin(self._identity, wait=self._wait, join=True)
            begun = await driver.again(call)
        return await self._under(asked, begun, join=True)

    async def _under(self, asked: Asked, begun: Begun, *, join: bool) -> Begun:
        """*begun*, asked once more with the digest that the row has."""
        more = asked.under(begun.payload) if begun.outcome == "version" else None
        if more is None:
            return begun
        self._asked = more
        call = operations.operation_begin(more.identity, wait=None, join=join)
        return await self._driver.again(call)

    # -- the end ----------------------------------------------------------------------------

    async def end(self, error: BaseException | None) -> None:
        """
        The block has ended, with *error* or well.

        Raises:
            Exception: it did not succeed though it ended well, or *error* means something else.
        """
        if self._over:
            return
        self._over = True
        met: Outcome = "failed"
        try:
            await self._end(error)
            if error is None and self._op.failure is None:
                met = "executed"
            elif error is not None and not isinstance(error, Exception):
                met = "raced"
        except (LostRace, DatabaseUnreachable):
            met = "raced"
            raise
        except UnknownOutcome:
            met = "unknown"
            raise
        finally:
            if self._asked is not None:
                TALLY.ended(met, self._began)

    async def _end(self, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, Exception):
            await self._interrupted(error)
        elif error is not None:
            await self._raised(error)
        elif (refused := self._op.refused) is not None:
            await self._raised(refused)
            raise refused
        elif self._op.failure is not None:
            await self._fail(self._op.failure, None)
            self._op.end()
        else:
            await self._succeed()
            self._op.end()

    async def abort(self) -> None:
        """Nothing is to remain of it."""
        self._over = True
        await self._driver.abort()

    async def _interrupted(self, error: BaseException) -> None:
        """Cancelled, or the process ends: nothing of it is kept, and the key is free again."""
        if self._driver.join and self._asked is not None:
            # Whoever owns the transaction may commit it yet: not as PROCESSING.
            with suppress(Exception):
                await self._driver.fail(self._failed(told.of(error)))
        await self._driver.abort()

    async def _raised(self, error: Exception) -> None:
        """The work raised *error*, which is raised again by whoever calls us."""
        if self._asked is None:
            await self._driver.abort()
            return
        if told.is_race(error) and not self._joins():
            await self._driver.abort()
            raise LostRace(told.of(error).message) from error
        if self._driver.state() == "closed" and told.is_lost(error):
            await self._driver.abort()
            raise DatabaseUnreachable("the connection was lost; nothing was kept") from error
        await self._fail(told.of(error), error)

    def _joins(self) -> bool:
        """Whether the caller's transaction can still say that it failed."""
        return self._driver.join and self._driver.state() == "open"

    async def _succeed(self) -> None:
        state = self._driver.state()
        if state == "aborted":
            await self._swallowed()
        if state in ("idle", "ended", "closed") and not (
            self._asked is None and state == "idle"
        ):
            await self._ended(None)
        try:
            calls = await self._last()
            stop_here("ledger.commit.before")
            await self._driver.seal(*calls, wakes=wakes(self._op))
            stop_here("ledger.commit.after")
        except Exception as error:  # noqa: BLE001 - judged there
            await self._unsealed(error)

    async def _last(self) -> list[Call[Any]]:
        """What is sent with COMMIT; runs are started before, since they may conflict."""
        op, asked = self._op, self._asked
        if op.starts:
            for started in await self._driver.send(*op.starts):
                if started.outcome == "conflict":
                    raise KeyConflict(
                        "a run of this operation was started with another agent or input"
                    )
        if asked is None:
            return [journals.journal_append(op.project, op.notes)] if op.notes else []
        reply, gone = self._kept()
        attempt = op.attempts or 0
        who = (op.project, asked.identity.request_id, attempt, self._xid, reply)
        if self._driver.join:
            return [operations.operation_finish(*who, gone=gone, journal=op.entries)]
        return [operations.operation_close(*who, gone=gone, journal=op.entries)]

    def _kept(self) -> tuple[Reply, bool]:
        """What the ledger keeps of the reply, and whether that is a tombstone."""
        reply, gone = self._op.kept
        if gone or len(reply.body) > self._result_max:
            return reply, True
        if self._store == "plain" and self._seal is None:
            return reply, False
        kept = seals.kept(reply.headers, reply.body, store=self._store, seal=self._seal)
        return Reply(status=reply.status, headers=kept.headers, body=kept.body), kept.gone

    def _opened(self, reply: Reply) -> Reply:
        try:
            headers, body = seals.opened(reply.headers, reply.body, seal=self._seal)
        except seals.Unopened as error:
            raise ResultNotKept(f"the operation was executed; {error}") from error
        return Reply(status=reply.status, headers=headers, body=body)

    async def _unsealed(self, error: Exception) -> None:
        """
        It did not commit, or nobody said so.

        Raises:
            Exception: *error*, or what it means; returns where the commit turned out well.
        """
        if told.is_race(error) and not self._joins():
            await self._driver.abort()
            raise LostRace(told.of(error).message) from error
        ours = translated(told.cause(error))
        if isinstance(ours, TransactionEnded):
            await self._ended(error)
        state = self._driver.state()
        if isinstance(error, RolledBack) or told.is_aborted(error):
            await self._swallowed(error)
        if self._asked is None:
            await self._driver.abort()
            if state == "closed":
                raise UnknownOutcome("the connection was lost at COMMIT") from error
            raise error
        if state in ("open", "aborted") or self._driver.join:
            await self._fail(told.of(error), error)
            raise error
        await self._look_up(error, refused=state != "closed")

    async def _swallowed(self, error: Exception | None = None) -> None:
        raised = ErrorSwallowed(
            "the transaction is aborted, and the work ended as if it were not"
        )
        if self._asked is None:
            await self._driver.abort()
        else:
            await self._fail(told.of(raised), error)
        raise raised from error

    async def _ended(self, error: Exception | None) -> None:
        """The work committed, rolled back or closed what was not its own."""
        raised = TransactionEnded(
            "the work ended the transaction or closed the connection that it was given"
        )
        await self._driver.abort()
        if self._asked is not None:
            await self._aftermath.record(told.of(raised))
        raise raised from error

    async def _fail(self, failure: told.Told, error: Exception | None) -> None:
        """
        FAILED, durably where it can be.

        Raises:
            TransactionEnded: the work has committed what cannot be undone any more.
            LostRace: the database preferred another transaction.
        """
        if self._asked is None:
            await self._driver.abort()
            return
        if self._driver.state() in ("open", "aborted"):
            try:
                if await self._driver.fail(self._failed(failure)) == "won":
                    return
            except Exception as second:  # noqa: BLE001 - the connection cannot say it; see below
                if told.is_race(second):
                    await self._driver.abort()
                    raise LostRace(told.of(second).message) from error or second
        await self._driver.abort()
        if self._driver.join:
            return
        found = await self._aftermath.record(failure)
        if found is not None and found.outcome == "other":
            raise TransactionEnded(
                "the work ended the transaction that it was given, and then failed"
            ) from error

    async def _look_up(self, error: Exception, *, refused: bool) -> None:
        """
        COMMIT was sent: have the reply if it came through.

        Raises:
            Exception: *error* where the server *refused*; what it means otherwise.
        """
        await self._driver.abort()
        aftermath = self._aftermath
        try:
            found = await aftermath.learn(told.of(error))
            if found.outcome == "succeeded" and found.reply is None:
                ours = await aftermath.committed()
        except Exception:  # noqa: BLE001 - whatever it is, the outcome stays unknown
            raise UnknownOutcome("the connection was lost at COMMIT") from error
        if found.outcome == "recorded":
            if refused:
                raise error
            raise DatabaseUnreachable(
                "the connection was lost at COMMIT, and nothing was committed"
            ) from error
        if found.outcome != "succeeded":
            raise UnknownOutcome("the connection was lost at COMMIT") from error
        if found.reply is not None:
            reply = self._opened(found.reply)
            if reply != self._op.kept[0]:  # ours came to nothing, and another one executed it
                self._op.attempts, self._op.replay = found.attempts, reply
        elif not ours:
            raise ResultNotKept("the operation was executed, its result is not kept") from error

    @property
    def _aftermath(self) -> Aftermath:
        return Aftermath(self._driver, self._identity, self._op.attempts or 0, self._xid)

    @property
    def _identity(self) -> operations.Identity:
        assert self._asked is not None  # noqa: S101 - asked only where there is a key
        return self._asked.identity

    def _failed(self, failure: told.Told) -> Call[Any]:
        return operations.operation_fail(
            self._op.project,
            self._identity.request_id,
            self._op.attempts or 0,
            self._xid,
            code=failure.code,
            error=failure.message,
        )
