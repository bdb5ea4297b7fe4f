"""
Progress: one attempt's way through its run.

    ask the journal ──it has the result──> answer it, execute nothing
          └──it has not──> promise the undo ──> execute ──> journal the result ──> answer it
                                     └──raised──> journal the error; again, later, or raise

Every write names (run, fence, worker); one that is refused stops the handler, since another
worker has the run. Nothing new begins while the heartbeat is paused.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from contextlib import suppress
from contextvars import ContextVar
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NoReturn

from semel.core import waits
from semel.core.text import dump, settled
from semel.core.waits import Wait
from semel.db.stops import stop_here
from semel.errors import (
    BadStepResult,
    JournalMismatch,
    NestedStep,
    SemelError,
    StepInParallel,
)
from semel.runtime.journal import Call, Journal, raised, told
from semel.runtime.parking import Parking
from semel.runtime.retry import Retry, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import timedelta

    from semel.core.steps import Entry
    from semel.model import Claim
    from semel.runtime.desk import Desk

RESULT_BYTES_MAX = 1024 * 1024
#: So many turns of the loop later than a result an error comes out of the journal.
FAILED_TURNS, GIVEN_UP_TURNS = 30, 100

#: The step or transaction that is at work here, if one is: nothing is asked for inside it.
INSIDE: ContextVar[str] = ContextVar("semel_inside", default="")
#: Of which attempt and step an error was raised here, or to who began this task.
TOLD: ContextVar[frozenset[tuple[object, str]]] = ContextVar("semel_told", default=frozenset())
#: The idempotency key of the step that is being executed; see `semel.idempotency_key`.
STEP_KEY: ContextVar[str] = ContextVar("semel_step_key")


class Left(BaseException):
    """The run is ours no longer, parked or lost: ends the handler past any `except Exception`."""


class Progress:
    """
    The steps and waits of one attempt.

    Args:
        stop: Called from the loop when the run was parked or lost: stop the handler.
    """

    def __init__(
        self,
        claim: Claim,
        desk: Desk,
        loop: asyncio.AbstractEventLoop,
        stop: Callable[[], None],
    ) -> None:
        self.claim = claim
        self.desk = desk
        self.journal = Journal(claim.journal, attempt=claim.attempt)
        self.parked = False
        self.left = False
        self.broken: SemelError | None = None  # a handler that catches this goes on in vain
        self._stop = stop
        self._loop = loop
        self._parking = Parking(self._park, self._leave)
        self._notes: list[Entry] = []  # to be journaled with the next entry
        self._failed: dict[str, tuple[object, Entry]] = {}  # by whom, what
        self._tasks: set[asyncio.Task[Any]] = set()  # the handler's, and those beside it

    # -- steps ------------------------------------------------------------------------------

    async def step(
        self,
        name: str,
        execute: Callable[[], Awaitable[Any]],
        *,
        who: object,
        home: bool,
        retry: Retry,
        intent: dict[str, Any] | None = None,
        kind: str = "step",
    ) -> Any:
        """Execute a step, unless the journal has its result; answers the result."""
        call = self.ask(name, kind, who=who, home=home)
        try:
            if call.error is not None:
                await self.again(call)  # though a result may have come too late
            if call.result is not None:
                await self.turn()
                return json.loads(call.result)
            return await self._execute(call, execute, retry, intent, who)
        except asyncio.CancelledError:
            self.give_up(call, who)
            raise
        finally:
            self.journal.done(name)

    async def _execute(
        self,
        call: Call,
        execute: Callable[[], Awaitable[Any]],
        retry: Retry,
        intent: dict[str, Any] | None,
        who: object,
    ) -> Any:
        while True:
            await self.begin()
            try:
                if intent is not None and not call.intended:
                    await self.record(call.entry("intent", dump(intent)))
                    call.intended = True
                told_key = STEP_KEY.set(self.key_of(call.key))
                inside = INSIDE.set(call.key)
                try:
                    result = await execute()
                except Exception as error:
                    call.tries += 1
                    delay = await self._errored(call, error, retry, who)
                    if delay is None:
                        raise
                else:
                    return await self._keep(call, result)
                finally:
                    INSIDE.reset(inside)
                    STEP_KEY.reset(told_key)
                if delay <= min(retry.park_after, self.desk.patience):
                    await asyncio.sleep(delay.total_seconds())
                    continue
            finally:
                self.end()
            await self.wait(Wait(key=call.key, place=call.place, kind="retry", due=delay))

    async def _keep(self, call: Call, result: Any) -> Any:
        try:
            # What an undo answers is nobody's to read: it is undone all the same.
            text = json_text(call.key, result) if call.kind != "undo" else _readable(result)
        except BadStepResult as bad:
            # Its effect stands: whatever the handler does, the run cannot go on.
            self.broken = bad
            raise
        [(outcome, stands)] = await self.record(call.entry("result", text))
        self.journal.keep(call, stands if outcome == "already" and stands else text)
        return settled(json.loads(call.result or text))

    async def _errored(
        self, call: Call, error: Exception, retry: Retry, who: object
    ) -> timedelta | None:
        """Journal that *error* was raised; how long to wait before the next try, None: no more."""
        again = call.tries < retry.attempts and not final(error)
        await self.errored(call, dump(told(error, call.tries)), None if again else who)
        return retry.delay(call.tries) if again else None

    async def errored(self, call: Call, content: str, who: object) -> None:
        """
        Journal an error.

        Args:
            who: Where it is raised; what they ask for next is in spite of it. None: tried again.
        """
        await self.record(call.entry("error", content))
        if who is not None:
            self.failed(call, content, who)

    def failed(self, call: Call, content: str, who: object) -> None:
        """An error, journaled already, is raised to *who*."""
        self._failed[call.key] = (who, call.entry("caught", content))
        TOLD.set(TOLD.get() | {(self, call.key)})

    def give_up(self, call: Call, who: object) -> None:
        """The handler cancelled a step, as a timeout does: what it does without it stands."""
        if not self.left and call.error is None:
            error = TimeoutError(f"step {call.key!r} was given up by its handler")
            content = {**told(error, call.tries + 1), "given_up": True}
            self.failed(call, dump(content), who)

    def ask(self, name: str, kind: str, *, who: object, home: bool) -> Call:
        """
        Look a step up; `journal.done` must follow.

        Whoever asks for another step after one has failed has gone on without it. That is
        journaled, so that the next attempt takes the same way.
        """
        if self.left:
            raise Left
        if self.broken is not None:
            raise self.broken
        if isinstance(who, asyncio.Task) and (task := asyncio.current_task()) is not None:
            # Not who called: gather puts each step into a task of its own.
            self._tasks.add(task)
        if at := INSIDE.get():
            raise self.breaks(
                NestedStep(
                    f"{kind} {name!r} was asked for inside {at!r}; it is a step of its own"
                )
            )
        self.goes_on(who=who, home=home)
        try:
            return self.journal.ask(name, kind, home=home)
        except (JournalMismatch, StepInParallel) as bad:
            raise self.breaks(bad) from None

    def goes_on(self, *, who: object, home: bool) -> None:
        """*who* asks for a step, itself or for a task beside it, in spite of what it was told."""
        told = TOLD.get()
        for key, (by, entry) in list(self._failed.items()):
            if by is who or (self, key) in told or (home and _was_told(by)):
                self._notes.append(entry)
                del self._failed[key]

    def breaks(self, error: SemelError) -> SemelError:
        """*error*, which ends the run whatever its handler makes of it."""
        self.broken = error
        return error

    def patched(self, name: str) -> bool:
        """See `Journal.patched`."""
        new, entry = self.journal.patched(name)
        if entry is not None:
            self._notes.append(entry)
        return new

    def key_of(self, key: str) -> str:
        """The idempotency key of a step: a uuid, the same in every attempt."""
        parts = [self.claim.project, str(self.claim.run_id), key]
        raw = b"".join(len(p.encode()).to_bytes(4) + p.encode() for p in parts)
        return str(uuid.UUID(bytes=sha256(raw).digest()[:16], version=5))

    # -- writing ----------------------------------------------------------------------------

    async def begin(self) -> None:
        """Return when a step may go to work; `end` must follow."""
        await self._parking.begin()
        try:
            if self.desk.gate is not None:
                await self.desk.gate()
            if self.left:
                raise Left  # noqa: TRY301 - its turn is given back below
        except BaseException:
            self._parking.end()
            raise

    async def turn(self, times: int = 1) -> None:
        """
        Let others have their turn, as they had while what the journal answers was executed.

        So a task beside the handler has begun wherever it had begun then.
        """
        await self._parking.begin()
        try:
            for _ in range(times):
                await asyncio.sleep(0)
                if self.left:
                    raise Left
        finally:
            self._parking.end()

    async def again(self, call: Call) -> NoReturn:
        """
        Raise the error that the handler went on from.

        Behind what succeeded beside it; and what was given up behind what failed, since that may
        cancel it now as it did then.
        """
        error = call.error or {}
        await self.turn(GIVEN_UP_TURNS if error.get("given_up") else FAILED_TURNS)
        raise raised(error)

    async def wait(self, wait: Wait) -> str | None:
        """Wait, parked if need be; see `Parking.wait`."""
        return await self._parking.wait(wait)

    def end(self) -> None:
        """The step is done, or waits."""
        self._parking.end()

    async def record(self, entry: Entry) -> list[tuple[str, str | None]]:
        """
        Append *entry*, behind what else is to be noted; answers as `step_record` for it.

        Raises:
            Left: the lease is lost.
        """
        notes = self.pending()
        answers = await self.desk.recorder.record(self.claim, [*notes, entry])
        if answers[-1][0] == "lost":
            self.lose()
            raise Left
        self.noted(notes)
        return answers[-1:]

    def pending(self) -> list[Entry]:
        """What is to be journaled; `noted` tells that it was."""
        return list(self._notes)

    def noted(self, entries: Sequence[Entry]) -> None:
        """These are journaled."""
        self._notes = [note for note in self._notes if note not in entries]

    async def unpark(self) -> None:
        """The handler returned while its run was being parked: have it claimed again, to end."""
        call = waits.run_unpark(
            self.claim.project, self.claim.run_id, self.claim.fence, now=self.desk.clock()
        )
        await self.desk.link.insist(call)

    async def note(self) -> None:
        """Journal what is to be noted, now."""
        if self._notes:
            *self._notes, last = self._notes
            await self.record(last)

    async def _park(self, wanted: Sequence[Wait]) -> list[tuple[str, str, str | None]]:
        await self.note()
        stop_here("worker.park.before")
        answers = await self.desk.link.insist(
            waits.run_park(
                self.claim.project,
                self.claim.worker,
                self.claim.run_id,
                self.claim.fence,
                wanted,
                now=self.desk.clock(),
            )
        )
        stop_here("worker.park.after")
        return answers

    def _leave(self, parked: bool) -> None:
        self.parked = self.parked or parked
        if not self.left:
            self._quit()

    def _quit(self) -> None:
        self.close()
        self._stop()

    def lose(self) -> None:
        """Another worker has the run: stop. From any thread."""
        self.left = True  # at once: what comes of the Left that is raised now is no failure
        self._loop.call_soon_threadsafe(self._quit)

    def close(self) -> None:
        """The attempt is over, or is to be: whoever still waits is told so."""
        self.left = True
        self._parking.close(Left())

    async def settle(self) -> None:
        """
        Return when all that the handler began has stopped; it has ended itself.

        Tasks beside it that asked for a step are cancelled; others are not known here. A step in
        a thread is waited for: it cannot be cancelled.
        """
        self.close()
        await self._parking.settled()
        strays = {task for task in self._tasks if not task.done()} - {asyncio.current_task()}
        for stray in strays:
            stray.cancel()
        while strays or self._parking.busy:
            # Told to stop meanwhile, it is stopping already.
            with suppress(asyncio.CancelledError):
                if strays:
                    _, strays = await asyncio.wait(strays)
                await self._parking.idle()
        for task in self._tasks:
            if isinstance(getattr(task, "_exception", None), Left):
                task.exception()  # asked for, so that asyncio does not log it as a fault

    def finish(self) -> None:
        """
        The handler has returned.

        Raises:
            JournalMismatch: not all of its journal was asked for.
            SemelError: what it went on in spite of.
        """
        if self.broken is not None:
            raise self.broken
        self.journal.close()


def _was_told(by: object) -> bool:
    """Whether somebody has had the error that ended *by*; of a thread nobody can say."""
    if not isinstance(by, asyncio.Task):
        return True
    return by.done() and not getattr(by, "_log_traceback", False)


def _readable(result: Any) -> str:
    try:
        return json_text("", result)
    except BadStepResult:
        return "null"


def json_text(key: str, result: Any) -> str:
    """
    *result* as JSON text.

    Raises:
        BadStepResult: it is none, or above 1 MiB.
    """
    try:
        text = dump(result)
    except (TypeError, ValueError, RecursionError) as bad:
        raise BadStepResult(f"the result of step {key!r} is no JSON: {bad}"[:1000]) from None
    size = len(text.encode())
    if size > RESULT_BYTES_MAX:
        raise BadStepResult(
            f"the result of step {key!r} has {size} bytes; at most {RESULT_BYTES_MAX} are kept"
        )
    return text
