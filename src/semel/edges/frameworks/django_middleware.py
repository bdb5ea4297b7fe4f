"""
IdempotencyMiddleware: all views of a Django project, sync and async, in recorded mode.

    MIDDLEWARE = [..., "django.contrib.auth.middleware.AuthenticationMiddleware",
                  "semel.django.IdempotencyMiddleware"]
    SEMEL = {"project": "shop", "actor": "shop.auth.user_id"}

The claim is committed before the view and the outcome after it, on the same database; a crash
between them is a visible unknown (E-IDEMPOTENT-004), never a second execution. Below the middleware
that authenticates; a view that `once` decorates is left to it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils.module_loading import import_string

from semel.db.execute import on, translated
from semel.db.ledger.drive import drive, shielded
from semel.db.transact import answered
from semel.edges import told
from semel.edges.frameworks.beating import BeatingThread
from semel.edges.frameworks.django_http import abody_of, asked, body_of, lines_of, made
from semel.edges.rest import answer, key, refusal
from semel.edges.rest.recorded import Claimed, Recorder, Replayed
from semel.edges.rest.rules import METHODS, Rules
from semel.errors import BadConfig, SemelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse

    from semel.core.call import Call

T = TypeVar("T")

_CLAIMED, _GONE = "_semel_claimed", "_semel_gone"
#: What the view raised, and whether its COMMIT may have been done all the same.
_ERROR, _LOST = "_semel_error", "_semel_lost"


class IdempotencyMiddleware:
    """
    Middleware of Django, set up by `settings.SEMEL`.

    SEMEL has `project`, `actor` (a function of the request, or where to import it from), `using`
    (the database, "default" by default) and the options of `semel.edges.rest.rules.Rules`.

    Raises:
        BadConfig: SEMEL is not there, or says something impossible.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        told_ = dict(getattr(settings, "SEMEL", {}))
        if not {"project", "actor"} <= told_.keys():
            raise BadConfig('settings.SEMEL needs at least {"project": ..., "actor": ...}')
        actor = told_.pop("actor")
        self._actor = import_string(actor) if isinstance(actor, str) else actor
        self._using = told_.pop("using", DEFAULT_DB_ALIAS)
        try:
            self._rules = Rules(**told_)
        except TypeError as unknown:
            raise BadConfig(f"settings.SEMEL: {unknown}") from None
        self._recorder = Recorder(self._rules, self._run, _sleep)
        self._beats = BeatingThread(
            self._rules.project,
            self._recorder.holder,
            self._commit,
            self._close,
        )
        self._going: set[asyncio.Future[Any]] = set()
        self._get_response = get_response
        self._is_async = iscoroutinefunction(get_response)  # ty: ignore[deprecated]
        if self._is_async:
            me: Any = self
            markcoroutinefunction(me)

    def __call__(self, request: HttpRequest) -> Any:
        """Answer one request."""
        if self._is_async:
            return self._answer_async(request)
        try:
            response = self._get_response(request)
            body = body_of(response, self._rules.answer_bytes_max) if _claim(request) else None
        except BaseException:
            self._forget(request)
            raise
        return self._finish(request, response, body)

    def process_view(
        self, request: HttpRequest, view: Any, _args: Any, _kwargs: Any
    ) -> HttpResponse | None:
        """Claim the request's operation, or answer it."""
        if request.method not in METHODS or getattr(view, "semel_once", False):
            return None
        try:
            told_ = asked(request, self._rules.body_bytes_max)
            # An operation's name is that of all views here.
            told_ = replace(told_, params={"path": told_.path})
            found = key.find(self._rules, told_.method, told_.headers)
            if found is None:
                return None
            who = self._rules.who(told_, self._actor(request), found)
            begun = drive(self._recorder.begin(who))
        except SemelError as error:
            return made(*refusal.answer(error))
        if isinstance(begun, Replayed):
            return made(*answer.replay(begun.reply, begun.attempts))
        setattr(request, _CLAIMED, begun)
        self._beats.__enter__()
        return None

    def process_exception(self, request: HttpRequest, error: Exception) -> None:
        """Note what the view raised, of which its response says nothing."""
        setattr(request, _ERROR, told.of(error))
        setattr(request, _LOST, told.may_be_committed(error))

    async def _answer_async(self, request: HttpRequest) -> Any:
        """The response; a view goes on when its client has gone away, since it will ask again."""
        task = asyncio.ensure_future(self._whole(request))
        self._going.add(task)
        task.add_done_callback(self._going.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            setattr(request, _GONE, True)
            raise

    async def _whole(self, request: HttpRequest) -> Any:
        try:
            response = await self._get_response(request)
            body = (
                await abody_of(response, self._rules.answer_bytes_max)
                if _claim(request)
                else None
            )
        except BaseException:
            await shielded(sync_to_async(self._forget, thread_sensitive=True)(request))
            raise
        finish = sync_to_async(self._finish, thread_sensitive=True)
        return await shielded(finish(request, response, body))

    def _finish(self, request: HttpRequest, response: Any, body: bytes | None) -> Any:
        claimed = _claim(request)
        if claimed is None:
            return response
        try:
            status = response.status_code
            if self._rules.is_error(status) and getattr(request, _LOST, False):
                drive(self._recorder.release(claimed, untouched=False))
            elif self._rules.is_error(status):
                said = told.Told(f"HTTP {status}", f"the view answered {status}")
                failure = getattr(request, _ERROR, said)
                drive(self._recorder.fail(claimed, failure.code, failure.message))
            else:
                drive(self._recorder.finish(claimed, status, lines_of(response), body))
        finally:
            self._leave(request)
            if getattr(request, _GONE, False):
                self._close()  # Django has closed this thread's, and been told to do it no more
        for name, value in answer.marks(claimed.attempt, replayed=False):
            response[name] = value
        return response

    def _forget(self, request: HttpRequest) -> None:
        """Nobody knows what its view has done."""
        claimed = _claim(request)
        if claimed is not None:
            drive(self._recorder.release(claimed, untouched=False))
            self._leave(request)

    def _leave(self, request: HttpRequest) -> None:
        delattr(request, _CLAIMED)
        self._beats.__exit__()

    async def _run(self, call: Call[T]) -> T:
        return self._commit(call)

    def _commit(self, call: Call[T]) -> T:
        """Run *call* in autocommit, on this thread's connection."""
        conn = connections[self._using]
        if conn.in_atomic_block:
            raise BadConfig(
                "IdempotencyMiddleware is inside atomic(), so nothing that it claims is committed"
            )
        try:
            return drive(answered(on(conn, call)))
        except Exception as error:
            ours = translated(told.cause(error))
            if ours is told.cause(error):
                raise
            raise ours from error

    def _close(self) -> None:
        connections[self._using].close()


def _claim(request: HttpRequest) -> Claimed | None:
    return getattr(request, _CLAIMED, None)


async def _sleep(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - stepped through by `drive`, in a thread of its own
