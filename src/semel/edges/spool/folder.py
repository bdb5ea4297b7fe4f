"""
Folder: the spool of one process. It holds a lock as long as it lives, and a second one is refused.

    lock            who has it; the lock goes with the process
    id              of this folder, so that the database can tell spools apart
    sources/P/S/    the segments of source S of project P
    damaged/        what could not be read, byte for byte, for a person
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from semel import log
from semel.config.settings import PROJECT, SOURCE
from semel.edges.spool.files import Files
from semel.edges.spool.queue import Bound, Queue
from semel.edges.spool.seal import Keys
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from semel.config.spool import SpoolSettings

FILE_BYTES_MAX = 4 * 1024 * 1024
#: A file is given back when all of it is drained, so the bound holds several.
FILES_MIN = 8


class Folder:
    """
    The queues of a spool: one for each source that has anything waiting, or gets something.

    Raises:
        BadConfig: another process has it, it cannot be written, or a key is missing.
    """

    def __init__(self, settings: SpoolSettings) -> None:
        self.path = settings.folder
        self._keys = Keys(settings.keys_read())
        self._file_bytes_max = min(FILE_BYTES_MAX, settings.bytes_max // FILES_MIN)
        self.bound = Bound(settings.bytes_max, lambda: self.bytes)
        self.refused: Counter[str] = Counter()  # arrivals that it did not take, by source
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="semel-spool")
        self._queues: dict[tuple[str, str], Queue] = {}
        self._follower: Callable[[Queue], None] = lambda _queue: None
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = (self.path / "lock").open("a+")
        except OSError as error:
            raise self._unfit(error) from error
        try:
            self._take()
            self.id = self._named()
            self._recover()
        except OSError as error:
            self._lock.close()
            raise self._unfit(error) from error
        except BadConfig:
            self._lock.close()
            raise

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{socket.gethostname()}:{self.path.resolve()}"[:250]

    @property
    def bytes(self) -> int:
        """What all files take on the disk."""
        return sum(queue.files.size for queue in self._queues.values())

    @property
    def damaged(self) -> int:
        """Pieces that could not be read since the start."""
        return sum(queue.files.damaged for queue in self._queues.values())

    def queues(self) -> list[Queue]:
        """Those there are."""
        return list(self._queues.values())

    def queue(self, project: str, source: str) -> Queue:
        """That of a source."""
        found = self._queues.get((project, source))
        return found or self._add(project, source)

    def follow(self, follower: Callable[[Queue], None]) -> None:
        """Have *follower* told of every queue that is open, or gets something."""
        self._follower = follower
        for queue in self._queues.values():
            if queue.is_open:
                follower(queue)

    def opened(self, queue: Queue) -> None:
        """Something of *queue* is on the disk."""
        self._follower(queue)

    async def close(self) -> None:
        """End what is being written, and let another process have it."""
        for queue in self._queues.values():
            await queue.settle()
            await queue.in_thread(queue.files.close)
        self._thread.shutdown()
        self._lock.close()

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            who = self._lock.read(20).strip() or "unknown"
            raise BadConfig(
                f"[spool] path {self.path} is in use by process {who}: each ingress needs a"
                " folder of its own"
            ) from None
        self._lock.truncate(0)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()

    def _named(self) -> UUID:
        told = self.path / "id"
        with suppress(FileNotFoundError, ValueError):
            return UUID(told.read_text().strip())
        made = uuid4()
        told.write_text(f"{made}\n")
        return made

    def _recover(self) -> None:
        for folder in _folders(_folders([self.path / "sources"])):
            project, source = folder.parts[-2:]
            if PROJECT.fullmatch(project) and SOURCE.fullmatch(source):
                queue = self._add(project, source)
                if queue.count:
                    log.event(
                        "spool.found", project=project, source=source, records=queue.count
                    )

    def _add(self, project: str, source: str) -> Queue:
        files = Files(
            self.path / "sources" / project / source,
            self._keys,
            aside=self.path / "damaged",
            file_bytes_max=self._file_bytes_max,
        )
        queue = Queue(
            project,
            source,
            files=files,
            waiting=files.recover(),
            bound=self.bound,
            thread=self._thread,
        )
        queue.opened = self.opened
        self._queues[project, source] = queue
        return queue

    def _unfit(self, error: OSError) -> BadConfig:
        return BadConfig(
            f"[spool] path {self.path} cannot be used: {error.strerror or error}; name a folder"
            " on a local disk that this account may write"
        )


def _folders(above: Iterable[Path]) -> list[Path]:
    return sorted(
        each for one in above if one.is_dir() for each in one.iterdir() if each.is_dir()
    )
