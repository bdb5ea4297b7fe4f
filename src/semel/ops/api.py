"""
The API: /v1/{project}/..., for programs with a bearer token.

A token belongs to one project and one role. A start is an event of source `api`, or of the
source its token is bound to, so a client's retry with the same key finds the first run. What an
operator may do to a run, SQL decides. Reads are the views as JSON.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from uuid import UUID

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from semel.core import ledger_reads, reads, schedules, story, transitions
from semel.core.ledger_reads import OperationStatus
from semel.core.operations import NAME_BYTES_MAX, REQUEST_BYTES_MAX
from semel.core.text import load_object
from semel.edges import body, idempotency_key, start
from semel.edges.channel import kept
from semel.edges.in_time import ANSWER_SECONDS_MAX
from semel.edges.ingress import CLOCK_HEADER, clock
from semel.edges.receipt import respond
from semel.errors import BadRequest, NoSuchRun, RunRefused
from semel.model import RunKind, RunStatus, Verdict
from semel.ops import flow
from semel.ops.gate import OPERATORS, READERS, STARTERS, Gate, token
from semel.ops.query import Query
from semel.ops.steer import Steer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from semel.config import Settings
    from semel.edges.acceptor import Acceptor
    from semel.edges.asker import Asker

#: Of the time that a start may take, the token has this much.
GRANT_SECONDS_MAX = 1.5
REASON_CHARS_MAX = 500


class Api:
    """The routes of /v1."""

    def __init__(
        self,
        settings: Settings,
        asker: Asker,
        acceptor: Acceptor,
    ) -> None:
        self._settings = settings
        self._asker = asker
        self._acceptor = acceptor
        self._gate = Gate(asker)

    def routes(self) -> list[Route]:
        """Every route; a GET answers HEAD too."""
        gets = {
            "runs/{run_id}": self.show_run,
            "events": self.list_events,
            "agents": self.list_agents,
            "schedules": self.list_schedules,
            "workers": self.list_workers,
        }
        return [
            Route("/v1/{project}/runs", self._runs, methods=["GET", "POST"]),
            Route("/v1/{project}/runs/{run_id}/cancel", self.cancel_run, methods=["POST"]),
            Route("/v1/{project}/runs/{run_id}/retry", self.retry_run, methods=["POST"]),
            Route("/v1/{project}/operations", self.list_operations),
            *Steer(self._settings, self._asker, self._gate).routes(),
            *flow.Flow(self._settings, self._asker, self._gate).routes(),
            *(
                Route(f"/v1/{{project}}/{path}", self._reader(get))
                for path, get in gets.items()
            ),
        ]

    async def _runs(self, request: Request) -> Response:
        if request.method == "POST":
            return await self.start_run(request)
        return await self._reader(self.list_runs)(request)

    async def start_run(self, request: Request) -> Response:
        """Start a run, or find the one that the same key started."""
        grant = await self._gate.grant(request, STARTERS, within=GRANT_SECONDS_MAX)
        project = request.path_params["project"]
        source = grant.source or "api"
        raw = await body.whole(request.scope, request.receive, self._settings.server)
        if raw is None:
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        headers = [
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in request.headers.raw
        ]
        configured = self._settings.sources.get((project, source))
        key = idempotency_key.find(
            headers, required=configured is not None and configured.require_key
        )
        if (call := flow.debounced(project, raw, key=key)) is not None:
            return flow.collapsed(await self._asker.ask(call))
        secrets = [secret.reveal() for secret in configured.secrets] if configured else []
        live = kept(headers, [*secrets, token(request)])
        offer = start.read(project, source, raw, key=key, headers=live)
        now = clock(request.headers.get(CLOCK_HEADER)) if self._settings.testing else None
        within = ANSWER_SECONDS_MAX - GRANT_SECONDS_MAX
        return respond(await self._acceptor.accept(project, [offer], now=now, within=within))

    async def cancel_run(self, request: Request) -> Response:
        """End a run that has not ended."""
        run_id, reason = await self._operate(request)
        call = transitions.run_cancel(
            request.path_params["project"],
            run_id,
            reason=reason or "cancelled over the API",
            dead_after=self._settings.worker.dead_after,
        )
        outcome, found = await self._asker.ask(call)
        return _operated(run_id, outcome, found, "CANCELLED")

    async def retry_run(self, request: Request) -> Response:
        """Let a failed or cancelled run start again."""
        run_id, _ = await self._operate(request)
        outcome, found, started = await self._asker.ask(
            transitions.run_retry(request.path_params["project"], run_id)
        )
        return _operated(started, outcome, found, "PENDING")

    async def _operate(self, request: Request) -> tuple[UUID, str | None]:
        """The run that an operator means, and the reason in the body, if there is one."""
        await self._gate.grant(request, OPERATORS)
        run_id = _run_id(request)
        raw = await body.whole(request.scope, request.receive, self._settings.server)
        told = load_object(raw) if raw else {}
        reason = told.get("reason")
        if set(told) - {"reason"}:
            raise BadRequest("the body has an unknown member: there is reason")
        if reason is not None and not (
            isinstance(reason, str) and 0 < len(reason) <= REASON_CHARS_MAX
        ):
            raise BadRequest(f"reason is a text of 1 to {REASON_CHARS_MAX} characters")
        return run_id, reason

    async def list_runs(self, request: Request, project: str) -> Response:
        """A page of runs, newest first."""
        query = Query(request, "status", "agent", "kind", "cursor", "limit")
        call = reads.list_runs(
            project,
            status=query.one_of("status", RunStatus),
            agent=query.text("agent"),
            kind=query.one_of("kind", RunKind),
            before=query.uuid("cursor"),
            limit=query.limit() + 1,
        )
        return query.page("runs", await self._asker.ask(call), "run_id")

    async def show_run(self, request: Request, project: str) -> Response:
        """One run with its timeline."""
        run_id = _run_id(request)
        found = await self._asker.ask(story.show_run(project, run_id))
        if found is None:
            raise NoSuchRun(f"there is no run {run_id} in project {project!r}")
        return JSONResponse(found)

    async def list_events(self, request: Request, project: str) -> Response:
        """A page of events, newest first; with a verdict, of the deliveries that got it."""
        query = Query(request, "source", "verdict", "cursor", "limit")
        verdict = query.one_of("verdict", Verdict)
        if verdict is not None:
            found = await self._asker.ask(
                reads.list_deliveries(
                    project,
                    verdict=verdict,
                    source=query.text("source"),
                    before=query.uuid("cursor"),
                    limit=query.limit() + 1,
                )
            )
            return query.page("events", found, "delivery_id")
        call = reads.list_events(
            project,
            source=query.text("source"),
            before=query.uuid("cursor"),
            limit=query.limit() + 1,
        )
        return query.page("events", await self._asker.ask(call), "event_id")

    async def list_agents(self, request: Request, project: str) -> Response:
        """Every agent with its limits, and how many of its runs wait and run."""
        Query(request)
        within = self._settings.worker.dead_after
        found = await self._asker.ask(reads.list_agents(project, within=within))
        return JSONResponse({"agents": found})

    async def list_schedules(self, request: Request, project: str) -> Response:
        """A page of schedules by name, each with its next ticks."""
        query = Query(request, "cursor", "limit")
        call = schedules.list_schedules(
            project, after=query.text("cursor"), limit=query.limit() + 1
        )
        return query.page("schedules", await self._asker.ask(call), "schedule")

    async def list_workers(self, request: Request, project: str) -> Response:
        """Every worker, the latest sign of life first."""
        Query(request)
        return JSONResponse({"workers": await self._asker.ask(reads.list_workers(project))})

    async def list_operations(self, request: Request) -> Response:
        """A page of operations, newest first; what they answered is for operators only."""
        role = (await self._gate.grant(request, READERS)).role
        query = Query(request, "status", "operation", "cursor", "limit")
        call = ledger_reads.list_operations(
            request.path_params["project"],
            status=query.one_of("status", OperationStatus),
            operation=query.text("operation", chars_max=NAME_BYTES_MAX),
            before=query.text("cursor", chars_max=REQUEST_BYTES_MAX),
            results=role in OPERATORS,
            limit=query.limit() + 1,
        )
        return query.page("operations", await self._asker.ask(call), "request_id")

    def _reader(
        self, get: Callable[[Request, str], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            await self._gate.grant(request, READERS)
            return await get(request, request.path_params["project"])

        return endpoint


def _run_id(request: Request) -> UUID:
    told = request.path_params["run_id"]
    try:
        return UUID(told)
    except ValueError:
        raise BadRequest(f"{told[:80]!r} is no run id: it is a UUID") from None


def _operated(run_id: UUID, outcome: str, found: str | None, status: str) -> Response:
    """What became of an operator's wish; *found* is the state before, *status* the one after."""
    if outcome == "unknown":
        raise NoSuchRun(f"there is no run {run_id} in this project")
    if outcome == "refused":
        raise RunRefused(f"run {run_id} is {found}, which does not allow it")
    return JSONResponse({"run_id": str(run_id), "outcome": outcome, "status": status})
