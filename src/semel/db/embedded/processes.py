"""
Processes: find those of one server by their command line.

A number from a file is never trusted: it may belong to another process by now. Every
process of our servers carries its cluster's name in its command line, which anyone may
read (its working directory only with CAP_SYS_PTRACE). Zombies have no command line.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["find", "send"]


def find(word: str) -> set[int]:
    """Return the numbers of all processes with *word* in their command line, but ours."""
    rows = _linux() if sys.platform == "linux" else _others()
    return {pid for pid, command in rows if word in command} - {os.getpid()}


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send signal *number* to those of *pids* that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _linux() -> Iterable[tuple[int, str]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # It ended while we looked.
                command = (folder / "cmdline").read_bytes()
                yield int(folder.name), command.replace(b"\0", b" ").decode(errors="replace")


def _others() -> Iterable[tuple[int, str]]:
    listing = subprocess.run(
        ["/bin/ps", "-axwwo", "pid=,command="], capture_output=True, text=True, check=True
    )
    for line in listing.stdout.splitlines():
        pid, _, command = line.strip().partition(" ")
        yield int(pid), command
