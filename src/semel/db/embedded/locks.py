"""
Locks: the only truth about who lives.

Every lock is a `flock` on a file of HOME. The kernel gives it back when its holder ends,
however it ended, so no list of process numbers can go stale here. No lock outlives an
`exec` unless it is passed on purpose, and none outlives a `fork`: a child that wants the
server calls `use` itself.
"""

import fcntl
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Lock", "held", "is_free", "take", "try_take"]

POLL_SECONDS = 0.02  # Long against a lock's cost (50 us), short against a start (500 ms).

_open: set["Lock"] = set()
_gate = threading.RLock()  # Held over a fork: no lock is half born in the child.


class Lock:
    """One held lock. `close` gives it back, `detach` gives it away."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        """Close our descriptor; the lock is free once all copies are closed. Idempotent."""
        with _gate:
            if self in _open:
                _open.discard(self)
                os.close(self.fd)

    def detach(self) -> int:
        """Return the descriptor, for a child to inherit. Closing it is the caller's now."""
        with _gate:
            _open.remove(self)
        return self.fd


def try_take(path: Path, *, shared: bool = False) -> Lock | None:
    """Take the lock on *path*, or return None when another holder excludes us."""
    with _gate:
        lock = Lock(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        _open.add(lock)
    try:
        fcntl.flock(lock.fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    except BaseException:
        lock.close()
        raise
    return lock


def take(path: Path, *, deadline: float, shared: bool = False) -> Lock:
    """
    Take the lock on *path* before *deadline*.

    Args:
        path: The lock file; made when absent.
        deadline: A moment of `time.monotonic`.
        shared: Together with other shared holders.

    Raises:
        TimeoutError: Another holder kept it until *deadline*.
    """
    while (lock := try_take(path, shared=shared)) is None:
        if time.monotonic() >= deadline:
            raise TimeoutError(path)
        time.sleep(POLL_SECONDS)
    return lock


def is_free(path: Path, *, shared: bool = False) -> bool:
    """Tell whether `try_take` would succeed. Ask inside the door only."""
    lock = try_take(path, shared=shared)
    if lock:
        lock.close()
    return lock is not None


@contextmanager
def held(path: Path, *, deadline: float) -> Generator[None, None, None]:
    """Hold the lock on *path* for a block; as `take`."""
    lock = take(path, deadline=deadline)
    try:
        yield
    finally:
        lock.close()


def _forget_in_child() -> None:
    """Close, never unlock: an unlock in the child would unlock the parent too."""
    for lock in tuple(_open):
        lock.close()
    _gate.release()


os.register_at_fork(
    before=_gate.acquire,
    after_in_parent=_gate.release,
    after_in_child=_forget_in_child,
)
