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
from typing import TYPE_CHECKING, Any, Unpack

from starlette.exceptions import HTTPException
from starlette.requests import Request

from semel.db.borrow import Pool
from semel.db.transact import answered
from semel.edges.frameworks.beating import BeatingTask
from semel.edges.frameworks.exchange import Exchange
from semel.edges.frameworks.messages import send_whole, whole
from semel.edges.frameworks.taken import Taken
from semel.edges.rest import answer, key, refusal
from semel.edges.rest.asked import Asked
from semel.edges.rest.recorded import Recorder, Replayed
from semel.edges.rest.rules import Options, Rules
from semel.errors import SemelError, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.types import ASGIApp, Receive, Scope, Send

#: How often a handler whose transaction lost a race is executed, all in all.
TRIES = 3


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
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        lines = tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in scope["headers"]
        )
        try:
            found = key.find(self._rules, scope["method"], lines)
            if found is not None:
                await self._operation(scope, receive, send, lines, found)
                return
        except SemelError as error:
            await refuse(send, error)
            return
        except HTTPException as error:  # of the program's own authentication
            told = [
                *(error.headers or {}).items(),
                ("Content-Type", "text/plain; charset=utf-8"),
            ]
            await send_whole(send, error.status_code, told, error.detail.encode())
            return
        await self._app(scope, receive, send)

    async def _operation(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        lines: tuple[tuple[str, str], ...],
        found: str,
    ) -> None:
        actor = await answered(self._actor(Request(scope)))
        body = await whole(scope, receive, self._rules.body_bytes_max)
        if body is None:
            return
        asked = Asked(
            method=scope["method"],
            path=path_of(scope),
            query=scope.get("query_string", b"").decode("latin-1"),
            headers=lines,
            body=body,
        )
        settings = self._rules.once(asked, actor, found)
        who = self._rules.who(asked, actor, found)
        for tried in range(1, TRIES + 1):
            begun = await self._recorder.begin(who)
            if isinstance(begun, Replayed):
                await send_whole(send, *answer.replay(begun.reply, begun.attempts))
                return
            taken = Taken(self._rules, self._pool, self._recorder, begun, settings)
            exchange = Exchange(self._rules, taken, body, may_repeat=tried < TRIES)
            if not await self._uninterrupted(exchange.run(self._app, scope, receive, send)):
                return

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


def path_of(scope: Scope) -> str:
    """The path as the client wrote it."""
    raw: bytes | None = scope.get("raw_path")
    if raw:
        return raw.partition(b"?")[0].decode("latin-1")
    return str(scope["path"])
