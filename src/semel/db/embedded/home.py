"""
Home: the names of all files below SEMEL_HOME, and who may use them.

Only its owner uses a home. It and all in it are made by us and closed to others; folders
above it are the user's and keep the modes they have.
"""

import json
import os
import pwd
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .errors import EmbeddedError

__all__ = ["Home", "Plan", "Ready", "open_home", "read_home"]

LOG_BYTES_MAX = 10 * 2**20  # Looked at when a server starts; one older file is kept.
OTHERS_WRITE = 0o002


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a starter asks of the supervisor it is about to start."""

    bin: str  # The folder with `postgres` and `initdb`, reachable for the account.
    version: str  # As `postgres -V` tells, "18.6".
    account: str | None  # The account the server runs as; None: as ourselves.
    settings: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What a supervisor tells of a server that accepts connections."""

    postmaster_pid: int
    version: str
    socket_dir: str


@dataclass(frozen=True, slots=True)
class Home:
    """The names below one SEMEL_HOME; `path` is absolute and free of links."""

    path: Path

    @property
    def data(self) -> Path:
        """The data directory. It exists only when `initdb` came to its end."""
        return self.path / "data"

    @property
    def socket_dir(self) -> Path:
        """The socket's folder, when its name is short enough for one."""
        return self.path / "s"

    @property
    def socket_elsewhere(self) -> Path:
        """Names the folder that replaces `socket_dir` when it is too long."""
        return self.path / "socket_dir.txt"

    @property
    def log(self) -> Path:
        """What the server, `initdb` and the supervisor have to say."""
        return self.path / "postgres.log"

    @property
    def door(self) -> Path:
        """Lock: asking who supervises, and acting on the answer, is one step."""
        return self.path / "door.lock"

    @property
    def users(self) -> Path:
        """Lock: shared by the users; taken alone by a supervisor whose last user left."""
        return self.path / "users.lock"

    @property
    def supervisor(self) -> Path:
        """Lock: of the one supervisor; its process number is the content."""
        return self.path / "supervisor.lock"

    @property
    def server(self) -> Path:
        """Lock: inherited by the postmaster and all its children."""
        return self.path / "server.lock"

    @property
    def plan(self) -> Path:
        """The `Plan`."""
        return self.path / "plan.json"

    @property
    def ready(self) -> Path:
        """The `Ready`; believed only while a supervisor holds its lock."""
        return self.path / "ready.json"

    @property
    def error(self) -> Path:
        """Why the last supervisor gave up."""
        return self.path / "error.txt"

    @property
    def keep(self) -> Path:
        """Present: the server stays when its last user leaves."""
        return self.path / "keep"

    @property
    def halted(self) -> Path:
        """Present: it was told to stop, and nobody has asked for it since."""
        return self.path / "halted"

    def put(self, path: Path, content: str) -> None:
        """Write *content* to *path* whole or not at all."""
        fd, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=self.path)
        with os.fdopen(fd, "w") as file:
            file.write(content)
        Path(name).replace(path)

    def put_json(self, path: Path, value: Plan | Ready) -> None:
        """Write *value* to *path* whole or not at all."""
        self.put(path, json.dumps(asdict(value), indent=1) + "\n")

    def read_plan(self) -> Plan:
        """Return the plan of the starter."""
        return Plan(**json.loads(self.plan.read_text()))

    def read_ready(self) -> Ready | None:
        """Return what the supervisor told last, or None."""
        try:
            value: dict[str, Any] = json.loads(self.ready.read_text())
        except FileNotFoundError:
            return None
        return Ready(**value)

    def read_error(self) -> str | None:
        """Return why the last supervisor gave up, or None."""
        try:
            return self.error.read_text().strip()
        except FileNotFoundError:
            return None

    def rotate_log(self) -> None:
        """Set a log aside that has grown past its limit."""
        try:
            if self.log.stat().st_size > LOG_BYTES_MAX:
                self.log.replace(self.log.with_name("postgres.log.1"))
        except FileNotFoundError:
            pass


def read_home(path: Path) -> Home | None:
    """
    Return the home at *path*, or None when there is none. Makes nothing.

    Raises:
        EmbeddedError: It belongs to another account, or others may write to it.
    """
    home = Home(Path(path).expanduser().resolve())
    try:
        found = home.path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(home, str(error)) from error
    if found.st_uid != os.geteuid():
        raise _unusable(
            home, f"it belongs to {_name(found.st_uid)}, we are {_name(os.geteuid())}"
        )
    if found.st_mode & OTHERS_WRITE:
        raise _unusable(home, "everyone may write to it")
    return home


def open_home(path: Path) -> Home:
    """
    Return the home at *path*; make it when absent.

    Raises:
        EmbeddedError: As `read_home`, or it cannot be made.
    """
    home = read_home(path)
    if home is not None:
        return home
    home = Home(Path(path).expanduser().resolve())
    try:
        # Root's server runs under another account, which may have to pass through.
        home.path.mkdir(mode=0o700 if os.geteuid() else 0o711, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(home, str(error)) from error
    return home


def _unusable(home: Home, why: str) -> EmbeddedError:
    return EmbeddedError(
        f"home {home.path} cannot be used: {why}; set SEMEL_HOME to a folder of your own",
        log=home.log,
    )


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
