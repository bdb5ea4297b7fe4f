"""
Leash: a child of `semel up` never outlives it.

Each child holds the reading end of a pipe whose other end only the supervisor has. When the
supervisor is gone, however it went, the pipe ends and the child stops itself as if asked.
"""

from __future__ import annotations

import os
import signal
import threading
import time

#: Names the descriptor of the pipe to a child; absent for a process that nobody supervises.
VARIABLE = "_SEMEL_LEASH"
#: How long a child may drain after its supervisor has gone.
DRAIN_SECONDS_MAX = 10.0


def follow() -> None:
    """Stop this process when its supervisor is gone; without a supervisor, nothing."""
    told = os.environ.pop(VARIABLE, None)
    if told is not None:
        os.set_inheritable(int(told), False)
        threading.Thread(
            target=_watch, args=(int(told),), name="semel-leash", daemon=True
        ).start()


def _watch(fd: int) -> None:
    while os.read(fd, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(DRAIN_SECONDS_MAX)
    os.kill(os.getpid(), signal.SIGKILL)
