"""Between a client and PostgreSQL, to lose one COMMIT: its request, its answer, or its way for a while."""

import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from psycopg.conninfo import conninfo_to_dict, make_conninfo

#: request: it never arrives. answer: it is done, and nobody is told. late: it arrives when `let` is called, and
#: its client is gone by then. held: the same, and its client waits.
Loss = Literal["request", "answer", "late", "held"]


class Cut:
    """Passes everything on, but the next COMMIT after `lose`. Over Unix sockets."""

    def __init__(self, dsn: str, folder: Path) -> None:
        told = conninfo_to_dict(dsn)
        self._there = f"{told['host']}/.s.PGSQL.{told['port']}"
        self.dsn = make_conninfo(dsn, host=str(folder))
        self._loss: Loss | None = None
        self._let = threading.Event()
        self._open: list[socket.socket] = []
        self._deaf: set[socket.socket] = set()  # clients that are told nothing any more
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(folder / f".s.PGSQL.{told['port']}"))
        self._door.listen()
        self._threads: list[threading.Thread] = []
        self._thread(self._accept)

    def lose(self, what: Loss) -> None:
        """Lose the next COMMIT."""
        self._loss = what

    @property
    def lost(self) -> bool:
        """Whether it was."""
        return self._loss is None

    def let(self) -> None:
        """A late COMMIT may arrive now."""
        self._let.set()

    def close(self) -> None:
        """Close whatever is open."""
        self._let.set()
        _end(self._door)
        self._threads[0].join()  # whoever came in at the last moment is among the open ones
        for each in self._open:
            _end(each)
        for thread in self._threads:
            thread.join()
        for each in (self._door, *self._open):
            each.close()

    def _thread(self, target: Callable[..., None], *args: socket.socket) -> None:
        self._threads.append(threading.Thread(target=target, args=args))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._there)
                self._open += [client, server]
                self._thread(self._to_server, client, server)
                self._thread(self._to_client, client, server)

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self._loss is not None and _commits(data):
                    loss, self._loss = self._loss, None
                    if loss == "held":
                        self._let.wait()
                        server.sendall(data)
                        continue
                    if loss == "answer":
                        self._deaf.add(client)
                        server.sendall(data)
                        continue
                    _end(client)
                    if loss == "late":
                        self._let.wait()
                        server.sendall(data)
                    break
                server.sendall(data)
        _end(server)

    def _to_client(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if client in self._deaf:
                    break
                client.sendall(data)
        _end(client)


def _commits(data: bytes) -> bool:
    """Whether a COMMIT is executed in *data*; to have it prepared, by name and text, is none."""
    return b"COMMIT" in data.upper().replace(b"SEMEL_COMMIT\0COMMIT\0", b"")


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)


@contextmanager
def cut(dsn: str) -> Iterator[Cut]:
    """A way to *dsn* that loses what it is told to."""
    folder = Path(tempfile.mkdtemp(prefix="semel-cut-"))
    between = Cut(dsn, folder)
    try:
        yield between
    finally:
        between.close()
        shutil.rmtree(folder)
