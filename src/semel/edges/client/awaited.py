"""The client with await: httpx.AsyncClient, whose requests carry keys and are sent again."""

from __future__ import annotations

from typing import Any

import anyio
import httpx

from semel.edges.client import problem
from semel.edges.client.action import AsyncAction
from semel.edges.client.course import Course
from semel.edges.client.keys import KeyStore, MemoryKeys
from semel.edges.client.patience import Patience


class AsyncClient(httpx.AsyncClient):
    """
    An httpx.AsyncClient; the rest is as for `Client`, argument for argument.

    Cancelled, it leaves the key kept: the same action, or the same request, goes on with it.
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

    def action(self, name: str, action_id: str) -> AsyncAction:
        """As `Client.action`."""
        return AsyncAction(self, self._keys, name, action_id)

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """As `Client.send`."""
        stream = options.pop("stream", False)
        course = Course(request, self._patience)
        if course.may_repeat:
            await request.aread()
        while True:
            course.begin()
            try:
                response = await self._once(request, course, stream=stream, **options)
            except httpx.TransportError as error:
                pause = course.after_error(error)
                if pause is None:
                    raise
            else:
                pause = course.after_answer(response)
                if pause is None:
                    return self._judged(response)
                await response.aclose()
            await anyio.sleep(pause)

    async def _once(
        self, request: httpx.Request, course: Course, *, stream: bool, **options: Any
    ) -> httpx.Response:
        with anyio.move_on_after(course.left):
            response = await super().send(request, stream=True, **options)
            try:
                if not stream or response.is_error:
                    await response.aread()
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await response.aclose()
                raise
            return response
        raise course.late()

    def _judged(self, response: httpx.Response) -> httpx.Response:
        members = problem.read(response) if self._problems and response.is_error else None
        if members is not None:
            raise problem.raised(response, members)
        return response
