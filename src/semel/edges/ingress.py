"""
The ingress: POST /in/{project}/{source}, from a provider to a committed event.

Verify, then one transaction, then the answer; the verdict in it is final. What a channel
refuses leaves nothing behind, what it quarantines is kept and answered 200, and while the
database is away the sender is told when to come back. It never redirects: a client that follows
a redirect may turn POST into GET and lose the event.

It is an ASGI application of its own and makes no object of a request but the channel's: this is
the one door whose price each event pays.
"""

from __future__ import annotations

import ipaddress
import json
import time
from datetime import UTC, datetime
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from semel import log
from semel.edges import body, form, problem
from semel.edges.channel import Notification, Reply, Request, headers_of, quarantined
from semel.edges.channels import METHODS, READERS
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

    from starlette.types import Receive, Scope, Send

    from semel.config import Settings, Source
    from semel.edges.acceptor import Acceptor
    from semel.model import Accepted, Offer

#: Told of each request to a known source: source, outcome, seconds.
Observe: TypeAlias = "Callable[[str, str, float], None]"

CLOCK_HEADER = "x-semel-test-clock"
#: Hosts of senders that are remembered to be this machine, or not.
HOSTS_MAX = 1024
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

_REFUSED = {"Semel-Verdict": "refused"}
_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
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
        return [
            Route(path, self) for path in paths
        ]  # of any method: a source's channel says which

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one delivery."""
        began = time.perf_counter()
        name = named(scope["path"]) or ("", "")
        source = self._settings.sources.get(name)
        outcomes: list[str] = []
        try:
            if source is None:
                raise UnknownSource(f"there is no source {name[1]!r} in project {name[0]!r}")
            if scope["method"] != "POST" and scope["method"] not in METHODS.get(
                source.channel, ()
            ):
                raise _not_allowed(source)
            raw = await body.whole(scope, receive, self._settings.server)
            if raw is None:
                answer = Response(status_code=HTTPStatus.BAD_REQUEST)
            else:
                answer, verdicts = await self._judge(self._request(scope, raw, source), source)
                outcomes += verdicts
        except body.Unread as unread:
            headers = {**_REFUSED, "Connection": "close"}
            answer = problem.answer(unread.error, status=unread.status, headers=headers)
            outcomes.append("malformed")
        except SemelError as error:
            self._log_refusal(error, name, scope)
            answer = problem.answer(error, headers=_REFUSED)
            outcomes.append(_outcome(error))
        if source is not None:
            for outcome in outcomes:
                self._observe(source.name, outcome, time.perf_counter() - began)
        await answer(scope, receive, send)

    async def _judge(self, request: Request, source: Source) -> tuple[Response, list[str]]:
        """What to answer, once it is committed, and the verdicts in it."""
        reading = READERS[source.channel](request, source)
        reply = reading if isinstance(reading, Reply) else None
        if isinstance(reading, Reply):
            if not reading.offers:
                return _replied(reading, "ignored"), ["ignored"]
            reading = list(reading.offers)
        accepted = await self._accept(request, source, reading)
        verdicts: list[str] = [one.verdict for one in accepted]
        if reply is not None and reply.body is not None:
            return _replied(reply, ", ".join(verdicts)), verdicts
        return respond(
            accepted,
            is_read=source.channel == "api",
            status=reply.status if reply is not None else None,
        ), verdicts

    async def _accept(
        self, request: Request, source: Source, reading: list[Offer] | Notification
    ) -> list[Accepted]:
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

    def _request(self, scope: Scope, raw: bytes, source: Source) -> Request:
        headers = [
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in scope["headers"]
        ]
        now = clock(dict(headers).get(CLOCK_HEADER)) if self._settings.testing else None
        is_open = source.authenticate == "none" and not self._settings.server.is_loopback
        if scope["method"] == "GET":  # what a form has in its body, this has in its query
            raw = scope["query_string"]
            headers = [each for each in headers if each[0] != "content-type"]
            headers.append(("content-type", form.MEDIA))
        return Request(
            method=scope["method"],
            headers=headers,
            body=raw,
            local=is_open or is_local(scope.get("client"), headers),
            now=now,
            query=scope.get("query_string", b""),
        )

    def _log_refusal(self, error: SemelError, name: tuple[str, str], scope: Scope) -> None:
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
                log.event(
                    "source.refused",
                    project=name[0],
                    source=name[1],
                    reason=str(error),
                    peer=scope["client"][0] if scope.get("client") else None,
                )


def named(path: str) -> tuple[str, str] | None:
    """Project and source in the *path* of an ingress; None if it is none."""
    parts = path.split("/")
    if parts[-1] == "":  # with a slash at the end
        parts.pop()
    match parts:
        case ["", "in", project, source] if project and source:
            return project, source
    return None


class _Answer(Response):
    """JSON that is there already."""

    def __init__(self, told: object, *, status: int, verdicts: str) -> None:
        self.status_code = status
        self.background = None
        self.body = _ENCODE(told).encode()
        self.raw_headers = [
            (b"semel-verdict", verdicts.encode()),
            (b"content-length", str(len(self.body)).encode()),
            (b"content-type", b"application/json"),
        ]


def respond(
    accepted: Sequence[Accepted], *, is_read: bool = True, status: int | None = None
) -> Response:
    """
    The answer to a request whose events were accepted. It has no member `method`.

    Args:
        accepted: What became of them.
        is_read: The caller reads it and can mend what it sent, so a single conflict is 422. A
            provider would send the same again.
        status: Where the provider wants that; else 201 if any is new, or 200.
    """
    verdicts = ", ".join([one.verdict for one in accepted])
    if is_read and len(accepted) == 1 and accepted[0].verdict == "conflict":
        conflict = KeyConflict(f"{accepted[0].reason}; its run is {accepted[0].run_id}")
        return problem.answer(conflict, headers={"Semel-Verdict": verdicts})
    is_new = any(one.verdict == "new" for one in accepted)
    events = [_event(one) for one in accepted]
    return _Answer(
        events[0] if len(events) == 1 else {"events": events},
        status=status or (HTTPStatus.CREATED if is_new else HTTPStatus.OK),
        verdicts=verdicts,
    )


def _replied(reply: Reply, verdicts: str) -> Response:
    headers = {"Semel-Verdict": verdicts, **dict(reply.headers)}
    if reply.media is not None:
        headers["X-Content-Type-Options"] = "nosniff"
    return Response(reply.body, reply.status, headers=headers, media_type=reply.media)


def _not_allowed(source: Source) -> HTTPException:
    allowed = sorted({"POST"} | METHODS.get(source.channel, frozenset()))
    return HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": ", ".join(allowed)})


def is_local(client: tuple[str, int] | None, headers: Sequence[tuple[str, str]]) -> bool:
    """Whether a program on this machine sent it, without a proxy or a browser in between."""
    if client is None or not _is_loopback(client[0]):
        return False
    return not any(name in _BETWEEN or name.startswith(_BETWEEN_PREFIX) for name, _ in headers)


@lru_cache(maxsize=HOSTS_MAX)
def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def clock(told: str | None) -> datetime | None:
    """The test clock that a request's header tells, unix seconds with decimals."""
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
