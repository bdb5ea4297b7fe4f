"""
The ingress: POST /in/{project}/{source}, from a provider to a committed event.

Verify, then one transaction, then the answer; the verdict in it is final. What a channel
refuses leaves nothing behind, what it quarantines is kept and answered 200, and while the
database is away the sender is told when to come back. It never redirects: a client that follows
a redirect may turn POST into GET and lose the event.
"""

from __future__ import annotations

import ipaddress
import time
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from semel import log
from semel.edges import body, problem
from semel.edges.channel import Notification, Request, headers_of, quarantined
from semel.edges.channels import READERS
from semel.errors import (
    BadRequest,
    DatabaseUnreachable,
    Duplicate,
    KeyConflict,
    NotAuthentic,
    Quarantined,
    SchemaMismatch,
    SemelError,
    UnknownSource,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from starlette.requests import Request as Posted

    from semel.config import Settings, Source
    from semel.edges.acceptor import Acceptor
    from semel.model import Accepted

#: Told of each request to a known source: source, outcome, seconds.
Observe: TypeAlias = "Callable[[str, str, float], None]"

CLOCK_HEADER = "x-semel-test-clock"
#: A source's refusals are logged at most this often; the metrics count all of them.
REFUSAL_SECONDS = 10.0

#: Who sends these sits between a client and us, or is a browser: it speaks for somebody else.
_BETWEEN = frozenset(
    {
        "cf-connecting-ip",
        "forwarded",
        "origin",
        "sec-fetch-site",
        "true-client-ip",
        "via",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-original-url",
        "x-real-ip",
    }
)
_BETWEEN_PREFIX = "x-forwarded"

_SEEN = ("duplicate", "late", "reminder", "redelivery")


class Ingress:
    """The providers' door. It holds no state but when it last logged a refusal."""

    def __init__(self, settings: Settings, acceptor: Acceptor, observe: Observe) -> None:
        self._settings = settings
        self._acceptor = acceptor
        self._observe = observe
        self._told: dict[tuple[str, str], float] = {}

    def routes(self) -> list[Route]:
        """With and without a slash at the end: no redirect leads from one to the other."""
        paths = ("/in/{project}/{source}", "/in/{project}/{source}/")
        return [Route(path, self.post, methods=["POST"]) for path in paths]

    async def post(self, posted: Posted) -> Response:
        """Answer one delivery."""
        began = time.perf_counter()
        name = (posted.path_params["project"], posted.path_params["source"])
        source = self._settings.sources.get(name)
        refused = {"Semel-Verdict": "refused"}
        try:
            if source is None:
                raise UnknownSource(f"there is no source {name[1]!r} in project {name[0]!r}")
            raw = await body.whole(posted, self._settings.server)
            if raw is None:
                return Response(status_code=HTTPStatus.BAD_REQUEST)
            accepted = await self._accept(self._request(posted, raw), source)
            answer = respond(accepted)
            outcomes = [str(one.verdict) for one in accepted]
        except body.Unread as unread:
            headers = {**refused, "Connection": "close"}
            answer = problem.answer(unread.error, status=unread.status, headers=headers)
            outcomes = ["malformed"]
        except SemelError as error:
            self._log_refusal(error, name, posted)
            answer = problem.answer(error, headers=refused)
            outcomes = [_outcome(error)]
        if source is not None:
            for outcome in outcomes:
                self._observe(source.name, outcome, time.perf_counter() - began)
        return answer

    async def _accept(self, request: Request, source: Source) -> list[Accepted]:
        reading = READERS[source.channel](request, source)
        try:
            if isinstance(reading, Notification):
                return await self._acceptor.accept_alerts(
                    source,
                    reading,
                    body=request.body,
                    headers=headers_of(request, source),
                    now=request.now,
                )
            return await self._acceptor.accept(source.project, reading, now=request.now)
        except BadRequest as bad:
            # The database could not keep what the channel read. A caller of the api reads its
            # answers; a provider would send the same again, so the raw bytes are kept instead.
            if source.channel == "api":
                raise
            kept_raw = quarantined(request, source, str(bad))
            return await self._acceptor.accept(source.project, kept_raw, now=request.now)

    def _request(self, posted: Posted, raw: bytes) -> Request:
        headers = [
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in posted.headers.raw
        ]
        now = clock(posted) if self._settings.testing else None
        return Request(
            method=posted.method, headers=headers, body=raw, local=is_local(posted), now=now
        )

    def _log_refusal(self, error: SemelError, name: tuple[str, str], posted: Posted) -> None:
        if not isinstance(error, NotAuthentic | DatabaseUnreachable | SchemaMismatch):
            return
        now = time.monotonic()
        if now - self._told.get(name, -REFUSAL_SECONDS) >= REFUSAL_SECONDS:
            self._told[name] = now
            if isinstance(error, DatabaseUnreachable):
                log.event("database.lost", reason=str(error))
            elif isinstance(error, SchemaMismatch):
                log.event("schema.mismatched", reason=str(error))
            else:
                peer = posted.client.host if posted.client else None
                log.event(
                    "source.refused",
                    project=name[0],
                    source=name[1],
                    reason=str(error),
                    peer=peer,
                )


def respond(accepted: Sequence[Accepted]) -> Response:
    """
    The answer to a request whose events were accepted.

    201 if any is new, else 200; 422 for a single conflict. No answer has a member `method`.
    """
    verdicts = {"Semel-Verdict": ", ".join(one.verdict for one in accepted)}
    if len(accepted) == 1 and accepted[0].verdict == "conflict":
        conflict = KeyConflict(f"{accepted[0].reason}; its run is {accepted[0].run_id}")
        return problem.answer(conflict, headers=verdicts)
    is_new = any(one.verdict == "new" for one in accepted)
    events = [_event(one) for one in accepted]
    return JSONResponse(
        events[0] if len(events) == 1 else {"events": events},
        status_code=HTTPStatus.CREATED if is_new else HTTPStatus.OK,
        headers=verdicts,
    )


def is_local(posted: Posted) -> bool:
    """Whether a program on this machine sent it, without a proxy or a browser in between."""
    names = posted.headers.keys()
    if any(name in _BETWEEN or name.startswith(_BETWEEN_PREFIX) for name in names):
        return False
    try:
        return (
            posted.client is not None and ipaddress.ip_address(posted.client.host).is_loopback
        )
    except ValueError:
        return False


def clock(posted: Posted) -> datetime | None:
    """The test clock that a request brings, unix seconds with decimals."""
    told = posted.headers.get(CLOCK_HEADER)
    if told is None:
        return None
    try:
        return datetime.fromtimestamp(float(told), UTC)
    except (ValueError, OverflowError, OSError):
        raise BadRequest(f"{CLOCK_HEADER} is no unix time") from None


def _event(accepted: Accepted) -> dict[str, Any]:
    event: dict[str, Any] = {
        "run_id": str(accepted.run_id) if accepted.run_id else None,
        "event_id": str(accepted.event_id) if accepted.event_id else None,
        "duplicate": accepted.verdict in _SEEN,
    }
    if accepted.verdict in _SEEN:
        event["code"] = Duplicate.code
    elif accepted.verdict == "conflict":
        event["code"] = KeyConflict.code
    elif accepted.verdict == "quarantined":
        event |= {"code": Quarantined.code, "reason": accepted.reason}
    return event


def _outcome(error: SemelError) -> str:
    if isinstance(error, NotAuthentic):
        return "refused"
    return "failed" if error.http_status >= HTTPStatus.INTERNAL_SERVER_ERROR else "malformed"
