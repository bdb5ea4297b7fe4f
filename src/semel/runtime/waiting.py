"""
Waiting: steps whose answer comes from elsewhere, and the children they may come from.

Each is a step of the journal like any other; while there is no answer the run may be parked.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from semel.core import steps
from semel.core.canonical import digest
from semel.core.text import dump
from semel.core.waits import Question, Wait
from semel.errors import (
    ApprovalRejected,
    BadRequest,
    ChildFailed,
    JournalMismatch,
    WaitTimedOut,
)
from semel.runtime.journal import told
from semel.runtime.progress import Left
from semel.runtime.tools import value_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from uuid import UUID

    from semel.core.tools import Ask
    from semel.errors import SemelError
    from semel.runtime.desk import Desk
    from semel.runtime.journal import Call
    from semel.runtime.progress import Progress

TITLE_CHARS_MAX = 500
ACTION_BYTES_MAX = 256 * 1024
#: More people than this are never asked for.
NEED_MAX = 100


class Waiting:
    """What the handler of one attempt may wait for; who and home say who asks."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    async def sleep(self, name: str, delay: timedelta, *, who: object, home: bool) -> None:
        """Come back after *delay*, by the database's clock."""
        await self._wait(
            name,
            "sleep",
            lambda call: Wait(key=call.key, place=call.place, kind="sleep", due=delay),
            who,
            home,
        )

    async def signal(
        self, name: str, within: timedelta | None, *, who: object, home: bool
    ) -> Any:
        """Wait for a signal; answers its content."""
        answer = await self._wait(
            f"signal:{name}",
            "signal",
            lambda call: Wait(
                key=call.key, place=call.place, kind="signal", name=name, due=within
            ),
            who,
            home,
        )
        if answer.get("timed_out"):
            raise WaitTimedOut(f"signal {name} did not come within {within}")
        return answer["content"]

    async def child(
        self, name: str, child: UUID, within: timedelta | None, *, who: object, home: bool
    ) -> Any:
        """Wait for a child's end; answers its result."""
        answer = await self._wait(
            name,
            "child",
            lambda call: Wait(
                key=call.key, place=call.place, kind="child", child=child, due=within
            ),
            who,
            home,
        )
        if answer.get("timed_out"):
            raise WaitTimedOut(f"run {child} did not end within {within}")
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
    ) -> tuple[str, UUID]:
        """Start a child; answers the key of the step that did, and the child's id."""
        claim = self._progress.claim
        call = self._progress.ask(name, "spawn", who=who, home=home)
        try:
            if call.error is not None:
                await self._progress.again(call)
            if call.result is not None:
                await self._progress.turn()
                return call.key, uuid.UUID(json.loads(call.result)["run_id"])
            await self._progress.begin()
            try:
                await self._progress.note()
                child, outcome = await self._progress.desk.link.insist(
                    steps.child_start(
                        claim.project,
                        claim.worker,
                        claim.run_id,
                        claim.fence,
                        key=call.key,
                        place=call.place,
                        agent=agent,
                        text=text,
                        now=self._progress.desk.clock(),
                        **options,
                    )
                )
            finally:
                self._progress.end()
            if child is not None and outcome != "lost":
                return call.key, child
            self._progress.lose()
            raise Left
        except asyncio.CancelledError:
            self._progress.give_up(call, who)
            raise
        finally:
            self._progress.journal.done(name)

    async def approval(
        self, name: str, question: Question, ttl: timedelta, *, who: object, home: bool
    ) -> dict[str, Any]:
        """Wait for a decision; answers who decided, when and why."""

        def wait(call: Call) -> Wait:
            return Wait(
                key=call.key, place=call.place, kind="approval", due=ttl, question=question
            )

        answer: dict[str, Any] = await self._wait(name, "approval", wait, who, home)
        if answer["digest"] != question.digest:
            raise self._progress.breaks(
                JournalMismatch(
                    f"approval {name!r} was decided for another action than the code asks for"
                )
            )
        if answer["decision"] == "reject":
            because = f": {answer['reason']}" if answer.get("reason") else ""
            raise ApprovalRejected(
                f"{question.title!r} was rejected by {', '.join(answer['by'])}{because}"
            )
        return answer

    async def tool(
        self, name: str, ask: Ask, within: timedelta, *, who: object, home: bool
    ) -> Any:
        """Wait for a tool; answers what it answered."""
        progress = self._progress
        call = progress.ask(name, "tool", who=who, home=home)
        ask = replace(ask, key=progress.key_of(call.key))
        try:
            if call.error is not None:
                await progress.again(call)
            if call.result is None:
                if (missing := progress.desk.tools.missing(ask)) is not None:
                    await self._refuse(call, missing, who)
                wait = Wait(key=call.key, place=call.place, kind="tool", due=within, ask=ask)
                call.result = await progress.wait(wait)
            else:
                await progress.turn()
            return value_of(ask, json.loads(call.result or "{}"), within)
        except asyncio.CancelledError:
            progress.give_up(call, who)
            raise
        finally:
            progress.journal.done(name)

    async def _refuse(self, call: Call, error: SemelError, who: object) -> NoReturn:
        """Raise *error*, journaled, so that whoever goes on from it does so in each attempt."""
        await self._progress.begin()
        try:
            await self._progress.errored(call, dump(told(error, 1)), who)
        finally:
            self._progress.end()
        raise error

    async def answer(self, *, who: object, home: bool) -> None:
        """Wait for what only ends this run; does not return."""
        await self._wait(
            "answer",
            "answer",
            lambda call: Wait(key=call.key, place=call.place, kind="answer"),
            who,
            home,
        )

    async def _wait(
        self,
        name: str,
        kind: str,
        wait: Callable[[Call], Wait],
        who: object,
        home: bool,
    ) -> Any:
        call = self._progress.ask(name, kind, who=who, home=home)
        try:
            if call.error is not None:
                await self._progress.again(call)
            if call.result is None:
                call.result = await self._progress.wait(wait(call))
            else:
                await self._progress.turn()
            return json.loads(call.result or "null")
        except asyncio.CancelledError:
            self._progress.give_up(call, who)
            raise
        finally:
            self._progress.journal.done(name)


def question(
    desk: Desk,
    title: Any,
    action: Any,
    *,
    approvers: Any,
    need: Any,
    requester: Any,
    four_eyes: bool,
) -> Question:
    """
    What an approval asks; a program that nobody type-checks may say anything.

    Raises:
        BadRequest: the action has no canonical form, or nobody could decide it.
    """
    if not (isinstance(title, str) and 1 <= len(title) <= TITLE_CHARS_MAX):
        raise BadRequest(f"an approval's title is a text of 1 to {TITLE_CHARS_MAX} characters")
    if isinstance(approvers, str) or not isinstance(approvers, Iterable | None):
        raise BadRequest(f"approvers={approvers!r}: write a list of names")
    approvers = None if approvers is None else tuple(approvers)
    names = [*(approvers or ()), *(() if requester is None else (requester,))]
    if not all(isinstance(name, str) and name for name in names):
        raise BadRequest(f"approvers and requester are names, not {names!r}"[:300])
    if not isinstance(need, int) or isinstance(need, bool):
        raise BadRequest(f"need={need!r}: write how many must approve")
    others = {requester} if four_eyes else set()
    if not 1 <= need <= NEED_MAX or (
        approvers is not None and need > len(set(approvers) - others)
    ):
        raise BadRequest(f"need={need}: that many of {approvers} can never approve")
    if four_eyes and requester is None:
        raise BadRequest("four_eyes=True needs requester=, whoever must not decide it alone")
    try:
        seal = digest({"title": title, "action": action})
        size = len(dump([title, action, names]).encode())
    except (TypeError, ValueError) as bad:
        raise BadRequest(f"the action of {title!r} has no canonical form: {bad}") from None
    if size > ACTION_BYTES_MAX:
        raise BadRequest(
            f"the action of {title!r} has {size} bytes; at most {ACTION_BYTES_MAX} can be asked"
        )
    told_to = desk.notify if approvers is None else approvers
    return Question(
        id=uuid.uuid4(),
        title=title,
        action=action,
        digest=seal,
        need=need,
        approvers=approvers,
        requester=requester if four_eyes else None,
        notify=tuple(dict.fromkeys(name for name in told_to if name in desk.notifiers)),
    )
