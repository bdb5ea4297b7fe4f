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

import math
import time
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from semel import log
from semel.edges import body, form, problem, routing
from semel.edges.address import is_local
from semel.edges.channel import Notification, Reply, Request, headers_of, ignored, quarantined
from semel.edges.channels import METHODS, READERS
from semel.edges.cut_lists import CUT_LISTS
from semel.edges.in_time import ANSWER_SECONDS_MAX
from semel.edges.receipt import replied, respond
from semel.edges.spool.record import Record, named_events
from semel.edges.threshold import thresholds
from semel.errors import (
    AddressRefused,
    BadRequest,
    DatabaseUnreachable,
    NotAuthentic,
    SchemaMismatch,
    SemelError,
    SourceTooOften,
    UnknownSource,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import Receive, Scope, Send

    from semel.config import Settings, Source
    from semel.edges.acceptor import Acceptor
    from semel.edges.spool.door import Door
    from semel.edges.spool.record import Part
    from semel.model import Accepted, Offer

#: Told of each event of a request to a known source: source, outcome, seconds.
Observe: TypeAlias = "Callable[[Source, str, float], None]"
#: Told which secret of a source proved a request, counted from 1.
ObserveSecret: TypeAlias = "Callable[[Source, int], None]"

CLOCK_HEADER = "x-semel-test-clock"
#: A source's refusals are logged at most this often; the metrics count all of them.
REFUSAL_SECONDS = 10.0

_REFUSED = {"Semel-Verdict": "refused"}


class Ingress:
    """The providers' door. It holds no state but its rates, and when it last logged a refusal."""

    def __init__(
        self,
        settings: Settings,
        acceptor: Acceptor,
        observe: Observe,
        observe_secret: ObserveSecret,
        door: Door | None = None,
    ) -> None:
        self._settings = settings
        self._acceptor = acceptor
        self._observe = observe
        self._observe_secret = observe_secret
        self._door = door  # None: nothing is spooled
        self._thresholds = thresholds(settings.sources, settings.server)
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
            if (limits := self._thresholds.get(name)) is not None:
                limits.admit(scope)
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
            answer = problem.answer(error, headers={**_REFUSED, **_later(error)})
            outcomes.append(_outcome(error))
        if source is not None:
            for outcome in outcomes:
                self._observe(source, outcome, time.perf_counter() - began)
        await answer(scope, receive, send)

    async def _judge(self, request: Request, source: Source) -> tuple[Response, list[str]]:
        """What to answer, once it is committed, and the verdicts in it."""
        reading = READERS[source.channel](request, source)
        reply = reading if isinstance(reading, Reply) else None
        if isinstance(reading, Reply):
            if not reading.offers:
                return replied(reading, "ignored"), ["ignored"]
            reading = list(reading.offers)
        if (limits := self._thresholds.get((source.project, source.name))) is not None:
            limits.spend()
        accepted = await self._accept(request, source, reading)
        verdicts: list[str] = [one.verdict for one in accepted]
        if reply is not None and reply.body is not None:
            return replied(reply, ", ".join(verdicts)), verdicts
        return respond(
            accepted,
            is_read=source.channel == "api",
            status=reply.status if reply is not None else None,
        ), verdicts

    async def _accept(
        self, request: Request, source: Source, reading: list[Offer] | Notification
    ) -> list[Accepted]:
        parts = _parts(request, source, reading)
        if self._door is None or not source.spool:
            return await self._straight(
                self._acceptor, request, source, parts, within=ANSWER_SECONDS_MAX
            )
        parts = [named_events(part) if isinstance(part, list) else part for part in parts]
        record = Record(
            at=request.at,
            project=source.project,
            source=source.name,
            channel=source.channel,
            parts=parts,
            body=request.body,
            headers=headers_of(request, source),
        )
        straight = self._straight(
            self._door.acceptor, request, source, parts, within=self._door.wait
        )
        return await self._door.enter(record, straight)

    async def _straight(
        self,
        acceptor: Acceptor,
        request: Request,
        source: Source,
        parts: Sequence[Part],
        *,
        within: float,
    ) -> list[Accepted]:
        """
        Accept *parts* of one arrival, one after the other, each in a transaction of its own.

        When a later one fails, all of it comes again; what was accepted is known by then.
        """
        accepted: list[Accepted] = []
        try:
            for part in parts:
                if isinstance(part, list):
                    accepted += await acceptor.accept(
                        source.project, part, now=request.now, within=within
                    )
                    continue
                own, notification = part
                accepted += await acceptor.accept_alerts(
                    own,
                    notification,
                    body=request.body,
                    headers=headers_of(request, source),
                    now=request.now,
                    within=within,
                )
        except BadRequest as bad:
            # The database could not keep what the channel read. A caller of the api reads its
            # answers; a provider would send the same again, so the raw bytes are kept instead.
            if source.channel == "api":
                raise
            kept_raw = quarantined(request, source, str(bad))
            return await acceptor.accept(
                source.project, kept_raw, now=request.now, within=within
            )
        return accepted

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
            proved=lambda nth: self._observe_secret(source, nth),
        )

    def _log_refusal(self, error: SemelError, name: tuple[str, str], scope: Scope) -> None:
        if not isinstance(
            error, NotAuthentic | AddressRefused | DatabaseUnreachable | SchemaMismatch
        ):
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


def _parts(request: Request, source: Source, reading: list[Offer] | Notification) -> list[Part]:
    """What is accepted together of one arrival: its events, or a part of it for each agent."""
    if not isinstance(reading, Notification):
        return [routing.routed(reading, source)]
    CUT_LISTS.note(source, reading.envelope)
    parts: list[Part] = []
    routed, unrouted = routing.parted(reading, source)
    parts += routed
    offers = [ignored(request, source, unrouted)] if unrouted else []
    if reading.unusable and not routed:
        offers += quarantined(request, source, reading.unusable)
    return [*parts, offers] if offers else parts


def named(path: str) -> tuple[str, str] | None:
    """Project and source in the *path* of an ingress; None if it is none."""
    parts = path.split("/")
    if parts[-1] == "":  # with a slash at the end
        parts.pop()
    match parts:
        case ["", "in", project, source] if project and source:
            return project, source
    return None


def _not_allowed(source: Source) -> HTTPException:
    allowed = sorted({"POST"} | METHODS.get(source.channel, frozenset()))
    return HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": ", ".join(allowed)})


def clock(told: str | None) -> datetime | None:
    """The test clock that a request's header tells, unix seconds with decimals."""
    if told is None:
        return None
    try:
        return datetime.fromtimestamp(float(told), UTC)
    except (ValueError, OverflowError, OSError):
        raise BadRequest(f"{CLOCK_HEADER} is no unix time") from None


def _later(error: SemelError) -> dict[str, str]:
    """When to come back, of a source that takes no more for now."""
    if isinstance(error, SourceTooOften):
        return {"Retry-After": str(math.ceil(error.wait))}
    return {}


def _outcome(error: SemelError) -> str:
    if isinstance(error, NotAuthentic):
        return "refused"
    if isinstance(error, AddressRefused):
        return "forbidden"
    if isinstance(error, SourceTooOften):
        return "limited"
    return "failed" if error.http_status >= HTTPStatus.INTERNAL_SERVER_ERROR else "malformed"
