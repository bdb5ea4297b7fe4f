"""
Supervisor: keep a few processes running, and leave none behind.

A child that ends is started again after a pause that grows while it keeps ending early. Each
has a process group of its own, so that Ctrl-C in a terminal reaches only us; a stop is SIGTERM
to all, ten seconds, then SIGKILL. Should we be killed ourselves, the leash ends them. A child
that ends with exit code 2 was misused: no restart mends that, so all stop.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from semel import log
from semel.ops.leash import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

STOP_SECONDS_MAX = 10.0
#: The pause before a restart: doubled while a child ends within STEADY_SECONDS of its start.
PAUSE_SECONDS = 0.5
PAUSE_SECONDS_MAX = 30.0
STEADY_SECONDS = 30.0
MISUSED = 2


class Child:
    """One process that is to be there."""

    def __init__(self, name: str, words: Sequence[str]) -> None:
        self.name = name
        self._words = [sys.executable, "-m", "semel", *words]
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._start_at = 0.0
        self._pause = PAUSE_SECONDS

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        if self._process is None:
            return False
        # Looked at, not reaped: until `kill`, its number and its group are nobody else's.
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, look) is None

    def tend(self, leash: int, environ: Mapping[str, str]) -> int | None:
        """Start it when it is due; answers its exit code when it has ended just now."""
        if self._process is None:
            if time.monotonic() >= self._start_at:
                self._start(leash, environ)
            return None
        if self.alive:
            return None
        code = self.kill()
        lived = time.monotonic() - self._started_at
        self._pause = (
            PAUSE_SECONDS if lived > STEADY_SECONDS else min(2 * self._pause, PAUSE_SECONDS_MAX)
        )
        self._start_at = time.monotonic() + self._pause
        return code

    def ask(self) -> None:
        """Ask it to stop."""
        if self._process is not None and self.alive:
            self._process.terminate()

    def kill(self) -> int | None:
        """End it and what it left in its group, at once; answers its exit code."""
        process, self._process = self._process, None
        if process is None:
            return None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait()

    def restart_in(self) -> float:
        """Seconds until it is started again."""
        return max(0.0, self._start_at - time.monotonic())

    def _start(self, leash: int, environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            self._words,
            env={**environ, VARIABLE: str(leash)},
            stdin=subprocess.DEVNULL,
            pass_fds=[leash],
            process_group=0,
        )
        self._started_at = time.monotonic()
        log.event("process.started", process=self.name, pid=self._process.pid)


class Supervisor:
    """Tends its children until a signal, a misuse, or *stop*."""

    def __init__(self, children: Sequence[Child], environ: Mapping[str, str]) -> None:
        self._children = children
        self._environ = environ
        self._asked = 0

    def run(self, ready: Callable[[], bool]) -> int:
        """
        Keep the children running; answers the exit code.

        Args:
            ready: Called between looks until it answers true.
        """
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self._ask)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup wants it
            signal.signal(signal.SIGHUP, self._ask)
        reading, writing = os.pipe()
        code = 0
        is_ready = False
        try:
            while not self._asked and code != MISUSED:
                for child in self._children:
                    ended = child.tend(reading, self._environ)
                    if ended is not None:
                        log.event(
                            "process.ended",
                            process=child.name,
                            reason=_reason(ended),
                            restart_s=round(child.restart_in(), 1),
                        )
                        code = ended
                is_ready = is_ready or ready()
                time.sleep(0.1)
        finally:
            self._stop()
            os.close(writing)
            os.close(reading)
        return code if code == MISUSED else 0

    def _ask(self, _signum: int, _frame: object) -> None:
        self._asked += 1

    def _stop(self) -> None:
        """End all: asked first, then killed; a second signal kills at once."""
        asked = self._asked
        deadline = time.monotonic() + STOP_SECONDS_MAX
        for child in self._children:
            child.ask()
        while (
            any(child.alive for child in self._children)
            and time.monotonic() < deadline
            and self._asked == asked
        ):
            time.sleep(0.05)
        for child in self._children:
            child.kill()


def _reason(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
