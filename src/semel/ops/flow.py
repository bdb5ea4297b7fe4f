"""
Flow over the API: batches, the priority of a run, and what is asked of a worker.

Under /v1/{project}. Reading is for viewers, changing for operators; what the state allows, SQL
decides.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from semel.config import values
from semel.config.settings import AGENT
from semel.core import batches, transitions, workers
from semel.core.debounce import run_debounce
from semel.core.text import load_object
from semel.edges import body
from semel.errors import BadConfig, BadRequest, NoSuchBatch, NoSuchRun, NoSuchWorker, RunRefused
from semel.ops.gate import OPERATORS, READERS
from semel.ops.query import Query
from semel.ops.steer import run_id_of

if TYPE_CHECKING:
    from datetime import timedelta

    from starlette.requests import Request

    from semel.config import Settings
    from semel.core.call import Call
    from semel.edges.asker import Asker
    from semel.model import Started
    from semel.ops.gate import Gate

SLOTS_MAX = 10_000

_DEBOUNCED = (
    "agent",
    "input",
    "priority",
    "debounce",
    "debounce_key",
    "debounce_max",
)


class Flow:
    """The routes of batches, priorities and workers."""

    def __init__(self, settings: Settings, asker: Asker, gate: Gate) -> None:
        self._settings = settings
        self._asker = asker
        self._gate = gate

    def routes(self) -> list[Route]:
        """Every route; a GET answers HEAD too."""
        return [
            Route("/v1/{project}/batches", self.list_batches, methods=["GET"]),
            Route("/v1/{project}/batches/{batch:path}", self.show_batch, methods=["GET"]),
            Route("/v1/{project}/runs/{run_id}/priority", self.prioritise, methods=["POST"]),
            Route("/v1/{project}/workers/{worker_id}", self.order, methods=["POST"]),
        ]

    async def list_batches(self, request: Request) -> Response:
        """A page of batches, newest first, with how far their runs are."""
        await self._gate.grant(request, READERS)
        query = Query(request, "cursor", "limit")
        call = batches.list_batches(
            request.path_params["project"],
            before=query.text("cursor", chars_max=batches.NAME_BYTES_MAX),
            limit=query.limit() + 1,
        )
        return query.page("batches", await self._asker.ask(call), "batch")

    async def show_batch(self, request: Request) -> Response:
        """One batch."""
        await self._gate.grant(request, READERS)
        Query(request)
        name = request.path_params["batch"]
        call = batches.show_batch(request.path_params["project"], name)
        found = await self._asker.ask(call) if name.isprintable() else None
        if found is None:
            raise NoSuchBatch("there is no such batch in this project")
        return JSONResponse(found)

    async def prioritise(self, request: Request) -> Response:
        """Give a run that waits another priority."""
        await self._gate.grant(request, OPERATORS)
        run_id = run_id_of(request)
        told = await self._told(request, "priority")
        priority = _priority(told.get("priority"))
        outcome, found = await self._asker.ask(
            transitions.run_prioritise(
                request.path_params["project"], run_id, priority=priority
            )
        )
        if outcome == "unknown":
            raise NoSuchRun(f"there is no run {run_id} in this project")
        if outcome == "refused":
            raise RunRefused(f"run {run_id}: it is {found}, and waits for nobody")
        return JSONResponse(
            {"run_id": str(run_id), "outcome": outcome, "status": found, "priority": priority}
        )

    async def order(self, request: Request) -> Response:
        """Ask a worker to drain or to go on, or for another number of slots; a beat tells it."""
        await self._gate.grant(request, OPERATORS)
        project, worker_id = request.path_params["project"], request.path_params["worker_id"]
        told = await self._told(request, "drain", "slots")
        if len(told) != 1:
            raise BadRequest("write one of drain, true or false, and slots, a number or null")
        call: Call[str]
        if "drain" in told:
            if not isinstance(told["drain"], bool):
                raise BadRequest("drain is true or false")
            call = workers.worker_drain(project, worker_id, on=told["drain"])
        else:
            if told["slots"] is not None and not _whole(told["slots"], 1, SLOTS_MAX):
                raise BadRequest(f"slots is a whole number from 1 to {SLOTS_MAX}, or null")
            call = workers.worker_slots(project, worker_id, told["slots"])
        outcome = await self._asker.ask(call) if worker_id.isprintable() else "unknown"
        if outcome == "unknown":
            raise NoSuchWorker("there is no such worker in this project")
        if outcome == "refused":
            raise RunRefused(f"worker {worker_id[:80]} has stopped")
        return JSONResponse({"worker_id": worker_id, "outcome": outcome, **told})

    async def _told(self, request: Request, *known: str) -> dict[str, Any]:
        raw = await body.whole(request.scope, request.receive, self._settings.server)
        told = load_object(raw) if raw else {}
        if unknown := sorted(set(told) - set(known)):
            raise BadRequest(
                f"unknown member {unknown[0][:80]!r}: there are {', '.join(known)}"
            )
        return told


def _priority(value: Any) -> int:
    if not _whole(value, 0, 9):
        raise BadRequest("priority is a whole number from 0 (last) to 9 (first)")
    told: int = value
    return told


def _whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def debounced(project: str, raw: bytes, *, key: str | None) -> Call[Started] | None:
    """
    The start in *raw* if it is one that collapses with others, else None.

    Raises:
        BadRequest: it is one, and a member is none.
    """
    if b'"debounce' not in raw:
        return None
    told = load_object(raw)
    if not any(name.startswith("debounce") for name in told):
        return None
    if unknown := sorted(set(told) - set(_DEBOUNCED)):
        raise BadRequest(
            f"{unknown[0][:80]} and debounce do not go together: there are"
            f" {', '.join(_DEBOUNCED)}"
        )
    if key is not None:
        raise BadRequest("an Idempotency-Key and debounce: a run has many calls; write one")
    agent = told.get("agent")
    if not isinstance(agent, str) or not AGENT.fullmatch(agent):
        raise BadRequest("agent is missing or no agent's name: 1 to 128 of A-Z, a-z, 0-9, _.-")
    priority = _priority(told.get("priority", 5))
    quiet, longest = _span("debounce", told), _span("debounce_max", told)
    if quiet is None:
        raise BadRequest("debounce is missing: how long there was no call, such as 30s")
    return run_debounce(
        project,
        agent,
        told.get("input"),
        key=told.get("debounce_key"),
        quiet=quiet,
        longest=longest,
        priority=priority,
    )


def _span(name: str, told: dict[str, Any]) -> timedelta | None:
    if told.get(name) is None:
        return None
    try:
        span: timedelta = values.read(name, "timedelta", told[name])
    except (BadConfig, OverflowError) as bad:
        raise BadRequest(str(bad)) from None
    return span


def collapsed(started: Started) -> Response:
    """What became of a start that collapses with others."""
    status = HTTPStatus.CREATED if started.outcome == "new" else HTTPStatus.OK
    answer = {"run_id": str(started.run_id), "outcome": started.outcome}
    return JSONResponse(answer, status_code=status)
