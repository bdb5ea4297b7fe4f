"""
`semel up`: everything on this machine, from nothing, with one command.

Finds or starts the database, migrates it, then supervises serve, worker and upkeep. When the
ingress is ready it says what to paste.
"""

import os
import shlex
import shutil
import socket
import sys
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from semel import config, log
from semel.db import migrate
from semel.errors import BadConfig
from semel.ops import place
from semel.ops.cli import screen
from semel.ops.cli.command import Desk
from semel.ops.cli.process import MaybeTarget, beside
from semel.ops.listeners import listener
from semel.ops.supervisor import Child, Supervisor

READY_SECONDS_MAX = 1.0


def up(desk: Desk, app: MaybeTarget = None) -> None:
    """Start the database, migrate, and run serve, worker and upkeep until Ctrl-C."""
    log.setup(json=True if desk.json else None)
    found = beside(app)
    if found and not desk.json:
        screen.text(f"configuration: {found}")
    settings = desk.serving
    port = _free_port(settings.server)
    with place.database(settings, make=True) as dsn:
        with place.opened(settings, dsn, name="semel-migrate") as conn:
            applied = migrate.migrate(conn)
        if applied and not desk.json:
            screen.text(f"schema {migrate.version()}: {len(applied)} files applied")
        environ = {**os.environ, "SEMEL_PORT": str(port), "SEMEL_HOME": str(settings.home)}
        environ.pop("SEMEL_SERVER_PORT", None)
        flags = ["--json"] if desk.json else []
        children = [Child("serve", ["serve", *flags]), Child("upkeep", ["upkeep", *flags])]
        if app:
            children.append(Child("worker", ["worker", app, *flags]))

        def ready() -> bool:
            if not _is_ready(settings.server.host, port):
                return False
            _say(desk, app, port)
            return True

        code = Supervisor(children, environ).run(ready)
    if code:
        raise SystemExit(code)


def _free_port(server: config.Server) -> int:
    """The port to listen on, found to be free; names who has it otherwise."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((server.host, server.port))
        except OSError as error:
            who = listener(server.port)
            raise BadConfig(
                f"port {server.port} on {server.host} is not free ({who or error.strerror}):"
                " stop that, or set SEMEL_PORT to another"
            ) from None
        port: int = probe.getsockname()[1]
    return port


def _url(host: str, port: int) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - told apart, not bound
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def _is_ready(host: str, port: int) -> bool:
    shown = _url(host, port).removeprefix("http://").rpartition(":")[0].strip("[]")
    probe = HTTPConnection(shown, port, timeout=READY_SECONDS_MAX)
    try:
        probe.request("GET", "/readyz")
        return probe.getresponse().status == 200  # noqa: PLR2004
    except (OSError, HTTPException):
        return False
    finally:
        probe.close()


def _say(desk: Desk, app: str | None, port: int) -> None:
    """Where it is, and what to paste."""
    settings = desk.serving
    url = _url(settings.server.host, port)
    posting = curl(settings, app, url, Path.cwd())
    semel = _command()
    if desk.json:
        screen.line({"url": url, "curl": posting, "show": f"{semel} run show RUN_ID"})
        return
    screen.text(f"\nready: {url}")
    if posting:
        screen.text(f"\nSend an alert (twice: the second makes no run):\n\n  {posting}\n")
        screen.text(f"Then look at the run it names:\n\n  {semel} run show RUN_ID\n")
    screen.text("Ctrl-C stops everything.")


def curl(settings: config.Settings, app: str | None, url: str, cwd: Path) -> str | None:
    """The line that posts the application's alert.json; None without one or a source for it."""
    alert = Path((app or "").partition(":")[0]).parent / "alert.json"
    source = next((s for s in settings.sources.values() if s.channel == "alertmanager"), None)
    if app is None or source is None or not (cwd / alert).is_file():
        return None
    words = ["curl", "-sS", "-H", "Content-Type: application/json"]
    line = shlex.join(words)
    if source.secrets:
        kind, _, name = source.secrets[0].reference.partition(":")
        value = f"${name}" if kind == "env" else f"$(cat {shlex.quote(name)})"
        line += f' -H "Authorization: Bearer {value}"'
    target = f"{url}/in/{source.project}/{source.name}"
    return f"{line} --data-binary @{shlex.quote(str(alert))} {target}"


def _command() -> str:
    """How the person typed us, or may type us again."""
    if shutil.which("semel"):
        return "semel"
    typed = Path(sys.argv[0])
    if typed.name != "semel":
        return f"{sys.executable} -m semel"
    return os.path.relpath(typed)
