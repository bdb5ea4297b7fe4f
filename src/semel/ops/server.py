"""
The server: ingress, approval links, API, metrics and readiness, one ASGI application and process.

It starts whether or not the database is there, keeps trying, and tells senders to come back
meanwhile. SIGTERM and SIGINT let requests in flight end, then close the connections; what a
database that hangs still owes an answer is left behind, since no statement can be taken back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

import psycopg
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.routing import Route

from semel import log
from semel.config.kinds import doubts
from semel.core.inbox import source_register
from semel.db import migrate
from semel.db.execute import arun
from semel.db.pool import pool as make_pool
from semel.edges import body, problem
from semel.edges.acceptor import Acceptor
from semel.edges.alert_poll.poll import poll_all
from semel.edges.approve import Approve
from semel.edges.asker import Asker
from semel.edges.committer import ours
from semel.edges.ingress import Ingress, named
from semel.edges.poller.pollers import Pollers
from semel.edges.spool import Spool
from semel.edges.tools.door import ToolDoor
from semel.edges.watch import Watch
from semel.errors import BadConfig, BadRequest, DatabaseUnreachable, OurFault, SemelError
from semel.ops.api import Api
from semel.ops.metrics import Metrics
from semel.ops.poll_metrics import PollMetrics
from semel.ops.protocol import limited
from semel.ops.readiness import Readiness
from semel.ops.spool_metrics import SpoolMetrics

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Generator
    from typing import Any

    from psycopg_pool import AsyncConnectionPool
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from semel.config import Settings, Source

#: Requests in flight have this long to end after a stop.
STOP_SECONDS_MAX = 10
#: And then the connections to be closed, and what still waits for the database to end.
CLOSE_SECONDS_MAX = 2.0
LEAVE_SECONDS_MAX = 1.0
#: Longer than senders keep an idle connection (Go: 90 s), so that they close it, not we: a POST
#: that meets our close is lost where the sender does not retry.
KEEP_ALIVE_SECONDS = 120
BACKLOG = 2048
REGISTER_PAUSE_SECONDS_MAX = 5.0


def application(settings: Settings) -> Starlette:
    """
    The ASGI application of *settings*; its lifespan opens and closes the pool.

    Raises:
        BadConfig: no dsn is told, or the spool cannot be opened.
    """
    if settings.dsn is None:
        raise BadConfig(
            "no dsn is told: set SEMEL_DSN, or use `semel up` for a database of its own"
        )
    pool = make_pool(
        settings.dsn, size=settings.server.pool, name="semel-serve", prepare=not settings.pooler
    )
    acceptor = Acceptor(pool, memory=settings.retention.dedupe)
    asker = Asker(pool)
    metrics = Metrics(
        pool, dead_after=settings.worker.dead_after, sources=settings.sources.values()
    )
    watch = Watch(pool)

    def observe(source: Source, outcome: str, seconds: float) -> None:
        metrics.observe(source, outcome, seconds)
        watch.note(source, outcome)

    pollers = Pollers(settings, pool, observe)
    metrics.registry.register(PollMetrics(pollers.statuses))
    readiness = Readiness(settings.dsn)
    spool = Spool.of(settings, pool)
    if spool is not None:
        metrics.registry.register(SpoolMetrics(spool))

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        await pool.open(wait=False)
        registering = asyncio.create_task(_register(settings, pool, readiness))
        watching = asyncio.create_task(watch.keep())
        polling = asyncio.create_task(poll_all(settings, pool, acceptor, observe))
        pollers.start()
        if spool is not None:
            spool.start()
        try:
            yield
        finally:
            await pollers.stop()
            if spool is not None:
                await spool.close()
            registering.cancel()
            watching.cancel()
            polling.cancel()
            await asyncio.wait({registering, watching, polling}, timeout=LEAVE_SECONDS_MAX)
            await asyncio.wait({asyncio.create_task(pool.close())}, timeout=CLOSE_SECONDS_MAX)
            log.event("server.stopped")

    ingress = Ingress(
        settings, acceptor, observe, metrics.observe_secret, spool.door if spool else None
    )
    app = _Application(
        ingress,
        routes=[
            *ingress.routes(),
            *Approve(settings, asker).routes(),
            *ToolDoor(settings, asker).routes(),
            *Api(settings, asker, acceptor).routes(),
            Route("/metrics", metrics.answer),
            Route("/healthz", readiness.healthz),
            Route("/readyz", readiness.readyz),
        ],
        # Starlette looks a handler up by the error's class, which its type cannot say.
        exception_handlers=cast(
            "Any",
            {
                SemelError: _refused,
                body.Unread: _unread,
                HTTPException: _no_route,
                Exception: _failed,
            },
        ),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app


class _Application(Starlette):
    """Starlette, but what is posted to the ingress goes there without being routed."""

    def __init__(self, ingress: Ingress, **told: Any) -> None:
        super().__init__(**told)
        self._ingress = ServerErrorMiddleware(ingress, handler=_failed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and named(scope["path"]):
            await self._ingress(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def serve(settings: Settings) -> None:
    """
    Serve until SIGTERM or SIGINT.

    Raises:
        BadConfig: no dsn is told, or the port is taken.
    """
    app = application(settings)
    host, port = settings.server.host, settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise BadConfig(
            f"[server] cannot listen on {host} port {port}: {error.strerror or error};"
            " set SEMEL_PORT to a free one"
        ) from error
    log.event(
        "server.started",
        host=host,
        port=listening.getsockname()[1],
        sources=len(settings.sources),
    )
    for source in settings.sources.values():
        for event_type in doubts(source):
            log.event(
                "source.doubted",
                project=source.project,
                source=source.name,
                event_type=event_type,
            )
    server = uvicorn.Server(configured(settings, app))
    with _stopped_by_signals(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_to_its_end(server.serve(sockets=[listening])))


async def _to_its_end(serving: Coroutine[Any, Any, None]) -> None:
    """Serve; afterwards nobody waits for a database that does not answer."""
    try:
        await serving
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        hung = (await asyncio.wait(left, timeout=LEAVE_SECONDS_MAX))[1] if left else set()
        if hung:
            # Cancelled, each would ask the server to cancel its statement, and wait for that.
            logging.shutdown()
            os._exit(0)


def configured(settings: Settings, app: Starlette) -> uvicorn.Config:
    """How uvicorn serves *app*: limited heads, no access log, no trust in forwarded headers."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=limited(settings.server.header_bytes_max + 16 * 1024),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
        backlog=BACKLOG,
    )


class _Stopped(BaseException):
    """A signal asked this process to stop."""


@contextlib.contextmanager
def _stopped_by_signals() -> Generator[None]:
    """
    Leave the block when a signal asks for it, as if it had ended.

    uvicorn stops gracefully and then raises the signal again; a signal before uvicorn listens
    for it must not be lost either.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: object) -> None:
        raise _Stopped

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    except _Stopped:
        pass
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


async def _register(
    settings: Settings,
    pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
    readiness: Readiness,
) -> None:
    """Announce the sources as soon as the database is there, however long that takes."""
    told = ""
    pause = 0.1
    while (error := await readiness.judge() or await _announce(settings, pool)) is not None:
        if error.code != told:
            told = error.code
            if isinstance(error, DatabaseUnreachable):
                log.event("database.lost", reason=str(error))
            else:
                log.event("schema.mismatched", reason=str(error))
        await asyncio.sleep(pause)
        pause = min(2 * pause, REGISTER_PAUSE_SECONDS_MAX)
    log.event("database.reached", schema_version=migrate.version())


async def _announce(
    settings: Settings, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]
) -> SemelError | None:
    by_project: dict[str, list[tuple[str, str, str | None]]] = {}
    for source in settings.sources.values():
        named = (source.name, source.channel, source.agent)
        by_project.setdefault(source.project, []).append(named)
    try:
        async with pool.connection() as conn:
            for project, sources in by_project.items():
                await arun(conn, source_register(project, sources))
    except (SemelError, psycopg.Error) as error:
        return error if isinstance(error, SemelError) else ours(error)
    return None


async def _refused(_request: Request, error: SemelError) -> Response:
    return problem.answer(error)


async def _unread(_request: Request, error: body.Unread) -> Response:
    return problem.answer(error.error, status=error.status, headers={"Connection": "close"})


async def _no_route(request: Request, error: HTTPException) -> Response:
    # Not request.url, which there is none of where the query is no UTF-8.
    path = request.scope["path"]
    hidden = next((each for each in ("/approve/", "/tool/") if path.startswith(each)), None)
    shown = f"{hidden}…" if hidden else path[:200]
    said = f"{request.method} {shown}: {HTTPStatus(error.status_code).phrase}"
    headers = {**(error.headers or {}), **_verdict(request)}
    return problem.answer(BadRequest(said), status=error.status_code, headers=headers)


async def _failed(request: Request, error: Exception) -> Response:
    """A fault of ours: the sender may come back, the log says what it was."""
    route = getattr(request.scope.get("route"), "path", None)
    log.event(
        "request.failed",
        method=request.method,
        route="/in/{project}/{source}" if named(request.url.path) else route,
        error=type(error).__name__,
        sqlstate=getattr(error, "sqlstate", None),
    )
    return problem.answer(
        OurFault("the request met a fault of the server; nothing was kept"),
        headers=_verdict(request),
    )


def _verdict(request: Request) -> dict[str, str]:
    """The verdict of a delivery that met no source."""
    return {"Semel-Verdict": "refused"} if request.scope["path"].startswith("/in/") else {}
