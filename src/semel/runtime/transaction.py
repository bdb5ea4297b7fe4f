"""
Transaction: a step whose writes are the user's own rows, committed with its entry in the journal.

    ask whether the run is ours (no lock) ──> the user's statements ──> the entry, under the fence
        ──> COMMIT: all of it, or with a lost lease nothing

Two forms. A function is executed at most once, on whatever connection it is given. A block,
`async with run.transaction(name) as tx`, cannot be passed over by Python: when it was committed
before, its statements are not sent again, and what they had read is read from the journal.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg.pq import TransactionStatus

from semel.core import steps
from semel.core.journals import journal_wake
from semel.core.text import dump, settled
from semel.db.execute import on
from semel.db.stops import stop_here
from semel.db.transact import answered, atransact, is_async, transact
from semel.errors import BadRequest
from semel.runtime.append import BELL
from semel.runtime.hands import drive
from semel.runtime.journal import told
from semel.runtime.progress import INSIDE, Left
from semel.runtime.tx import AsyncTx, SyncTx, Tx

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from semel.runtime.hands import Hands
    from semel.runtime.journal import Call
    from semel.runtime.progress import Progress

#: Who is cut off in the middle of a block does not keep his locks for ever.
BEGIN = "begin; set local idle_in_transaction_session_timeout = '5min'"

X = TypeVar("X", bound=Tx)
R = TypeVar("R")


class Transaction:
    """
    One step that commits with the user's rows; see the module.

    Args:
        home: The task or thread of the handler itself.
        using: The connection to write on; None lends one of ours.
    """

    def __init__(
        self, progress: Progress, hands: Hands, name: str, *, home: object, using: Any
    ) -> None:
        self._progress = progress
        self._hands = hands
        self._name = name
        self._home = home
        self._using = using
        self._sealed: Tx | None = None  # once its entry is sent: it may have been committed
        self._lent = ExitStack()
        self._alent = AsyncExitStack()

    # -- a function -------------------------------------------------------------------------

    def called(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of `fn(conn, *args)`, executed at most once; or an awaitable of it."""
        work = self._call_once(fn, args, kwargs)
        return drive(work) if self._hands.sync else work

    async def _call_once(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        call = await self._ask()
        try:
            if call.result is not None:
                await self._on_loop(self._progress.turn())
                return json.loads(call.result)
            await self._on_loop(self._progress.begin())
            inside = INSIDE.set(call.key)
            try:
                text = await self._guarded(call, lambda: self._once(call, fn, args, kwargs))
                return settled(json.loads(text))
            finally:
                INSIDE.reset(inside)
                await self._on_loop(self._end())
        finally:
            self._progress.journal.done(self._name)

    async def _once(
        self, call: Call, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str:
        text = ""

        async def work(conn: Any) -> None:
            nonlocal text
            await self._check(conn)
            tx = Tx(self._progress, call, conn)
            tx.result = await answered(fn(conn, *args, **kwargs))
            text = await self._seal(tx)

        conn = await self._borrow()
        try:
            if is_async(conn):
                await atransact(conn, lambda: work(conn))
            elif self._hands.sync:
                transact(conn, lambda: drive(work(conn)))
            else:
                await self._hands.execute(lambda: transact(conn, lambda: drive(work(conn))))
            stop_here("worker.transaction.after")
        finally:
            await self._give_back()
        return text

    # -- a block ----------------------------------------------------------------------------

    async def __aenter__(self) -> AsyncTx:
        return await self._enter(AsyncTx)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._exit(error)

    def __enter__(self) -> SyncTx:
        return drive(self._enter(SyncTx))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        drive(self._exit(error))

    async def _enter(self, kind: type[X]) -> X:
        if self._using is not None:
            raise BadRequest(
                "a block cannot be passed over on a connection of yours once it was committed;"
                " use run.transaction(name, function, using=connection)"
            )
        if self._hands.sync != (kind is SyncTx):
            word = "with" if self._hands.sync else "async with"
            raise BadRequest(f"in this handler it is `{word} run.transaction(...)`")
        self._call = await self._ask()
        try:
            if self._call.result is not None:
                await self._on_loop(self._progress.turn())
                self._tx: Tx = kind(self._progress, self._call, None)
                return self._tx
            await self._on_loop(self._progress.begin())
            try:
                conn = await self._borrow()
                await answered(conn.execute(BEGIN))
                await self._check(conn)
            except BaseException:
                await self._leave()
                raise
        except BaseException:
            self._progress.journal.done(self._name)
            raise
        self._tx = kind(self._progress, self._call, conn)
        self._inside = INSIDE.set(self._call.key)
        return self._tx

    async def _exit(self, error: BaseException | None) -> None:
        tx = self._tx
        if not tx.done:
            INSIDE.reset(self._inside)
        try:
            if tx.done:
                # Whatever the block says now.
                tx.result = json.loads(self._call.result or "null")
                return
            conn = tx.connection
            try:
                text = await self._guarded(self._call, lambda: self._commit(conn, tx, error))
                tx.result = settled(json.loads(text))  # as a later attempt reads it
            finally:
                await self._leave()
        finally:
            tx.close()
            self._progress.journal.done(self._name)

    async def _commit(self, conn: Any, tx: Tx, error: BaseException | None) -> str:
        try:
            if error is not None:
                raise error  # noqa: TRY301 - rolled back below, like any other
            if conn.info.transaction_status == TransactionStatus.IDLE:
                raise BadRequest(  # noqa: TRY301 - as above
                    f"the block of {self._name!r} ended its transaction itself: what it wrote is"
                    " not one with the step; leave COMMIT and ROLLBACK to run.transaction"
                )
            text = await self._seal(tx)
            await answered(conn.execute("commit"))
        except BaseException:
            with suppress(Exception):
                await answered(conn.execute("rollback"))
            raise
        stop_here("worker.transaction.after")
        return text

    # -- both -------------------------------------------------------------------------------

    async def _ask(self) -> Call:
        who = self._hands.who()
        call = self._progress.ask(self._name, "transaction", who=who, home=who == self._home)
        if call.error is not None:
            try:
                await self._on_loop(self._progress.again(call))
            finally:
                self._progress.journal.done(self._name)
        return call

    async def _check(self, conn: Any) -> None:
        """Whether the run is ours, before anything is written; locks nothing."""
        claim = self._progress.claim
        holds = steps.run_holds(claim.project, claim.worker, claim.run_id, claim.fence)
        if not await answered(on(conn, holds)):
            await self._on_loop(self._lose())
            raise Left

    async def _seal(self, tx: Tx) -> str:
        """Send the entry of the journal, the fence's judgement with it; answers the result."""
        last, text = tx.statements()
        for statement in last:
            answers = await answered(on(tx.connection, statement))
            if any(_lost(answer) for answer in answers):
                await self._on_loop(self._lose())
                raise Left
        self._sealed = tx
        stop_here("worker.transaction.before")
        return text

    async def _guarded(self, call: Call, work: Callable[[], Awaitable[str]]) -> str:
        """The text that *work* answers; a COMMIT that went wrong is looked up."""
        text: str | None
        who = self._hands.who()
        try:
            text = await work()
        except asyncio.CancelledError:
            self._progress.give_up(call, who)
            raise
        except Exception as error:
            content = dump(told(error, call.tries + 1))
            if self._sealed is None:
                await self._on_loop(self._progress.errored(call, content, who))
                raise
            text = await self._on_loop(self._looked_up(call, content))
            if text is None:
                self._progress.failed(call, content, who)
                raise
        if self._sealed is not None:
            self._progress.noted(self._sealed.notes)
            if self._sealed.said:
                await self._on_loop(self._ring())
        return text

    async def _looked_up(self, call: Call, content: str) -> str | None:
        """
        The result, if the transaction was committed and its answer lost.

        Its COMMIT may still be on its way: it has the run's lock, so what we write now comes
        behind it. On a connection of its own, since others need not wait as well.
        """
        claim, desk = self._progress.claim, self._progress.desk
        error = call.entry("error", content)
        link = desk.link.another()
        try:
            [(outcome, _)] = await link.insist(
                steps.step_record(
                    claim.project,
                    claim.worker,
                    [(claim.run_id, claim.fence, error)],
                    now=desk.clock(),
                )
            )
            if outcome == "lost":
                self._progress.lose()
                raise Left
            entries = await link.insist(steps.step_list(claim.project, claim.run_id))
        finally:
            await link.close()
        return next(
            (
                entry.content
                for entry, _ in entries
                if entry.key == call.key and entry.entry == "result"
            ),
            None,
        )

    async def _borrow(self) -> Any:
        if self._using is not None:
            return self._using
        desk = self._progress.desk
        if self._hands.sync:
            return self._lent.enter_context(desk.lend_sync())
        return await self._alent.enter_async_context(desk.lend())

    async def _give_back(self) -> None:
        self._lent.close()
        if not self._hands.sync:
            await self._alent.aclose()

    async def _leave(self) -> None:
        try:
            await self._give_back()
        finally:
            await self._on_loop(self._end())

    async def _on_loop(self, work: Coroutine[Any, Any, R]) -> R:
        return await answered(self._hands.on_loop(work))

    async def _ring(self) -> None:
        """Tell consumers of the journal; unheard, they look by themselves."""
        due = BELL.due([self._progress.claim.project])
        if due:
            with suppress(Exception):
                await self._progress.desk.link.run(journal_wake(due))

    async def _end(self) -> None:
        self._progress.end()

    async def _lose(self) -> None:
        self._progress.lose()


def _lost(answer: Any) -> bool:
    outcome = answer[0] if isinstance(answer, tuple) else answer.outcome
    return bool(outcome == "lost")
