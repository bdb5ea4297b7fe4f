"""The client without await: httpx.Client, whose requests carry keys and are sent again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import httpx

from semel.edges.client import problem
from semel.edges.client.action import Action
from semel.edges.client.course import Course
from semel.edges.client.keys import KeyStore, MemoryKeys
from semel.edges.client.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Iterator


class Client(httpx.Client):
    """
    An httpx.Client. Every POST and PATCH carries a key of its own, kept over its tries.

    Use `action` for a key that is kept over calls and restarts.

    Args:
        keys: Where `action` keeps its keys; in memory unless given.
        patience: How often and how long to try.
        problems: Raise Problem for an application/problem+json; False returns it as any answer.
        options: Those of httpx.Client. A `timeout` bounds each wait of a try.

    Raises (of every request):
        Problem: the server refused, and would again.
        httpx.TransportError: no answer after all tries, or the request may not be sent again.
        BadKey: the request was given a key that is none.
    """

    def __init__(
        self,
        *,
        keys: KeyStore | None = None,
        patience: Patience | None = None,
        problems: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._keys = keys or MemoryKeys()
        self._patience = patience or Patience()
        self._problems = problems

    def action(self, name: str, action_id: str) -> Action:
        """
        What a user did: its key is kept until `done()`.

        Args:
            name: What it is, such as "pay".
            action_id: Which one, such as the order's number. The same again is the same action.
        """
        return Action(self, self._keys, name, action_id)

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """
        Send *request* until there is an answer that is to stay; all of httpx comes here.

        The body is held in memory, since it may be sent again. With `stream=True` the tries end
        when the answer's headers are there; a body that breaks later is the caller's.
        """
        stream = options.pop("stream", False)
        course = Course(request, self._patience)
        if course.may_repeat:
            request.read()
        while True:
            course.begin()
            try:
                response = self._once(request, course, stream=stream, **options)
            except httpx.TransportError as error:
                pause = course.after_error(error)
                if pause is None:
                    raise
            else:
                pause = course.after_answer(response)
                if pause is None:
                    return self._judged(response)
                response.close()
            time.sleep(pause)

    def _once(
        self, request: httpx.Request, course: Course, *, stream: bool, **options: Any
    ) -> httpx.Response:
        response = super().send(request, stream=True, **options)
        try:
            if not stream or response.is_error:
                bounded = _Bounded(cast("httpx.SyncByteStream", response.stream), course)
                response.stream = bounded
                response.read()
        except BaseException:
            response.close()
            raise
        return response

    def _judged(self, response: httpx.Response) -> httpx.Response:
        members = problem.read(response) if self._problems and response.is_error else None
        if members is not None:
            raise problem.raised(response, members)
        return response


class _Bounded(httpx.SyncByteStream):
    """A body that comes in drops ends with the deadline all the same."""

    def __init__(self, inner: httpx.SyncByteStream, course: Course) -> None:
        self._inner = inner
        self._course = course

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._inner:
            if not self._course.left:
                raise self._course.late()
            yield chunk

    def close(self) -> None:
        self._inner.close()
