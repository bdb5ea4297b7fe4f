"""
Sockets: where a server is met.

The folder is below HOME. When that name is too long for a socket, or has letters that
libpq reads as a list, a short folder in the system's temporary place is used instead, and
its name is kept in HOME. A folder found there again is used only when it is still ours.
"""

import os
import shutil
import socket
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from .account import Account
from .cluster import PORT
from .home import Home, Ready

__all__ = ["answer", "dsn", "knock", "listen", "make", "remove"]

PATH_BYTES_MAX = 107 if sys.platform == "linux" else 103  # sun_path less its final zero
KNOCK_SECONDS_MAX = 5.0
PREFIX = "semel-"
SUPERVISOR = ".supervisor"  # No longer than PostgreSQL's own name, so it fits too.
CLOSED_FOLDER = stat.S_IFDIR | 0o700
SSL_REQUEST = (
    b"\0\0\0\x08\x04\xd2\x16\x2f"  # Source: PostgreSQL, "Message Formats", SSLRequest.
)


def make(home: Home, account: Account) -> Path:
    """Return the folder for the socket: made, closed to all but *account* and root."""
    folder = home.socket_dir
    if _fits(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
    else:
        folder = _recorded(home, account) or _elsewhere(home)
    os.chown(folder, account.uid, account.gid)
    return folder


def remove(home: Home, folder: Path) -> None:
    """Remove a folder that is not below HOME."""
    if folder != home.socket_dir:
        shutil.rmtree(folder, ignore_errors=True)
        home.socket_elsewhere.unlink(missing_ok=True)


def dsn(folder: Path) -> str:
    """Return the conninfo that leads to the server of *folder*."""
    host = str(folder).replace("\\", "\\\\").replace("'", "\\'")
    return f"host='{host}' port={PORT} user=postgres dbname=postgres"


def listen(folder: Path) -> socket.socket:
    """Return the supervisor's own socket in *folder*; see `knock`."""
    path = folder / SUPERVISOR
    path.unlink(missing_ok=True)
    line = socket.socket(socket.AF_UNIX)
    line.bind(str(path))
    line.listen()
    line.setblocking(False)
    return line


def answer(line: socket.socket) -> None:
    """Answer all who knock at the supervisor."""
    with suppress(OSError):  # BlockingIOError: that was the last one.
        while True:
            visitor, _ = line.accept()
            with visitor:
                visitor.send(b"+")


def knock(ready: Ready) -> bool:
    """
    Tell whether supervisor and server live now.

    A lock, a file and even a bare connect also belong to a process that was killed a
    moment ago; an answer does not. The server's question leaves no line in its log.
    """
    folder = Path(ready.socket_dir)
    return _reply(folder / SUPERVISOR, b"") and _reply(folder / f".s.PGSQL.{PORT}", SSL_REQUEST)


def _reply(path: Path, question: bytes) -> bool:
    with socket.socket(socket.AF_UNIX) as line, suppress(OSError):
        line.settimeout(KNOCK_SECONDS_MAX)
        line.connect(str(path))
        line.sendall(question)
        return line.recv(1) != b""
    return False


def _fits(folder: Path) -> bool:
    name = os.fsencode(folder / f".s.PGSQL.{PORT}")
    return len(name) <= PATH_BYTES_MAX and not set(str(folder)) & set(',"\n')


def _recorded(home: Home, account: Account) -> Path | None:
    """Return the folder used before: clients that lived on still look for it there."""
    with suppress(FileNotFoundError):
        folder = Path(home.socket_elsewhere.read_text().strip())
        found = folder.lstat()
        ours = found.st_mode == CLOSED_FOLDER and found.st_uid in (account.uid, os.geteuid())
        if ours and folder.name.startswith(PREFIX):
            return folder
    return None


def _elsewhere(home: Home) -> Path:
    base = tempfile.gettempdir()
    if not _fits(Path(base, PREFIX + 8 * "x")):
        base = "/tmp"  # noqa: S108 - mkdtemp makes a closed folder there
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    home.put(home.socket_elsewhere, str(folder))
    return folder
