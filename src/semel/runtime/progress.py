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
from contextvars import ContextVar
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from semel.core import steps, waits
from semel.core.approvals import Decision
from semel.core.canonical import digest
from semel.core.steps import Entry
from semel.core.text import dump
from semel.core.waits import Question, Wait
from semel.db.stops import stop_here
from semel.errors import (
    ApprovalRejected,
    BadRequest,
    BadStepResult,
    ChildFailed,
    JournalMismatch,
    SemelError,
    StepInParallel,
    WaitTimedOut,
)
from semel.runtime.journal import Call, Journal, raised, told
from semel.runtime.parking import Parking
from semel.runtime.retry import Retry, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from datetime import datetime
    from uuid import UUID

    from semel.db.link import Link
    from semel.model import Claim
    from semel.runtime.recorder import Recorder

RESULT_BYTES_MAX = 1024 * 1024
APPROVAL_TTL = timedelta(minutes=15)

#: The idempotency key of the step that is being executed; see `semel.idempotency_key`.
STEP_KEY: ContextVar[str] = ContextVar("semel_step_key")


class Left(BaseException):
    """The run is ours no longer: parked, or lost. Ends the handler; no `except Exception` sees it."""


class Desk:
    """What the attempts of one process share to journal and to wait."""

    def __init__(
        self,
        *,
        link: Link,
        recorder: Recorder,
        notifiers: Sequence[str] = (),
        notify: Sequence[str] = (),
        ttl: timedelta = APPROVAL_TTL,
        undos: Mapping[str, Callable[..., Any]] | None = None,
        gate: Callable[[], Awaitable[None]] | None = None,
        lend: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        lend_sync: Callable[[], AbstractContextManager[Any]] | None = None,
        clock: Callable[[], datetime | None] = lambda: None,
    ) -> None:
        self.link = link
        self.recorder = recorder
        self.notifiers = frozenset(notifiers)  # that can be told of an approval
        self.notify = tuple(notify)  # those that are, unless the handler names others
        self.ttl = ttl
        self.undos = undos or {}  # the compensations that are registered
        self.lend: Any = lend  # a connection for a transaction
        self.lend_sync: Any = lend_sync
        self.gate = gate  # returns when something new may begin
        self.clock = clock


class Progress:
    """
    The steps and waits of one attempt.

    Args:
        stop: Called from the loop when the run was parked or lost: stop the handler.
    """

    def __init__(self, claim: Claim, desk: Desk, stop: Callable[[], None]) -> None:
        self.claim = claim
        self.desk = desk
        self.journal = Journal(claim.journal, attempt=claim.attempt)
        self.parked = False
        self.left = False
        self.broken: SemelError | None = None  # a handler that catches this goes on in vain
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._parking = Parking(self._park, self._leave)
        self._notes: list[Entry] = []  # to be journaled with the next entry
        self._failed: dict[str, tuple[object, Entry]] = {}  # by whom, what

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
            if call.result is not None:
                return json.loads(call.result)
            if call.error is not None:
                raise raised(call.error)
            return await self._execute(call, execute, retry, intent, who)
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
                    STEP_KEY.reset(told_key)
                if delay <= retry.park_after:
                    await asyncio.sleep(delay.total_seconds())
                    continue
            finally:
                self.end()
            await self._parking.wait(Wait(key=call.key, kind="retry", due=delay))

    async def _keep(self, call: Call, result: Any) -> Any:
        try:
            text = json_text(call.key, result)
        except BadStepResult as bad:
            self.broken = (
                bad  # its effect stands: whatever the handler does, the run cannot go on
            )
            raise
        [(outcome, stands)] = await self.record(call.entry("result", text))
        self.journal.keep(call, stands if outcome == "already" and stands else text)
        return json.loads(call.result or text)

    async def _errored(
        self, call: Call, error: Exception, retry: Retry, who: object
    ) -> timedelta | None:
        """Journal that *error* was raised; how long to wait before the next try, None: no more."""
        again = call.tries < retry.attempts and not final(error)
        await self.errored(call, dump(told(error, call.tries)), None if again else who)
        return retry.delay(call.tries) if again else None

    async def errored(self, call: Call, content: str, who: object) -> None:
        """Journal an error; with *who*, it is raised there, and what they ask for next was in spite of it."""
        await self.record(call.entry("error", content))
        if who is not None:
            self._failed[call.key] = (who, call.entry("caught", content))

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
        for key, (by, entry) in list(self._failed.items()):
            if home or by is who:
                self._notes.append(entry)
                del self._failed[key]
        try:
            return self.journal.ask(name, kind, home=home)
        except (JournalMismatch, StepInParallel) as bad:
            self.broken = bad
            raise

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

    # -- waits ------------------------------------------------------------------------------

    async def sleep(self, name: str, delay: timedelta, *, who: object, home: bool) -> None:
        """Come back after *delay*, by the database's clock."""
        await self._wait(
            name, "sleep", lambda key: Wait(key=key, kind="sleep", due=delay), who, home
        )

    async def signal(
        self, name: str, timeout: timedelta | None, *, who: object, home: bool
    ) -> Any:
        """Wait for a signal; answers its content."""
        answer = await self._wait(
            f"signal:{name}",
            "signal",
            lambda key: Wait(key=key, kind="signal", name=name, due=timeout),
            who,
            home,
        )
        if answer.get("timed_out"):
            raise WaitTimedOut(f"signal {name} did not come within {timeout}")
        return answer["content"]

    async def child(
        self, name: str, child: UUID, timeout: timedelta | None, *, who: object, home: bool
    ) -> Any:
        """Wait for a child's end; answers its result."""
        answer = await self._wait(
            name,
            "child",
            lambda key: Wait(key=key, kind="child", child=child, due=timeout),
            who,
            home,
        )
        if answer.get("timed_out"):
            raise WaitTimedOut(f"run {child} did not end within {timeout}")
        if answer["status"] != "COMPLETED":
            raise ChildFailed(
                f"run {child} is {answer['status']}: {answer['code']} {answer['reason']}"
            )
        return answer["result"]

    async def spawn(
        self,
        name: str,
        agent: str,
        text: str,
        options: dict[str, Any],
        *,
        who: object,
        home: bool,
    ) -> UUID:
        """Start a child; answers its id."""
        call = self.ask(name, "spawn", who=who, home=home)
        try:
            if call.result is not None:
                return uuid.UUID(json.loads(call.result)["run_id"])
            await self.begin()
            try:
                await self._note()
                child, outcome = await self.desk.link.insist(
                    steps.child_start(
                        self.claim.project,
                        self.claim.worker,
                        self.claim.run_id,
                        self.claim.fence,
                        key=call.key,
                        place=call.place,
                        agent=agent,
                        text=text,
                        now=self.desk.clock(),
                        **options,
                    )
                )
            finally:
                self.end()
            if child is None or outcome == "lost":
                self.lose()
                raise Left
            return child
        finally:
            self.journal.done(name)

    async def approval(
        self, name: str, question: Question, ttl: timedelta, *, who: object, home: bool
    ) -> dict[str, Any]:
        """Wait for a decision; answers who decided, when and why."""

        def wait(key: str) -> Wait:
            return Wait(key=key, kind="approval", due=ttl, question=question)

        answer: dict[str, Any] = await self._wait(name, "approval", wait, who, home)
        if answer["digest"] != question.digest:
            raise JournalMismatch(
                f"approval {name!r} was decided for another action than the code asks for now"
            )
        decision: Decision = answer["decision"]
        if decision == "reject":
            because = f": {answer['reason']}" if answer.get("reason") else ""
            raise ApprovalRejected(
                f"{question.title!r} was rejected by {answer['by']}{because}"
            )
        return answer

    async def _wait(
        self,
        name: str,
        kind: str,
        wait: Callable[[str], Wait],
        who: object,
        home: bool,  # noqa: FBT001
    ) -> Any:
        call = self.ask(name, kind, who=who, home=home)
        try:
            if call.result is None:
                call.result = await self._parking.wait(wait(call.key))
            return json.loads(call.result or "null")
        finally:
            self.journal.done(name)

    # -- writing ----------------------------------------------------------------------------

    async def begin(self) -> None:
        """Return when a step may go to work; `end` must follow."""
        await self._parking.begin()
        try:
            if self.desk.gate is not None:
                await self.desk.gate()
            if self.left:
                raise Left
        except BaseException:
            self._parking.end()
            raise

    def end(self) -> None:
        """The step is done, or waits."""
        self._parking.end()

    async def record(self, entry: Entry) -> list[tuple[str, str | None]]:
        """
        Append *entry*, behind what else is to be noted; answers as `step_record` for it.

        Raises:
            Left: the lease is lost.
        """
        notes = self.notes()
        answers = await self.desk.recorder.record(self.claim, [*notes, entry])
        if answers[-1][0] == "lost":
            self.lose()
            raise Left
        return answers[-1:]

    def notes(self) -> list[Entry]:
        """What is to be journaled with the next entry; the caller does."""
        notes, self._notes = self._notes, []
        return notes

    async def _note(self) -> None:
        if self._notes:
            *_, last = self._notes
            self._notes.remove(last)
            await self.record(last)

    async def _park(self, wanted: Sequence[Wait]) -> list[tuple[str, str, str | None]]:
        await self._note()
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

    def _leave(self, parked: bool) -> None:  # noqa: FBT001 - the parking's callback
        if not self.left:
            self.left, self.parked = True, parked
            self.close()
            self._stop()

    def lose(self) -> None:
        """Another worker has the run: stop. From any thread."""
        self._loop.call_soon_threadsafe(self._leave, False)  # noqa: FBT003

    def close(self) -> None:
        """The attempt is over, or is to be: whoever still waits is told so."""
        self.left = True
        self._parking.close(Left())

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


def question(
    desk: Desk,
    title: str,
    action: Any,
    *,
    approvers: Sequence[str] | None,
    need: int,
    requester: str | None,
    four_eyes: bool,
) -> Question:
    """
    What an approval asks.

    Raises:
        BadRequest: the action has no canonical form, or nobody could decide it.
    """
    if not 1 <= len(title) <= 500:  # noqa: PLR2004 - a title is read at a glance
        raise BadRequest("an approval's title is 1 to 500 characters")
    if need < 1 or (approvers is not None and need > len(set(approvers) - {requester})):
        raise BadRequest(f"need={need}: that many of {approvers} can never approve")
    if four_eyes and requester is None:
        raise BadRequest("four_eyes=True needs requester=, whoever must not decide it alone")
    try:
        seal = digest({"title": title, "action": action})
    except (TypeError, ValueError) as bad:
        raise BadRequest(f"the action of {title!r} has no canonical form: {bad}") from None
    told_to = desk.notify if approvers is None else approvers
    return Question(
        id=uuid.uuid4(),
        title=title,
        action=action,
        digest=seal,
        need=need,
        approvers=None if approvers is None else tuple(approvers),
        requester=requester if four_eyes else None,
        notify=tuple(dict.fromkeys(name for name in told_to if name in desk.notifiers)),
    )
