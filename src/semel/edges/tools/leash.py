"""
Leash: a stdio server of tools never outlives its worker.

    python leash.py COMMAND ARGS...

It stands between the two, executes the command in its own process group, and ends that group when
the worker is gone, however it went. Standard library only: it starts with each server.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1
#: Where the kernel does not tell of the worker's death, it is looked for this often.
LOOK_SECONDS = 1.0


def main(command: list[str]) -> int:
    """Execute *command* to its end, or to that of our parent."""
    parent = os.getppid()
    signal.signal(signal.SIGTERM, _end_all)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        child = subprocess.Popen(command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    while True:
        if os.getppid() != parent:
            _end_all()
        try:
            return child.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _end_all(*_: object) -> None:
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)  # ours alone
    sys.exit(main(sys.argv[1:]))
