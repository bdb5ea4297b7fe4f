"""
Idempotency: ASGI middleware around a whole application, or around some of its routes.

Recorded mode, since the handlers' transactions are their own: the claim is committed before the
application runs and the outcome after it; a crash between them is a visible unknown
(E-IDEMPOTENT-004) for a person, never a second execution. A handler that takes the operation,

    op = await request.state.semel

works in the operation's own transaction from there on, on `op.connection`, and is atomic: see
`taken`. Whoever may not ask must be turned away before this middleware: a replay runs no handler.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from starlette.exceptions import HTTPException
from starlette.requests import Request

from semel.db.borrow import Pool
from semel.db.ledger.drive import shielded
from semel.db.transact import answered
from semel.edges.frameworks.beating import BeatingTask
from semel.edges.frameworks.exchange import Exchange
from semel.edges.frameworks.messages import send_whole, whole
from semel.edges.frameworks.taken import Taken
from semel.edges.rest import answer, key, refusal
from semel.edges.rest.asked import Asked
from semel.edges.rest.recorded import Recorder, Replayed
from semel.edges.rest.rules import METHODS, Options, Rules
from semel.errors import SemelError, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.types import ASGIApp, Receive, Scope, Send

    from semel.edges import identity
    from semel.edges.rest.recorded import Claimed

#: How often a handler whose transaction lost a race is executed, all in all.
TRIES = 3


@dataclass(frozen=True, slots=True)
class _Asking:
    """A request; without a key it has no body yet, and nobody asks."""

    body: bytes | None
    who: identity.Asked | None
    settings: dict[str, Any]  # for `once`


class Idempotency:
    """
    ASGI middleware: a POST or PATCH with an `Idempotency-Key` is executed once.

    Args:
        app: The application around which it is.
        pool: An async pool of the ledger's database, as `semel.run_once` takes one.
        project: The ledger.
        actor: Who asks: given Starlette's Request, an id or None, or an awaitable of it.
        rules: See `semel.edges.rest.rules.Rules`.

    Raises:
        BadConfig: an impossible rule, or no pool.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        pool: Any,
        project: str,
        actor: Callable[[Request], Any],
        **rules: Unpack[Options],
    ) -> None:
        self._app = app
        self._rules = Rules(project=project, **rules)
        self._pool = Pool(pool)
        self._actor = actor
        self._recorder = Recorder(self._rules, self._pool.run, asyncio.sleep)
        self._beats = BeatingTask(project, self._recorder.holder, self._pool.run)
        self._going: set[asyncio.Task[bool]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] not in METHODS:
            await self._app(scope, receive, send)
            return
        try:
            asking = await self._asking(scope, receive)
        except SemelError as error:
            await refuse(send, error)
        except HTTPException as error:  # of the program's own authentication
            told = [
                *(error.headers or {}).items(),
                ("Content-Type", "text/plain; charset=utf-8"),
            ]
            await send_whole(send, error.status_code, told, error.detail.encode())
        else:
            if asking is not None:
                await self._executed(scope, receive, send, asking)

    async def _asking(self, scope: Scope, receive: Receive) -> _Asking | None:
        """Who asks for what; None if the client has gone away."""
        lines = lines_of(scope)
        # A router may send it on to the same path with a slash or without: that is one operation.
        path = path_of(scope).rstrip("/") or "/"
        asked = Asked(
            method=scope["method"],
            path=path,
            query=scope.get("query_string", b"").decode("latin-1"),
            headers=lines,
            # An operation's name may be that of many routes here.
            params={"path": path},
        )
        found = key.find(self._rules, asked.method, lines)
        if found is None:
            return _Asking(None, None, self._rules.once(asked, None, None))
        actor = await answered(self._actor(Request(scope)))
        body = await whole(scope, receive, self._rules.body_bytes_max)
        if body is None:
            return None
        asked = replace(asked, body=body)
        who = self._rules.who(asked, actor, found)
        return _Asking(body, who, self._rules.once(asked, actor, found))

    async def _executed(
        self, scope: Scope, receive: Receive, send: Send, asking: _Asking
    ) -> None:
        if asking.who is None:
            exchange = self._exchange(scope, asking, None, may_repeat=False)
            await exchange.run(self._app, scope, receive, send)
            return
        for tried in range(1, TRIES + 1):
            try:
                begun = await self._begun(asking.who)
            except SemelError as error:
                await refuse(send, error)
                return
            if isinstance(begun, Replayed):
                await send_whole(send, *answer.replay(begun.reply, begun.attempts))
                return
            exchange = self._exchange(scope, asking, begun, may_repeat=tried < TRIES)
            if not await self._uninterrupted(exchange.run(self._app, scope, receive, send)):
                return

    async def _begun(self, who: identity.Asked) -> Claimed | Replayed:
        """As the recorder begins; what a cancelled request has claimed is handed back."""
        begun: list[Claimed | Replayed] = []

        async def begin() -> None:
            begun.append(await self._recorder.begin(who))

        try:
            await shielded(begin())
        except asyncio.CancelledError:
            for claimed in begun:
                if not isinstance(claimed, Replayed):
                    await shielded(self._recorder.release(claimed, untouched=True))
            raise
        return begun[0]

    def _exchange(
        self, scope: Scope, asking: _Asking, claimed: Claimed | None, *, may_repeat: bool
    ) -> Exchange:
        taken = Taken(
            self._rules,
            self._pool,
            self._recorder,
            claimed,
            asking.settings,
            path=path_of(scope),
        )
        return Exchange(self._rules, taken, asking.body, may_repeat=may_repeat)

    async def _uninterrupted(self, work: Coroutine[Any, Any, bool]) -> bool:
        """
        What *work* answers; it goes on when the request is cancelled.

        What is claimed is executed and its outcome recorded: the client will ask for it.
        """

        async def beating() -> bool:
            with self._beats:
                return await work

        task = asyncio.create_task(beating())
        self._going.add(task)
        task.add_done_callback(self._going.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise


async def refuse(send: Send, error: SemelError) -> None:
    """Answer *error*."""
    status, lines, body = refusal.answer(error)
    if isinstance(error, TooLarge):
        lines.append(("Connection", "close"))  # its body was not read
    await send_whole(send, status, lines, body)


def lines_of(scope: Scope) -> tuple[tuple[str, str], ...]:
    """The request's header lines, names in lower case."""
    return tuple(
        (n.decode("latin-1").lower(), v.decode("latin-1")) for n, v in scope["headers"]
    )


def path_of(scope: Scope) -> str:
    """The path as the client wrote it."""
    raw: bytes | None = scope.get("raw_path")
    if raw:
        return raw.partition(b"?")[0].decode("latin-1")
    return str(scope["path"])
