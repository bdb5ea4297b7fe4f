"""
Cluster: one data directory, and the postmaster on it.

Root's account may be unable to pass the folders above HOME (/root is closed), and those
are not ours to open. On Linux root therefore opens the data directory and the socket's
folder, and hands the descriptors down: `/proc/self/fd/N` leads the server straight to
them. So data never leaves HOME, and no folder above it changes.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from . import processes
from .account import Account
from .binaries import Binaries
from .errors import EmbeddedError
from .home import Home, Plan
from .locks import POLL_SECONDS, Lock, try_take

__all__ = ["check_version", "is_ready", "make", "name", "silence", "spawn", "speaks"]

PORT = 5432  # Part of the socket's name only; nothing listens on the network.
BY_DESCRIPTOR = sys.platform == "linux"
ORPHAN_SECONDS = (1.0, 5.0)  # Backends without postmaster: SIGQUIT, then SIGKILL.

# What a small durable server wants; a caller's settings come after and win.
DEFAULTS = {
    "max_connections": "200",
    "shared_buffers": "128MB",
    "autovacuum_naptime": "5s",  # Queue tables die fast.
    "jit": "off",  # Our statements are short; compiling them is not.
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] %d ",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


def name(data: Path) -> str:
    """Return the cluster's name: in the command line of each of its processes, unique here."""
    found = data.stat()
    return f"semel-{found.st_dev:x}-{found.st_ino:x}"


def check_version(home: Home, binaries: Binaries) -> None:
    """Refuse data of another major version. Touches nothing."""
    if not home.data.exists():
        return
    try:
        found = (home.data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        raise EmbeddedError(
            f"{home.data} is no PostgreSQL data directory; move it away", log=home.log
        ) from None
    if found != str(binaries.major):
        raise EmbeddedError(
            f"data {home.data} is of PostgreSQL {found}, binaries {binaries.bin} are "
            f"{binaries.version}; set SEMEL_PG_BIN to binaries of {found}, or dump there, "
            "move the data away, and load here",
            log=home.log,
        )


def make(home: Home, plan: Plan, account: Account) -> None:
    """
    Make the data directory if there is none.

    It is made under another name, and renamed when whole: a killed initdb never looks
    finished. Remains of one are swept.
    """
    if home.data.exists():
        return
    for remains in home.path.glob("data.new-*"):
        shutil.rmtree(remains, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix="data.new-", dir=home.path))
    os.chown(new, account.uid, account.gid)
    locale = "C.UTF-8" if sys.platform == "linux" else "C"  # macOS has no C.UTF-8.
    # fmt: off
    command = [f"{plan.bin}/initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8",
               f"--locale={locale}"]
    # fmt: on
    if plan.settings.get("fsync") == "off":
        command.append("--no-sync")
    with _path_for(new, account) as (path, fds):
        child = subprocess.Popen(
            [*command, "-D", path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # It ends with advice that does not hold here.
            cwd="/",
            env=_environ(),
            pass_fds=fds,
            preexec_fn=_follow(signal.SIGKILL),  # noqa: PLW1509 - the supervisor has one thread here
            **account.switch,
        )
        if child.wait():
            raise EmbeddedError(f"initdb ended with {child.returncode}", log=home.log)
    new.rename(home.data)
    folder = os.open(home.path, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def spawn(
    home: Home, plan: Plan, account: Account, socket_dir: Path, lock: Lock
) -> subprocess.Popen[bytes]:
    """
    Start a postmaster that holds *lock*, which it takes from us, with all its children.

    Nobody else may have run on this data: *lock* proves it. What a killed postmaster left
    behind is removed, or its number, used by another process now, would stop this one.
    """
    (home.data / "postmaster.pid").unlink(missing_ok=True)
    for stale in socket_dir.glob(".s.PGSQL.*"):
        stale.unlink()
    with ExitStack() as opened:
        lock_fd = lock.detach()
        opened.callback(os.close, lock_fd)
        data, data_fds = opened.enter_context(_path_for(home.data, account))
        socket, socket_fds = opened.enter_context(_path_for(socket_dir, account))
        settings = {
            **DEFAULTS,
            **plan.settings,
            "cluster_name": name(home.data),
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": socket,
            "unix_socket_permissions": "0700",  # The owner, and root.
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return subprocess.Popen(
            [f"{plan.bin}/postgres", "-D", data, *options],
            stdin=subprocess.DEVNULL,
            cwd="/",
            env=_environ(),
            pass_fds=(lock_fd, *data_fds, *socket_fds),
            preexec_fn=_follow(signal.SIGINT),  # noqa: PLW1509 - the other thread only waits in flock
            **account.switch,
        )


def speaks(home: Home, pid: int) -> bool:
    """Tell whether postmaster *pid* has its signal handlers: it wrote its pid file."""
    return _pid_file(home)[:1] == [str(pid)]


def is_ready(home: Home, pid: int) -> bool:
    """Tell whether postmaster *pid* says that it accepts connections."""
    lines = _pid_file(home)
    return lines[:1] == [str(pid)] and [line.strip() for line in lines[7:8]] == ["ready"]


def silence(home: Home, *, deadline: float) -> Lock:
    """
    Return the server's lock once no process of the cluster is left.

    A postmaster without supervisor is asked for a fast shutdown (on Linux it has begun
    already). Backends without postmaster are hurried.

    Raises:
        TimeoutError: Some were left at *deadline*.
    """
    begun = time.monotonic()
    asked: set[int] = set()
    while (lock := try_take(home.server)) is None:
        now = time.monotonic()
        if now >= deadline:
            raise TimeoutError(home.server)
        members = processes.find(name(home.data))
        head = {int(line) for line in _pid_file(home)[:1]} & members
        if head:
            processes.send(head - asked, signal.SIGINT)
            asked |= head
        elif now - begun > ORPHAN_SECONDS[1]:
            processes.send(members, signal.SIGKILL)
        elif now - begun > ORPHAN_SECONDS[0]:
            processes.send(members, signal.SIGQUIT)
        time.sleep(POLL_SECONDS)
    return lock


def _pid_file(home: Home) -> list[str]:
    try:
        return (home.data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


@contextmanager
def _path_for(
    folder: Path, account: Account
) -> Generator[tuple[str, tuple[int, ...]], None, None]:
    """Yield a path that leads *account* to *folder*, and the descriptors it goes through."""
    if account.name is None or not BY_DESCRIPTOR:
        yield str(folder), ()
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield f"/proc/self/fd/{fd}", (fd,)
    finally:
        os.close(fd)


def _environ() -> dict[str, str]:
    """Our environment without what would steer PostgreSQL past its arguments."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    return {**kept, "LC_ALL": "C"}


def _follow(number: signal.Signals) -> Callable[[], None] | None:
    """Return what a child runs first so that it gets *number* when we die. Linux only."""
    if sys.platform != "linux":
        return None
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def follow() -> None:
        prctl(1, number)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # We died before the line above.
            os._exit(1)

    return follow
