"""
The tools' door: POST /tool/{token} is the late answer of a tool to a call.

The token came with the call and is all that is asked for: 256 random bits, of which the database
keeps the hash. The first answer wins, whoever gives it: this one, the call's own, or its time. What
is unknown, altered or malformed gets one answer, which says nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from semel import log
from semel.core.approvals import Link
from semel.core.text import load
from semel.core.tools import tool_answer
from semel.edges import body, problem
from semel.edges.bucket import Buckets
from semel.edges.tools.server import SAID_CHARS_MAX, kept, said_of
from semel.errors import BadRequest, CallEnded, NoSuchCall, SemelError, TooLarge, TooOften

if TYPE_CHECKING:
    from starlette.requests import Request

    from semel.config import Settings
    from semel.edges.asker import Asker

#: As approval links that are not there.
UNKNOWN_BURST = 30
UNKNOWN_SECONDS = 2.0
HEADERS = {"Cache-Control": "no-store"}


class ToolDoor:
    """The route of /tool."""

    def __init__(self, settings: Settings, asker: Asker) -> None:
        self._asker = asker
        self._limits = settings.server
        self._unknown = Buckets(burst=UNKNOWN_BURST, seconds=UNKNOWN_SECONDS)

    def routes(self) -> list[Route]:
        """Whatever stands behind /tool/ is a token, and mostly none."""
        return [Route("/tool/{token:path}", self._answer, methods=["POST"])]

    async def _answer(self, request: Request) -> Response:
        try:
            return await self.take(request)
        except body.Unread as unread:
            return problem.answer(
                unread.error, status=unread.status, headers={**HEADERS, "Connection": "close"}
            )
        except SemelError as error:
            return problem.answer(error, headers=HEADERS)

    async def take(self, request: Request) -> Response:
        """Take the answer, if the call still wants one."""
        raw = await body.whole(request.scope, request.receive, self._limits)
        if raw is None:
            return Response(status_code=400)
        link = Link.read(request.path_params["token"])
        if link is None:
            return self._nothing(request)
        told = await self._asker.ask(tool_answer(link.project, link, answer_of(raw)))
        if told.outcome == "unknown":
            return self._nothing(request)
        log.event(
            "tool.answered",
            project=link.project,
            call=told.call_id,
            run=told.run_id,
            outcome=told.outcome,
        )
        if told.outcome == "already":
            raise CallEnded("the call has its answer, or nobody waits for one any more")
        await self._asker.wake(told.agent)
        sent = {"call_id": str(told.call_id), "run_id": str(told.run_id), "state": told.state}
        return JSONResponse(sent, headers=HEADERS)

    def _nothing(self, request: Request) -> Response:
        """The one answer to a token that is not there."""
        wait = self._unknown.spend(request.client.host if request.client else None)
        if not wait:
            return problem.answer(NoSuchCall("no call has this token"), headers=HEADERS)
        seconds = str(math.ceil(wait))
        often = TooOften(f"too many tokens that are not there; come back in {seconds} s")
        return problem.answer(often, headers={**HEADERS, "Retry-After": seconds})


def answer_of(raw: bytes) -> dict[str, Any]:
    """
    The answer that a tool posts: {"result": any JSON} or {"error": text or {"message": text}}.

    Raises:
        BadRequest: it is neither, or both. TooLarge: the result is above what is kept.
    """
    told = load(raw)
    if not isinstance(told, dict) or len(told) != 1 or not told.keys() <= {"result", "error"}:
        raise BadRequest(
            'an answer is {"result": ...} or {"error": ...}, and nothing beside it'
        )
    if "result" in told:
        answer = kept(told["result"])
        if "error" in answer:
            raise TooLarge(answer["error"]["message"])
        return answer
    error: Any = told["error"]
    said = error.get("message") if isinstance(error, dict) else error
    if not isinstance(said, str) or not said:
        raise BadRequest('an error is a text, or {"message": text}')
    return {"error": {"message": said_of(said)[:SAID_CHARS_MAX]}}
