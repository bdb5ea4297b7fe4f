"""`semel db`: the embedded server in SEMEL_HOME."""

import signal
import subprocess
from dataclasses import asdict

from semel import errors
from semel.db import embedded
from semel.ops import place
from semel.ops.cli.command import Desk, command, group

db = group("The embedded PostgreSQL.")


@command(db, "start")
def start(desk: Desk) -> None:
    """Start it, and keep it running without users."""
    _refuse_other(desk)
    embedded.keep(desk.settings.home)
    with embedded.use(desk.settings.home) as server:
        desk.answer(
            {
                "state": "running",
                "dsn": server.dsn,
                "version": server.version,
                "log": str(server.log),
            },
            f"PostgreSQL {server.version} runs until `semel db stop`\n{server.dsn}",
        )


@command(db, "stop")
def stop(desk: Desk) -> None:
    """Shut it down, users or not."""
    was = embedded.stop(desk.settings.home)
    desk.answer(
        {"state": "stopped", "was_running": was}, "stopped" if was else "nothing was running"
    )


@command(db, "status")
def status(desk: Desk) -> None:
    """What is known of it. Starts nothing."""
    found = asdict(embedded.status(desk.settings.home))
    desk.answer(
        {
            name: str(value) if name in {"home", "data", "log"} else value
            for name, value in found.items()
        }
    )


@command(db, "psql")
def psql(desk: Desk) -> None:
    """Open psql on it."""
    _refuse_other(desk)
    with place.database(desk.settings):
        words = embedded.psql(desk.settings.home)
        # Ctrl-C is for psql, which cancels a statement with it; a handler is not inherited.
        signal.signal(signal.SIGINT, lambda *_: None)
        code = subprocess.call(words)
    if code:
        raise SystemExit(code)


def _refuse_other(desk: Desk) -> None:
    if desk.settings.dsn is not None:
        raise errors.BadConfig(
            "a dsn is configured, so the embedded server is not in use: unset SEMEL_DSN"
        )
