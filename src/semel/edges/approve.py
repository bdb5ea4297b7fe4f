"""
The approval door: GET /approve/{token} shows what a person is asked, POST decides it.

Who holds the link is who was asked; SQL decides whether it still counts, by the database's clock.
A GET or HEAD never decides and writes nothing, whoever follows the link. What is unknown, altered,
malformed or void gets one answer, which says nothing. The token is a secret: it stands in no log
and on no page, and nothing here redirects.

A browser's POST must come from the page itself: by Sec-Fetch-Site, or else by Origin. A program
sends neither and is taken at its word, since it knows the token.
"""

from __future__ import annotations

import math
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from semel import log
from semel.core.approvals import Link, approval_decide, approval_read
from semel.edges import approve_page, ballot, body, problem
from semel.edges.bucket import Buckets
from semel.errors import (
    ApprovalDecided,
    ApprovalExpired,
    Forbidden,
    NoSuchApproval,
    SemelError,
    TooOften,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from semel.config import Settings
    from semel.core.approvals import Approval, Decided, Decision
    from semel.edges.asker import Asker
    from semel.edges.ballot import Ballot

BODY_BYTES_MAX = 16 * 1024
USER_AGENT_CHARS_MAX = 300
#: Links that are not there: so many at once from one address, then one in so many seconds. Others
#: may share the address, a proxy's say, so a link that is there is never refused for it.
UNKNOWN_BURST = 30
UNKNOWN_SECONDS = 2.0


class Approve:
    """The routes of /approve."""

    def __init__(self, settings: Settings, asker: Asker) -> None:
        self._asker = asker
        self._limits = replace(
            settings.server, body_bytes_max=min(BODY_BYTES_MAX, settings.server.body_bytes_max)
        )
        self._unknown = Buckets(burst=UNKNOWN_BURST, seconds=UNKNOWN_SECONDS)

    def routes(self) -> list[Route]:
        """Whatever stands behind /approve/ is a token, and mostly none."""
        return [Route("/approve/{token:path}", self._answer, methods=["GET", "POST"])]

    async def _answer(self, request: Request) -> Response:
        try:
            if request.method == "POST":
                return await self.decide(request)
            return await self.show(request)
        except body.Unread as unread:
            return _refusal(request, unread.error, unread.status, {"Connection": "close"})
        except SemelError as error:
            return _refusal(request, error)

    async def show(self, request: Request) -> Response:
        """What the link asks, or what became of it."""
        link = Link.read(request.path_params["token"])
        asked = await self._read(link) if link else None
        if asked is None or asked.state == "VOID":
            return self._nothing(request)
        if asked.state == "EXPIRED":
            raise ApprovalExpired(_expired(asked))
        if _wants_json(request):
            return JSONResponse(_shown(asked), headers=approve_page.HEADERS)
        return HTMLResponse(approve_page.question(asked), headers=approve_page.HEADERS)

    async def decide(self, request: Request) -> Response:
        """Decide as the one whom the link was sent to."""
        _require_own_page(request)
        raw = await body.whole(request.scope, request.receive, self._limits)
        if raw is None:
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        vote = ballot.read(request.headers.get("content-type", ""), raw)
        link = Link.read(request.path_params["token"])
        if link is None:
            return self._nothing(request)
        decided = await self._asker.ask(
            approval_decide(
                link.project,
                vote.decision,
                via="link",
                link=link,
                reason=vote.reason,
                address=request.client.host if request.client else None,
                user_agent=user_agent(request),
                digest=vote.digest,
            )
        )
        if decided.outcome in {"unknown", "void"}:
            return self._nothing(request)
        if decided.outcome == "won":
            await self._asker.wake(decided.agent)
        log_decision(link.project, decided, vote.decision, "link")
        return await self._told(request, link, decided, vote)

    async def _told(
        self, request: Request, link: Link, decided: Decided, vote: Ballot
    ) -> Response:
        """What became of a decision of who holds a recorded link."""
        asked = await self._read(link)
        if asked is None:
            return self._nothing(request)
        match decided.outcome:
            case "expired":
                raise ApprovalExpired(_expired(asked))
            case "refused":
                raise Forbidden(
                    "who asked for it, or is not among its approvers, cannot decide it"
                )
            case "already":
                error = ApprovalDecided(approve_page.outcome(asked))
                return _refusal(request, error, more=_recorded(asked))
            case _:
                pass
        if _wants_json(request):
            sent = {**_shown(asked), "outcome": decided.outcome}
            # A vote that waits for others can only be an approval.
            sent["decision"] = "approve" if decided.outcome == "voted" else vote.decision
            return JSONResponse(sent, headers=approve_page.HEADERS)
        if decided.outcome == "voted":
            said = (
                f"{asked.approvals} of {asked.need} approvals so far: others are still asked."
            )
            page = approve_page.message("Your approval is recorded", asked.title, said)
        else:
            title = "Approved" if asked.state == "APPROVED" else "Rejected"
            said = f"{approve_page.outcome(asked)}. The run goes on."
            page = approve_page.message(title, asked.title, said)
        return HTMLResponse(page, headers=approve_page.HEADERS)

    async def _read(self, link: Link) -> Approval | None:
        return await self._asker.ask(approval_read(link.project, link=link))

    def _nothing(self, request: Request) -> Response:
        """The one answer to a link that is not there, or no longer."""
        wait = self._unknown.spend(request.client.host if request.client else None)
        if not wait:
            return _refusal(request, NoSuchApproval("there is no such approval, or no longer"))
        seconds = str(math.ceil(wait))
        error = TooOften(f"too many links that are not there; come back in {seconds} s")
        return _refusal(request, error, headers={"Retry-After": seconds})


def log_decision(project: str, decided: Decided, decision: Decision, via: str) -> None:
    """Log a decision, also one that came too late."""
    log.event(
        "approval.decided",
        project=project,
        approval=decided.approval_id,
        run=decided.run_id,
        decision=decision,
        outcome=decided.outcome,
        state=decided.state,
        via=via,
    )


def _require_own_page(request: Request) -> None:
    """
    Refuse what another page has a browser send.

    Source: Fetch Metadata Request Headers, 2.4 (Sec-Fetch-Site); Fetch, 3.2 (Origin).
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        own = site in {"same-origin", "none"}
    elif origin is not None:
        own = _host(origin) == request.headers.get("host", "").lower() != ""
    else:
        own = True
    if not own:
        raise Forbidden("this came from another page: open the link itself and decide there")


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def user_agent(request: Request) -> str | None:
    """The program that asks, as it calls itself: one line, cut."""
    told = request.headers.get("user-agent", "")[:USER_AGENT_CHARS_MAX]
    return "".join(char if char.isprintable() else "?" for char in told) or None


def _wants_json(request: Request) -> bool:
    accept = request.headers.get("accept", "").lower()
    if "text/html" in accept or "json" in accept:
        return "text/html" not in accept
    return "json" in request.headers.get("content-type", "").lower()


def _shown(asked: Approval) -> dict[str, Any]:
    """The question as JSON."""
    return {
        "approval_id": str(asked.approval_id),
        "run_id": str(asked.run_id),
        "project_id": asked.project,
        "agent": asked.agent,
        "title": asked.title,
        "action": asked.action,
        "digest": asked.digest,
        "need": asked.need,
        "approvals": asked.approvals,
        "requester": asked.requester,
        "recipient": asked.recipient,
        "created_at": asked.created_at.isoformat(),
        "expires_at": asked.expires_at.isoformat(),
        "seconds_left": max(0.0, asked.seconds_left) if asked.state == "PENDING" else None,
        **_recorded(asked),
    }


def _recorded(asked: Approval) -> dict[str, Any]:
    return {
        "state": asked.state,
        "decided_at": asked.decided_at.isoformat() if asked.decided_at else None,
        "decided_by": asked.decided_by,
        "reason": asked.reason,
    }


def _expired(asked: Approval) -> str:
    return f"it was not decided before {approve_page.moment(asked.expires_at)}"


def _refusal(
    request: Request,
    error: SemelError,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Response:
    """*error* in the form that was asked for, with the headers of the page."""
    sent = {**approve_page.HEADERS, **(headers or {})}
    answer = problem.answer(error, status=status, headers=sent, more=more)
    if _wants_json(request):
        return answer
    detail = problem.detail(error)
    page = approve_page.message(
        error.title[:1].upper() + error.title[1:],
        f"{detail[:1].upper()}{detail[1:]}.",
        error.remedy,
        error.code,
    )
    own = {name: value for name, value in answer.headers.items() if name != "content-length"}
    own["content-type"] = "text/html; charset=utf-8"
    return Response(page, status_code=answer.status_code, headers=own)
