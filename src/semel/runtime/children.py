"""
Children: start, reuse and stop the processes that execute handlers for this worker.

A child is reused after it answered; one that was stopped, or died, is never heard again. Its
death is an outcome like any other.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from semel.runtime.child import encode, outcome_of
from semel.runtime.outcome import RESULT_BYTES_MAX, Crashed, Outcome
from semel.runtime.tools import told_of

if TYPE_CHECKING:
    from semel.config import Settings
    from semel.model import Claim

#: A result travels as JSON in JSON, where a character may take six.
LINE_BYTES_MAX = 8 * RESULT_BYTES_MAX


def desk_of(settings: Settings, dsn: str) -> bytes:
    """What a child needs to journal, as one line."""
    approvals = settings.approvals
    told = {
        "dsn": dsn,
        "prepare": not settings.pooler,
        "notifiers": list(settings.notifiers),
        "notify": list(approvals.notify),
        "ttl": approvals.ttl.total_seconds(),
        "tools": told_of(settings.tools),
    }
    return json.dumps(told).encode() + b"\n"


class Child:
    """One process and the socket to it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, target: str, desk: bytes) -> Child:
        """Start a child that serves the application *target* and journals as *desk* says."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "semel.runtime.child",
                target,
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a handler that kills its process group kills only its own
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=LINE_BYTES_MAX)
        # Over the socket, since the DSN has a password and others see a process's arguments.
        writer.write(desk)
        return cls(process, reader, writer)

    async def execute(self, claim: Claim) -> Outcome:
        """Have the child work on *claim*."""
        try:
            self._writer.write(encode(claim))
            await self._writer.drain()
            line = await self._reader.readline()
        except (OSError, ValueError):
            line = b""
        if not line.endswith(b"\n"):
            self.kill()
            return Crashed(_epitaph(await self._process.wait()))
        return outcome_of(line)

    def kill(self) -> None:
        """End it now, with whatever it started in its session."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._writer.close()

    async def gone(self) -> None:
        """Return when the process has ended."""
        await self._process.wait()


class Children:
    """
    The children of one worker, idle ones kept for the next run.

    Args:
        desk: What a child journals with, as one line of JSON.
    """

    def __init__(self, target: str, desk: bytes) -> None:
        self._target = target
        self._desk = desk
        self._idle: list[Child] = []
        self._all: set[Child] = set()

    async def execute(self, claim: Claim, *, fresh: bool = False) -> Outcome:
        """
        Execute *claim* in a child; killed with it when this task is cancelled.

        Args:
            fresh: In a child that nobody used before and nobody will use after.
        """
        child = (
            self._idle.pop()
            if self._idle and not fresh
            else await Child.start(self._target, self._desk)
        )
        self._all.add(child)
        reusable = False
        try:
            outcome = await child.execute(claim)
            reusable = not fresh and not isinstance(outcome, Crashed)
            return outcome
        finally:
            if reusable:
                self._idle.append(child)
            else:
                child.kill()
                self._all.discard(child)
                await child.gone()  # its run may be undone from now on

    def kill(self) -> None:
        """End every child."""
        for child in self._all:
            child.kill()
        self._idle.clear()


def _epitaph(status: int) -> str:
    if status < 0:
        return f"the process was killed by {signal.Signals(-status).name}"
    return f"the process exited with status {status}"
