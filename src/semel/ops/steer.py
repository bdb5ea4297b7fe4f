"""
Steering over the API: approvals, and what people and programs say to a run.

Under /v1/{project}: list and decide approvals, send a signal, let a held compensation begin, skip
a step of one. Who may is the token's role; what the state allows, SQL decides.
"""

from __future__ import annotations

from dataclasses import asdict
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from semel.core import reads, story, undo
from semel.core.approvals import approval_decide
from semel.core.text import load_object
from semel.core.waits import signal_send
from semel.edges import approve, ballot, body, idempotency_key, problem
from semel.errors import (
    ApprovalDecided,
    ApprovalExpired,
    BadRequest,
    Duplicate,
    Forbidden,
    NoSuchApproval,
    NoSuchRun,
    RunRefused,
)
from semel.ops.gate import APPROVERS, OPERATORS, READERS
from semel.ops.query import Query

if TYPE_CHECKING:
    from starlette.requests import Request

    from semel.config import Settings
    from semel.core.approvals import Decided
    from semel.edges.asker import Asker
    from semel.ops.gate import Gate

ApprovalState = Literal["PENDING", "APPROVED", "REJECTED", "EXPIRED", "VOID"]

STEP_CHARS_MAX = 255


class Steer:
    """The routes that steer runs."""

    def __init__(self, settings: Settings, asker: Asker, gate: Gate) -> None:
        self._settings = settings
        self._asker = asker
        self._gate = gate

    def routes(self) -> list[Route]:
        """Every route; a GET answers HEAD too."""
        one = "/v1/{project}/approvals/{approval_id}"
        run = "/v1/{project}/runs/{run_id}"
        return [
            Route("/v1/{project}/approvals", self.list_approvals, methods=["GET"]),
            Route(one, self._approval, methods=["GET", "POST"]),
            Route(f"{run}/signals", self.send_signal, methods=["POST"]),
            Route(f"{run}/compensate", self.compensate, methods=["POST"]),
            Route(f"{run}/skip", self.skip, methods=["POST"]),
        ]

    async def list_approvals(self, request: Request) -> Response:
        """A page of approvals, newest first."""
        await self._gate.grant(request, READERS)
        query = Query(request, "state", "cursor", "limit")
        call = reads.list_approvals(
            request.path_params["project"],
            state=query.one_of("state", ApprovalState),
            before=query.uuid("cursor"),
            limit=query.limit() + 1,
        )
        return query.page("approvals", await self._asker.ask(call), "approval_id")

    async def _approval(self, request: Request) -> Response:
        if request.method == "POST":
            return await self.decide(request)
        await self._gate.grant(request, READERS)
        Query(request)
        found = await self._asker.ask(
            reads.show_approval(request.path_params["project"], _id(request, "approval_id"))
        )
        if found is None:
            raise NoSuchApproval("there is no such approval in this project")
        return JSONResponse(found)

    async def decide(self, request: Request) -> Response:
        """Approve or reject, as the one whom the token stands for."""
        grant = await self._gate.grant(request, APPROVERS)
        approval_id = _id(request, "approval_id")
        vote = ballot.of(await self._told(request))
        project = request.path_params["project"]
        call = approval_decide(
            project,
            vote.decision,
            via="api",
            approval_id=approval_id,
            voter=await self._gate.who(request, grant),
            reason=vote.reason,
            address=request.client.host if request.client else None,
            user_agent=approve.user_agent(request),
            digest=vote.digest,
        )
        decided = await self._asker.ask(call)
        if decided.outcome == "won":
            await self._asker.wake(decided.agent)
        if decided.run_id is not None:
            approve.log_decision(project, decided, vote.decision, "api")
        return decision_answer(decided)

    async def send_signal(self, request: Request) -> Response:
        """Say something to a live run; the same key again says nothing more."""
        grant = await self._gate.grant(request, OPERATORS)
        project, run_id = request.path_params["project"], _id(request, "run_id")
        told = await self._told(request)
        if unknown := sorted(set(told) - {"name", "content"}):
            raise BadRequest(f"unknown member {unknown[0][:80]!r}: there are name, content")
        name = told.get("name")
        if not isinstance(name, str):
            raise BadRequest("name is missing: what the handler waits for")
        headers = [
            (header.decode("latin-1").lower(), value.decode("latin-1"))
            for header, value in request.headers.raw
        ]
        key = idempotency_key.find(headers, required=False)
        sender = await self._gate.who(request, grant)
        call = signal_send(project, run_id, name, told.get("content"), key=key, sender=sender)
        outcome, found = await self._asker.ask(call)
        _require(run_id, outcome, f"it is {found}, and hears nothing more")
        if outcome == "won" and found in {"WAITING_TOOL", "WAITING_APPROVAL"}:
            await self._asker.wake(await self._asker.ask(reads.agent_of(project, run_id)))
        answer: dict[str, Any] = {"run_id": str(run_id), "name": name, "outcome": outcome}
        if outcome == "duplicate":
            return JSONResponse({**answer, "code": Duplicate.code})
        return JSONResponse(answer, status_code=HTTPStatus.CREATED)

    async def compensate(self, request: Request) -> Response:
        """Let the held compensation of a run begin."""
        await self._gate.grant(request, OPERATORS)
        project, run_id = request.path_params["project"], _id(request, "run_id")
        if await self._told(request):
            raise BadRequest("there is nothing to say here: send no body")
        outcome, found, undo_id = await self._asker.ask(undo.run_compensate(project, run_id))
        _require(run_id, outcome, f"it is {found}, and nothing of it is to be undone")
        if outcome == "won":
            await self._asker.wake(await self._asker.ask(reads.agent_of(project, undo_id)))
        answer = {"run_id": str(run_id), "outcome": outcome, "status": found}
        return JSONResponse({**answer, "undo_run_id": str(undo_id)})

    async def skip(self, request: Request) -> Response:
        """Have the compensation of a run pass over a step."""
        grant = await self._gate.grant(request, OPERATORS)
        project, run_id = request.path_params["project"], _id(request, "run_id")
        told = await self._told(request)
        if unknown := sorted(set(told) - {"step", "reason"}):
            raise BadRequest(f"unknown member {unknown[0][:80]!r}: there are step, reason")
        step = ballot.short("step", told.get("step"), STEP_CHARS_MAX)
        reason = ballot.short("reason", told.get("reason"), ballot.REASON_CHARS_MAX)
        if step is None or reason is None:
            raise BadRequest("step and reason are both needed: why it need not be undone")
        saga = await self._asker.ask(story.saga_of(project, run_id))
        if saga is None:
            raise NoSuchRun(f"there is no run {run_id} in this project")
        who = await self._gate.who(request, grant)
        outcome, undo_id = await self._asker.ask(
            undo.undo_skip(project, saga, step, reason=reason, who=who)
        )
        if outcome == "unknown":
            raise RunRefused(f"run {saga} has no compensation")
        if outcome == "refused":
            raise RunRefused(f"run {saga} has no step {step!r} with an undo")
        answer = {"run_id": str(saga), "outcome": outcome, "step": step}
        return JSONResponse({**answer, "undo_run_id": str(undo_id)})

    async def _told(self, request: Request) -> dict[str, Any]:
        raw = await body.whole(request.scope, request.receive, self._settings.server)
        return load_object(raw) if raw else {}


def decision_answer(decided: Decided) -> Response:
    """
    What became of a decision by an approval's id.

    Raises:
        NoSuchApproval, ApprovalExpired, Forbidden: by its outcome.
    """
    match decided.outcome:
        case "unknown" | "void":
            raise NoSuchApproval("there is no such approval in this project, or no longer")
        case "expired":
            raise ApprovalExpired("it was not decided in time")
        case "refused":
            raise Forbidden("whom this token stands for asked for it, or is no approver of it")
        case _:
            pass
    shown = {
        name: str(value) if isinstance(value, UUID) else value
        for name, value in asdict(decided).items()
        if name != "agent"
    }
    at = decided.decided_at
    shown["decided_at"] = at.isoformat() if at else None
    if decided.outcome == "already":
        error = ApprovalDecided(f"it was {str(decided.state).lower()} at {shown['decided_at']}")
        return problem.answer(error, more=shown)
    return JSONResponse(shown)


def _require(run_id: UUID, outcome: str, because: str) -> None:
    if outcome == "unknown":
        raise NoSuchRun(f"there is no run {run_id} in this project")
    if outcome == "refused":
        raise RunRefused(f"run {run_id}: {because}")


def run_id_of(request: Request) -> UUID:
    """
    The run in the path.

    Raises:
        BadRequest: it is no id.
    """
    return _id(request, "run_id")


def _id(request: Request, name: str) -> UUID:
    told = request.path_params[name]
    try:
        return UUID(told)
    except ValueError:
        raise BadRequest(f"{told[:80]!r} is no id: it is a UUID") from None
