"""
OnceRoute: the route that executes what depends on `Once`, and answers after the commit.

It buffers the body, so that a request that lost a race is begun anew with all that it depends on;
it stands in front of the handler, behind all of its dependencies and the validation; and it reads
the response before FastAPI sends it.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any

from fastapi import Depends
from fastapi.exception_handlers import http_exception_handler
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request  # noqa: TC002 - FastAPI reads it at run time
from starlette.responses import StreamingResponse

from semel.edges import idempotency_key
from semel.edges.frameworks.asgi import TRIES, refuse
from semel.edges.frameworks.asgi import lines_of as request_lines
from semel.edges.frameworks.exchange import AGAIN
from semel.edges.frameworks.fastapi import BODY, WORK, Once
from semel.edges.frameworks.messages import whole
from semel.edges.frameworks.responses import body_of, lines_of, made, mark, replied
from semel.edges.rest import refusal
from semel.edges.rest.rules import BODY_BYTES_MAX, METHODS
from semel.errors import BadConfig, SemelError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from fastapi.dependencies.models import Dependant
    from starlette.responses import Response
    from starlette.types import Message, Receive, Scope, Send

    from semel.edges.frameworks.work import Work

#: The parameter that a handler is given beside its own.
_REQUEST = "semel_request"


class OnceRoute(APIRoute):
    """
    A route whose operations are executed once; without `Once` it is like any other.

    Raises:
        BadConfig: it depends on Once and is declared to stream, so its answer could not be kept.
    """

    commits_before_it_answers = True

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _executed(endpoint), **options)
        self._limits = [once.rules.body_bytes_max for once in _found(self.dependant)]
        if self._limits and (_streams(endpoint) or _declares_stream(self.response_class)):
            raise BadConfig(
                f"{path} streams its answer, which cannot be kept before it is sent: return it"
                " whole, or do the work under Once on a route of its own"
            )

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; one that lost a race is begun anew, with all that it depends on."""
        if scope["method"] not in METHODS or not _has_key(scope):
            await super().handle(scope, receive, send)
            return
        try:
            body = await whole(scope, receive, max(self._limits, default=BODY_BYTES_MAX))
        except SemelError as error:
            await refuse(send, error)
            return
        if body is None:
            return
        scope[BODY] = body
        for _ in range(TRIES - 1):
            try:
                await super().handle(scope, _repeated(body, receive), send)
            except _Again:
                scope.pop(WORK, None)
            else:
                return
        try:
            await super().handle(scope, _repeated(body, receive), send)
        except _Again as again:
            await refuse(send, again.error)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's own, and behind it the commit."""
        original = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await _finished(request, original)
            except BadConfig:
                raise  # the program's own fault, for its log
            except SemelError as error:
                # Without a key it was not read before; without `Once` it is not ours to repeat.
                if isinstance(error, AGAIN) and {WORK, BODY} <= request.scope.keys():
                    raise _Again(error) from error
                return made(*refusal.answer(error))

        return handler


class _Again(Exception):
    """The request is to be begun anew; *error* is why."""

    def __init__(self, error: SemelError) -> None:
        super().__init__(str(error))
        self.error = error


def _executed(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """*endpoint*, not called where there is an answer already."""
    if _streams(endpoint) or hasattr(endpoint, "semel_executed"):
        return endpoint
    sync = not inspect.iscoroutinefunction(inspect.unwrap(endpoint))

    @wraps(endpoint)
    async def execute(**values: Any) -> Any:
        request: Request = values.pop(_REQUEST)
        work: Work | None = request.scope.get(WORK)
        if work is not None:
            reply = await work.begin()
            if reply is not None:
                return replied(reply, work.op.attempts, replayed=True)
        if sync:
            return await run_in_threadpool(endpoint, **values)
        return await endpoint(**values)

    told = inspect.signature(endpoint)
    asks = [
        *told.parameters.values(),
        inspect.Parameter(_REQUEST, inspect.Parameter.KEYWORD_ONLY, default=Depends(_request)),
    ]
    asks.sort(key=lambda parameter: parameter.kind)
    made_: Any = execute
    made_.__signature__ = told.replace(parameters=asks)
    made_.semel_executed = True
    return execute


async def _request(request: Request) -> Request:
    """A dependency, since FastAPI hands a function no more than one request."""
    return request


async def _finished(
    request: Request, original: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """What *original* answers, committed; or what it raises, recorded."""
    try:
        response = await original(request)
        work: Work | None = request.scope.get(WORK)
        if work is None or not work.open:
            return response
        body = await body_of(response, work.rules.answer_bytes_max)
    except BaseException as error:
        work = request.scope.get(WORK)
        if work is None or not work.open:
            raise
        if not (isinstance(error, HTTPException) and error.status_code in work.rules.outcomes):
            await work.end(error)
            raise
        response = await _rendered(request, error)
        body = await body_of(response, work.rules.answer_bytes_max)
    other = await work.conclude(response.status_code, lines_of(response), body)
    attempts = work.op.attempts
    if other is not None:
        told = replied(other, attempts, replayed=work.op.replay is not None)
        told.background = response.background
        return told
    mark(response, attempts)
    return response


async def _rendered(request: Request, error: HTTPException) -> Response:
    """What the application's own handlers make of *error*, an outcome that is to be kept."""
    kinds, statuses = request.scope.get("starlette.exception_handlers", ({}, {}))
    render: Any = statuses.get(error.status_code) or next(
        (kinds[kind] for kind in type(error).__mro__ if kind in kinds), http_exception_handler
    )
    if inspect.iscoroutinefunction(render):
        rendered: Response = await render(request, error)
    else:
        rendered = await run_in_threadpool(render, request, error)
    return rendered


def _found(dependant: Dependant) -> Iterator[Once]:
    if isinstance(dependant.call, Once):
        yield dependant.call
    for below in dependant.dependencies:
        yield from _found(below)


def _streams(endpoint: Callable[..., Any]) -> bool:
    plain = inspect.unwrap(endpoint)
    return inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)


def _declares_stream(response_class: Any) -> bool:
    declared = getattr(response_class, "value", response_class)
    return isinstance(declared, type) and issubclass(declared, StreamingResponse)


def _has_key(scope: Scope) -> bool:
    return any(name in idempotency_key.NAMES for name, _ in request_lines(scope))


def _repeated(body: bytes, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def repeat() -> Message:
        return first.pop() if first else await receive()

    return repeat
