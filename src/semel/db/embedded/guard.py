"""
Guard: a server that comes back while this process needs it.

A supervisor that is killed takes its server down with it, and only a call of `use` starts both
again. A process that lives long makes that call here. One that was told to stop, by `stop`, stays
down until somebody starts it.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager

from .errors import EmbeddedError
from .server import Server, status, stop, use

__all__ = ["guarded"]

LOOK_SECONDS = 1.0


@contextmanager
def guarded(server: Server) -> Generator[Server, None, None]:
    """Hold *server* until the block ends, and start it again whenever it has died."""
    leaving = threading.Event()
    held = [server]

    def watch() -> None:
        while not leaving.wait(LOOK_SECONDS):
            try:
                found = status(server.home)
                if found.state == "stopped" and not found.halted:
                    held.append(use(server.home))
                    held.pop(0).close()
                    if status(server.home).halted:
                        stop(server.home)  # told so while we were starting it
            except EmbeddedError:
                continue  # its log says why; the next look tries again

    thread = threading.Thread(target=watch, name="semel-guard", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        leaving.set()
        thread.join()
        for each in held:
            each.close()
