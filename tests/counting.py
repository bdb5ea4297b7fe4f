"""Between a client and PostgreSQL, to count connections and the times that the server has had its say."""

import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Counter:
    """Passes everything on, and counts ReadyForQuery: one for each round trip. Over Unix sockets."""

    def __init__(self, dsn: str, folder: Path) -> None:
        told = conninfo_to_dict(dsn)
        self._there = f"{told['host']}/.s.PGSQL.{told['port']}"
        self.dsn = make_conninfo(dsn, host=str(folder))
        self.trips = 0
        self.connections = 0
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(folder / f".s.PGSQL.{told['port']}"))
        self._door.listen()
        self._thread(self._accept)

    def close(self) -> None:
        """Close whatever is open."""
        _end(self._door)
        self._threads[0].join()  # whoever came in at the last moment is among the open ones
        for each in self._open:
            _end(each)
        for thread in self._threads:
            thread.join()
        for each in (self._door, *self._open):
            each.close()

    def _thread(self, target: object, *args: socket.socket) -> None:
        self._threads.append(threading.Thread(target=target, args=args))  # type: ignore[arg-type]
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                self.connections += 1
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._there)
                self._open += [client, server]
                self._thread(self._pass, client, server)
                self._thread(self._count, server, client)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _count(self, source: socket.socket, target: socket.socket) -> None:
        rest = b""
        with suppress(OSError):
            while data := source.recv(65536):
                rest += data
                while len(rest) >= 5:
                    end = 1 + int.from_bytes(rest[1:5])
                    if len(rest) < end:
                        break
                    self.trips += rest[:1] == b"Z"
                    rest = rest[end:]
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextmanager
def counted(dsn: str) -> Iterator[Counter]:
    """A way to *dsn* that counts."""
    folder = Path(tempfile.mkdtemp(prefix="semel-count-"))
    counter = Counter(dsn, folder)
    try:
        yield counter
    finally:
        counter.close()
        shutil.rmtree(folder)


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
