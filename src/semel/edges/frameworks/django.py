"""
once: a decorator of Django views, sync and async, atomic on the view's own database.

    @login_required
    @once(project="shop", actor=lambda request: request.user.pk)
    def pay(request): ...

What stands above it has run before a replay is answered, so authorisation stands above. The view
is taken out of ATOMIC_REQUESTS, whose transaction would be around the operation's; `on_commit`
runs after the commit and not on a replay. The operation is `request.semel`.
"""

from __future__ import annotations

from functools import wraps
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from asgiref.sync import iscoroutinefunction
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.utils.connection import ConnectionProxy

from semel.db.transact import answered
from semel.edges.frameworks.django_http import abody_of, asked, body_of, lines_of, made, rewind
from semel.edges.frameworks.exchange import again
from semel.edges.once import Once
from semel.edges.rest import answer, key, refusal
from semel.edges.rest.conclusion import conclude
from semel.edges.rest.rules import METHODS, Options, Rules
from semel.errors import SemelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponseBase

V = TypeVar("V", bound="Callable[..., Any]")

#: How often a view whose transaction lost a race is executed, all in all.
TRIES = 3


def once(
    *,
    project: str,
    actor: Callable[[HttpRequest], Any],
    using: str = DEFAULT_DB_ALIAS,
    **rules: Unpack[Options],
) -> Callable[[V], V]:
    """
    Execute POST and PATCH requests of a view once.

    Args:
        project: The ledger.
        actor: Who asks: given the request, an id or None; for an async view also an awaitable.
        using: The database that the view writes to, and the ledger is in.
        rules: See `semel.edges.rest.rules.Rules`; a key is required by default.

    Raises:
        BadConfig: an impossible rule.
    """
    rules.setdefault("require_key", True)
    door = _Door(Rules(project=project, **rules), actor, using)

    def decorate(view: V) -> V:
        if iscoroutinefunction(view):  # ty: ignore[deprecated] - marks of Django's own count

            @wraps(view)
            async def execute(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                return await door.arun(request, lambda: view(request, *args, **kwargs))

        else:

            @wraps(view)
            def execute(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                return door.run(request, lambda: view(request, *args, **kwargs))

        once_: Any = transaction.non_atomic_requests(using)(execute)
        once_.semel_once = True
        return cast("V", once_)

    return decorate


class _Door:
    """One decorated view's rules."""

    def __init__(self, rules: Rules, actor: Callable[[HttpRequest], Any], using: str) -> None:
        self._rules = rules
        self._actor = actor
        # Not a connection: each thread has its own.
        self._connection = ConnectionProxy(connections, using)

    def run(self, request: HttpRequest, view: Callable[[], Any]) -> HttpResponseBase:
        if request.method not in METHODS:
            return view()
        try:
            settings = self._settings(request, self._actor(request))
            for _ in range(TRIES - 1):
                try:
                    return self._execute(request, view, settings)
                except again(settings["key"]):
                    rewind(request)
            return self._execute(request, view, settings)
        except SemelError as error:
            return made(*refusal.answer(error))

    async def arun(self, request: HttpRequest, view: Callable[[], Any]) -> HttpResponseBase:
        if request.method not in METHODS:
            return await view()
        try:
            settings = self._settings(request, await answered(self._actor(request)))
            for _ in range(TRIES - 1):
                try:
                    return await self._aexecute(request, view, settings)
                except again(settings["key"]):
                    rewind(request)
            return await self._aexecute(request, view, settings)
        except SemelError as error:
            return made(*refusal.answer(error))

    def _settings(self, request: HttpRequest, actor: Any) -> dict[str, Any]:
        told = asked(request, self._rules.body_bytes_max)
        found = key.find(self._rules, told.method, told.headers)
        return self._rules.once(told, actor, found)

    def _execute(
        self, request: Any, view: Callable[[], Any], settings: dict[str, Any]
    ) -> HttpResponseBase:
        block = Once(self._connection, **settings)
        request.semel = op = block.operation
        response: Any = None
        own = None
        with block:
            if op.replay is None:
                response = _awaited_by_nobody(view())
                body = body_of(response, self._rules.answer_bytes_max)
                own = op.replied
                conclude(self._rules, op, response.status_code, lines_of(response), body)
        return self._answered(block, response, own)

    async def _aexecute(
        self, request: Any, view: Callable[[], Any], settings: dict[str, Any]
    ) -> HttpResponseBase:
        block = Once(self._connection, **settings)
        request.semel = op = block.operation
        response: Any = None
        own = None
        async with block:
            if op.replay is None:
                response = await view()
                body = await abody_of(response, self._rules.answer_bytes_max)
                own = op.replied
                conclude(self._rules, op, response.status_code, lines_of(response), body)
        return self._answered(block, response, own)

    def _answered(self, block: Once, response: Any, own: Any) -> HttpResponseBase:
        op = block.operation
        marks = answer.marks(op.attempts, replayed=op.replay is not None)
        reply = op.replay or own
        if reply is not None:
            return made(reply.status, [*reply.headers, *marks], reply.body)
        for name, value in marks:
            response[name] = value
        return response


def _awaited_by_nobody(response: Any) -> Any:
    """*response*, where it is one; raises TypeError where the view turns out to be async."""
    if not iscoroutine(response):
        return response
    response.close()
    raise TypeError(
        "the view is async, and its dispatch does not say so: let `once` decorate the async"
        " method, or what as_view() returns"
    )
