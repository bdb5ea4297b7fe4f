"""Between a client and a server of HTTP, to lose an answer after the server has given it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Dropper:
    """Passes everything on, but the next answers that `lose` counts: their connections close."""

    def __init__(self, port: int) -> None:
        self._there = ("127.0.0.1", port)
        self._loses = 0
        self.dropped = 0
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self._thread(self._accept)

    def lose(self, answers: int = 1) -> None:
        """Lose the next answers."""
        self._loses = answers

    def close(self) -> None:
        _end(self._door)
        self._threads[0].join()  # whoever came in at the last moment is among the open ones
        for each in self._open:
            _end(each)
        for thread in self._threads:
            thread.join()
        for each in (self._door, *self._open):
            each.close()

    def _thread(self, target: object, *args: socket.socket) -> None:
        assert callable(target)
        self._threads.append(threading.Thread(target=target, args=args))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                server = socket.create_connection(self._there)
                self._open += [client, server]
                self._thread(self._pass, client, server)
                self._thread(self._answer, server, client)

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
        _end(server)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if self._loses:
                    self._loses -= 1
                    self.dropped += 1
                    break
                client.sendall(data)
        _end(client)
        _end(server)


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)


@contextmanager
def dropper(port: int) -> Iterator[Dropper]:
    """A way to *port* that loses what it is told to."""
    between = Dropper(port)
    try:
        yield between
    finally:
        between.close()
