"""
`semel serve`, `worker` and `upkeep`: one process each.

Each holds the embedded server while it runs, waits for a database that is down, and refuses a
schema that is not its own.
"""

import logging
import os
import signal
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from semel import log
from semel.config import Settings
from semel.core.tools import AGENT as TOOL
from semel.db.execute import translated
from semel.db.link import Link
from semel.edges.notifiers.notify import AGENT, ATTEMPTS_MAX, notify_agent
from semel.edges.tools.made import tool_agent
from semel.errors import BadConfig, SemelError
from semel.ops import place
from semel.ops.cli.command import Desk
from semel.runtime.app import App, load
from semel.runtime.handlers import Backoff
from semel.runtime.process import work
from semel.runtime.tools import ATTEMPTS
from semel.runtime.upkeep import Upkeep

Target = Annotated[
    str,
    typer.Argument(
        metavar="APP", help="path/file.py or package.module, with :name for one App of several"
    ),
]
MaybeTarget = Annotated[
    str | None,
    typer.Argument(
        metavar="[APP]",
        help="The application; semel.toml beside it is used where there is none here.",
    ),
]


def serve(desk: Desk, app: MaybeTarget = None) -> None:
    """Receive events and answer the API."""
    from semel.ops.server import serve as serve_on  # noqa: PLC0415 - the server extra; a worker needs none of it

    beside(app)
    # It answers 503 while the database is down, which tells senders more than a closed port.
    with _process(desk, desk.serving, wait=False) as settings:
        serve_on(settings)


def worker(desk: Desk, app: Target) -> None:
    """Claim runs and execute their handlers."""
    beside(app)
    loaded = _loaded(app)
    with _process(desk, desk.settings) as settings:
        serve_notifications(loaded, settings)
        serve_tools(loaded, settings)
        work(loaded, settings, target=app, dsn=settings.dsn or "")


def serve_notifications(app: App, settings: Settings) -> None:
    """Have *app*'s worker send what approvals ask to be sent, where notifiers are configured."""
    if not settings.notifiers:
        return
    link = Link(settings.dsn or "", name="semel-notify", prepare=not settings.pooler)
    app.builtin(
        AGENT,
        notify_agent(settings, link),
        max_attempts=ATTEMPTS_MAX,
        backoff=Backoff(cap=timedelta(seconds=30)),
    )


def serve_tools(app: App, settings: Settings) -> None:
    """Have *app*'s worker make the calls of `run.tool`, where there is anything to call."""
    if not settings.tools and not app.tools:
        return
    link = Link(settings.dsn or "", name="semel-tool", prepare=not settings.pooler)
    call, end = tool_agent(settings, app.tools, link)
    # A worker claims the calls of functions that it has, and of servers where it knows any.
    agents = [*([TOOL] if settings.tools else []), *(f"{TOOL}.{name}" for name in app.tools)]
    for agent in agents:
        backoff = Backoff(cap=timedelta(seconds=30))
        app.builtin(agent, call, max_attempts=ATTEMPTS, backoff=backoff)
    app.endings += [end, link.close]


def upkeep(
    desk: Desk,
    once: Annotated[
        bool, typer.Option("--once", help="Sweep everything once, say what was done, and end.")
    ] = False,
    now: Annotated[
        float | None,
        typer.Option("--now", metavar="T", help="For tests: purge as if it were unix time T."),
    ] = None,
) -> None:
    """Recover runs of lost workers, make due ones ready, purge what is past its time."""
    if now is not None and not (once and desk.settings.testing):
        raise BadConfig("--now is for tests: it needs --once and SEMEL_TESTING=1")
    if once:
        at = None if now is None else datetime.fromtimestamp(now, UTC)
        with place.connection(desk.settings), place.database(desk.settings) as dsn:
            desk.answer(Upkeep(desk.settings, dsn=dsn).once(now=at))
        return
    # Taken by sigwait below: a handler could run while the sweeping thread's event is locked.
    signals = {signal.SIGTERM, signal.SIGINT}
    with _process(desk, desk.settings) as settings:
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        sweeps = Upkeep(settings, dsn=settings.dsn or "")
        thread = threading.Thread(target=sweeps.run, name="semel-upkeep", daemon=True)
        thread.start()
        signal.sigwait(signals)
        sweeps.stop()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        thread.join()


def _loaded(app: str) -> App:
    """The application; whatever its import raises is its author's to mend, and no restart's."""
    try:
        return load(app)
    except SemelError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an import may raise anything
        if os.environ.get("SEMEL_DEBUG") == "1":
            traceback.print_exception(error)
        said = traceback.format_exception_only(error)[-1].strip()
        raise BadConfig(
            f"{app} cannot be imported: {said}{_line_of(error)}; SEMEL_DEBUG=1 shows the traceback"
        ) from None


def _line_of(error: BaseException) -> str:
    """Where it was raised; a syntax error has its place in no frame."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def beside(app: str | None) -> str | None:
    """Use the semel.toml beside *app* where none is told or here; answers its path if so."""
    place_ = (app or "").partition(":")[0]
    found = Path(place_).parent / "semel.toml"
    if (
        os.environ.get("SEMEL_CONFIG")
        or Path("semel.toml").exists()
        or not place_.endswith(".py")
        or not found.is_file()
    ):
        return None
    os.environ["SEMEL_CONFIG"] = str(found)
    return str(found)


@contextmanager
def _process(
    desk: Desk, settings: Settings, *, wait: bool = True
) -> Generator[Settings, None, None]:
    """Be a long-running process: log, hold and await the database."""
    log.setup(json=True if desk.json else None)
    try:
        with place.database(settings) as dsn:
            place.await_schema(settings, dsn, wait=wait)
            yield replace(settings, dsn=dsn)
    except Exception as error:
        if not isinstance(translated(error), SemelError):
            logging.getLogger("semel").exception("the process failed")
        raise
