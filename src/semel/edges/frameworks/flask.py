"""
once: a decorator of Flask views, atomic on the connection that the view writes with.

    @app.post("/payments")
    @login_required
    @once(project="shop", connection=lambda: db.session, actor=lambda: current_user.id)
    def pay(): ...

What stands above it has run before a replay is answered, so authorisation stands above. The
operation is `g.semel`; errors go on to the application's own handlers.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast
from urllib.parse import quote

from flask import Response, current_app, g, make_response, request
from werkzeug.exceptions import HTTPException

from semel.edges.frameworks.exchange import again
from semel.edges.once import Once
from semel.edges.rest import answer, key, refusal
from semel.edges.rest.asked import Asked
from semel.edges.rest.conclusion import conclude
from semel.edges.rest.rules import METHODS, Options, Rules
from semel.errors import SemelError, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable

V = TypeVar("V", bound="Callable[..., Any]")

#: How often a view whose transaction lost a race is executed, all in all.
TRIES = 3


def once(
    *,
    project: str,
    connection: Callable[[], Any],
    actor: Callable[[], Any],
    **rules: Unpack[Options],
) -> Callable[[V], V]:
    """
    Execute POST and PATCH requests of a view once.

    Args:
        project: The ledger.
        connection: Finds the connection or session that the view writes with, in the request.
        actor: Finds who asks: an id or None.
        rules: See `semel.edges.rest.rules.Rules`; a key is required by default.

    Raises:
        BadConfig: an impossible rule.
    """
    rules.setdefault("require_key", True)
    door = _Door(Rules(project=project, **rules), connection, actor)

    def decorate(view: V) -> V:
        @wraps(view)
        def execute(*args: Any, **kwargs: Any) -> Any:
            return door.run(lambda: current_app.ensure_sync(view)(*args, **kwargs))

        return cast("V", execute)

    return decorate


class _Door:
    """One decorated view's rules."""

    def __init__(
        self, rules: Rules, connection: Callable[[], Any], actor: Callable[[], Any]
    ) -> None:
        self._rules = rules
        self._connection = connection
        self._actor = actor

    def run(self, view: Callable[[], Any]) -> Any:
        if request.method not in METHODS:
            return view()
        try:
            told = _asked(self._rules.body_bytes_max)
            found = key.find(self._rules, told.method, told.headers)
            settings = self._rules.once(told, self._actor(), found)
            for _ in range(TRIES - 1):
                try:
                    return self._execute(view, settings)
                except again(found):
                    _rewind()
            return self._execute(view, settings)
        except SemelError as error:
            return made(*refusal.answer(error))

    def _execute(self, view: Callable[[], Any], settings: dict[str, Any]) -> Response:
        block = Once(self._connection(), **settings)
        g.semel = op = block.operation
        response: Any = None
        own = None
        with block:
            if op.replay is None:
                response = self._called(view)
                body = body_of(response, self._rules.answer_bytes_max)
                own = op.replied
                lines = list(response.headers.items())
                conclude(self._rules, op, response.status_code, lines, body)
        marks = answer.marks(op.attempts, replayed=op.replay is not None)
        reply = op.replay or own
        if reply is not None:
            return made(reply.status, [*reply.headers, *marks], reply.body)
        response.headers.extend(marks)
        return response  # type: ignore[no-any-return]

    def _called(self, view: Callable[[], Any]) -> Response:
        try:
            return make_response(view())
        except HTTPException as error:
            if error.code not in self._rules.outcomes:
                raise
            # An outcome to be kept: as the application's own handlers say it.
            return make_response(current_app.handle_user_exception(error))


def body_of(response: Response, limit: int) -> bytes | None:
    """
    The body of *response*, which stays fit to be sent; None where it passes *limit* bytes.

    Raises:
        Exception: what a stream raises while it is read.
    """
    response.direct_passthrough = False
    if not response.is_streamed:
        return response.get_data()
    pieces: list[bytes] = []
    rest = response.iter_encoded()
    for piece in rest:
        pieces.append(piece)
        if sum(map(len, pieces)) > limit:
            response.response = _chained(pieces, rest)
            return None
    response.response = pieces
    return b"".join(pieces)


def made(status: int, lines: list[tuple[str, str]], body: bytes) -> Response:
    """A response of just these."""
    response = Response(body, status)
    response.headers.clear()
    response.headers.extend(lines)
    if answer.has_body(status):
        response.headers["Content-Length"] = str(len(body))
    return response


def _asked(limit: int) -> Asked:
    """
    The request, its body read.

    Raises:
        TooLarge: more than *limit* bytes.
    """
    if (request.content_length or 0) > limit:
        raise TooLarge(f"the body passes {limit} bytes")
    body = request.get_data(cache=True)
    if len(body) > limit:
        raise TooLarge(f"the body passes {limit} bytes")
    return Asked(
        method=request.method,
        path=quote(f"{request.root_path}{request.path}", safe="/:@!$&'()*+,;=~%"),
        query=request.query_string.decode("latin-1"),
        headers=tuple((name.lower(), value) for name, value in request.headers.items()),
        body=body,
        params={name: str(value) for name, value in (request.view_args or {}).items()},
    )


def _rewind() -> None:
    for files in request.files.listvalues():
        for file in files:
            file.stream.seek(0)


def _chained(pieces: list[bytes], rest: Any) -> Any:
    yield from pieces
    yield from rest
