"""
Server: what a user process does with the embedded server.

`use` holds a shared lock while it needs the server, and finds or starts a supervisor. All
it does before is bounded by one deadline. It holds no other lock when it returns.
"""

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Literal, Self

from . import locks, sockets
from .binaries import find_psql
from .errors import EmbeddedError
from .home import Home, open_home, read_home
from .locks import Lock
from .starter import await_ready, end

__all__ = ["Server", "Status", "keep", "psql", "status", "stop", "use"]

STOP_SECONDS_MAX = 90.0  # More than the supervisor's own limit.
LOOK_SECONDS_MAX = 10.0
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that stays at least until `close`, or until `stop` is called for its home."""

    dsn: str  # libpq conninfo: database and user postgres, over the unix socket
    home: Path
    socket_dir: Path
    log: Path
    postmaster_pid: int  # At the time of `use`; a killed postmaster is replaced.
    version: str  # "18.6"
    _lock: Lock = field(repr=False, compare=False)

    def close(self) -> None:
        """Need the server no longer. Idempotent."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What is known of a home's server."""

    state: Literal["running", "changing", "stopped"]  # changing: it starts, recovers or stops
    postmaster_pid: int | None
    version: str | None
    home: Path
    data: Path
    socket_dir: Path | None
    log: Path
    users: bool  # At least one process uses it.
    kept: bool  # It stays without users.
    halted: bool  # It was told to stop, and nobody has asked for it since.
    error: str | None  # Why the last supervisor gave up.


def use(
    home: Path, *, settings: Mapping[str, str] = NO_SETTINGS, start_seconds_max: float = 60
) -> Server:
    """
    Return the running server of *home*; start it when it is not.

    Any number of threads and processes may call this at once; they share one server.

    Args:
        home: Made when absent. The data, the log and the socket live in it.
        settings: PostgreSQL settings for a server that this call starts; ignored when it
            runs already. `fsync=off` is for tests only.
        start_seconds_max: For everything, a crash recovery included.

    Raises:
        EmbeddedError: The server cannot be started, or not in time.
    """
    place = open_home(home)
    deadline = time.monotonic() + start_seconds_max
    with ExitStack() as undo:
        try:
            lock = locks.take(place.users, deadline=deadline, shared=True)
            undo.callback(lock.close)
            place.halted.unlink(missing_ok=True)
            ready = await_ready(place, settings, deadline=deadline)
        except TimeoutError:
            raise EmbeddedError(
                f"server of {place.path} not ready within {start_seconds_max:g} s; a recovery "
                f"or a shutdown may go on: try again",
                log=place.log,
                show_log=True,
            ) from None
        except OSError as error:
            raise EmbeddedError(f"home {place.path}: {error}", log=place.log) from error
        undo.pop_all()
    folder = Path(ready.socket_dir)
    return Server(
        dsn=sockets.dsn(folder),
        home=place.path,
        socket_dir=folder,
        log=place.log,
        postmaster_pid=ready.postmaster_pid,
        version=ready.version,
        _lock=lock,
    )


def keep(home: Path, *, settings: Mapping[str, str] = NO_SETTINGS) -> None:
    """
    Start the server of *home* and let it stay without users, until `stop`.

    A file in HOME says so; the supervisor looks for it when its last user leaves.
    """
    with use(home, settings=settings) as server:
        place = Home(server.home)
        place.put(place.keep, "semel db stop ends it\n")


def stop(home: Path) -> bool:
    """
    Shut the server of *home* down, users or not, and return when it is gone.

    Returns:
        True when something was running.

    Raises:
        EmbeddedError: It is still there after STOP_SECONDS_MAX.
    """
    place = read_home(home)
    if place is None:
        return False
    place.keep.unlink(missing_ok=True)
    place.put(place.halted, "semel db start, or whoever uses it next, starts it again\n")
    try:
        return end(place, deadline=time.monotonic() + STOP_SECONDS_MAX)
    except TimeoutError:
        raise EmbeddedError(
            f"server of {place.path} does not stop", log=place.log, show_log=True
        ) from None


def status(home: Path) -> Status:
    """Return what is known of the server of *home*. Starts and makes nothing."""
    found = read_home(home)
    place = found or Home(Path(home).expanduser().resolve())
    ready, changing, users = None, False, False
    if found and place.door.exists():
        try:
            with locks.held(place.door, deadline=time.monotonic() + LOOK_SECONDS_MAX):
                if not locks.is_free(place.supervisor):
                    ready = place.read_ready()
                    changing = ready is None
                # A supervisor that shuts down holds this lock alone: no users then.
                users = locks.is_free(place.users, shared=True) > locks.is_free(place.users)
        except TimeoutError:
            raise EmbeddedError(
                f"home {place.path}: another process is busy starting a server for "
                f"{LOOK_SECONDS_MAX:g} s; try again",
                log=place.log,
            ) from None
    return Status(
        state="running" if ready else "changing" if changing else "stopped",
        postmaster_pid=ready.postmaster_pid if ready else None,
        version=ready.version if ready else None,
        home=place.path,
        data=place.data,
        socket_dir=Path(ready.socket_dir) if ready else None,
        log=place.log,
        users=users,
        kept=place.keep.exists(),
        halted=place.halted.exists(),
        error=place.read_error(),
    )


def psql(home: Path) -> list[str]:
    """
    Return the command that opens `psql` on the running server of *home*.

    Raises:
        EmbeddedError: It does not run, or there is no psql.
    """
    found = status(home)
    if found.socket_dir is None:
        raise EmbeddedError(
            f"server of {found.home} is {found.state}; start it: semel db start", log=found.log
        )
    return [str(find_psql(Home(found.home), os.environ)), sockets.dsn(found.socket_dir)]
