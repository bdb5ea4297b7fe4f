"""
A child process that executes handlers one at a time, out of the worker's way.

Two kinds of run come here: those of an agent with executor="process", and suspects, whose last
worker was lost: should the handler take its process down again, it takes this one. The child
speaks JSON lines over a socket. It leases nothing and ends no run: of the database it has the
journal of the run it executes, under the worker's fence. It dies with its worker.

    worker ──{desk}, {claim}──> child ──handler──> {"done": text} | {"failed": …} | … ──> worker

Run as `python -m semel.runtime.child TARGET FD`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from semel.db.lender import Lender
from semel.db.link import Link
from semel.model import Claim
from semel.runtime.app import load
from semel.runtime.desk import Desk
from semel.runtime.execution import Execution
from semel.runtime.outcome import Done, Failed, Outcome, Parked, Stopped
from semel.runtime.recorder import Recorder
from semel.runtime.tools import Toolbox

if TYPE_CHECKING:
    from semel.runtime.app import App


def encode(claim: Claim) -> bytes:
    """*claim* as one line of JSON."""
    fields = {
        "project": claim.project,
        "worker": claim.worker,
        "agent": claim.agent,
        "run_id": str(claim.run_id),
        "fence": claim.fence,
        "attempt": claim.attempt,
        "max_attempts": claim.max_attempts,
        "text": claim.text,
        "source": claim.source,
        "event_id": str(claim.event_id) if claim.event_id else None,
        "priority": claim.priority,
        "lane": claim.lane,
        "ready_at": claim.ready_at.isoformat(),
        "kind": claim.kind,
        "parent": str(claim.parent) if claim.parent else None,
        "journal": claim.journal,
    }
    return json.dumps(fields).encode() + b"\n"


def decode(line: bytes) -> Claim:
    """The claim that `encode` wrote."""
    fields: dict[str, Any] = json.loads(line)
    fields["run_id"] = UUID(fields["run_id"])
    fields["event_id"] = UUID(fields["event_id"]) if fields["event_id"] else None
    fields["parent"] = UUID(fields["parent"]) if fields["parent"] else None
    fields["ready_at"] = datetime.fromisoformat(fields["ready_at"])
    return Claim(**fields)


def outcome_line(outcome: Outcome) -> bytes:
    """*outcome* as one line of JSON."""
    match outcome:
        case Done(text):
            fields: dict[str, Any] = {"done": text}
        case Failed(code, reason, retryable):
            fields = {"failed": [code, reason, retryable]}
        case Parked():
            fields = {"parked": True}
        case _:
            fields = {"stopped": True}
    return json.dumps(fields).encode() + b"\n"


def outcome_of(line: bytes) -> Outcome:
    """The outcome that `outcome_line` wrote."""
    match json.loads(line):
        case {"done": text}:
            return Done(text)
        case {"failed": [code, reason, retryable]}:
            return Failed(code, reason, retryable)
        case {"parked": _}:
            return Parked()
        case _:
            return Stopped()


class Child:
    """Executes one handler at a time for the worker at the other end of *worker*."""

    def __init__(self, app: App, worker: socket.socket) -> None:
        self._app = app
        self._worker = worker
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="semel-run")

    async def serve(self) -> None:
        """Work until the worker closes the socket or is gone."""
        loop = asyncio.get_running_loop()

        def listen() -> None:
            # On end of file the worker is gone: so are we, in the middle of whatever we do.
            for line in self._worker.makefile("rb"):
                loop.call_soon_threadsafe(self._lines.put_nowait, line)
            os._exit(0)

        threading.Thread(target=listen, daemon=True).start()
        desk = self._desk(json.loads(await self._lines.get()))
        while True:
            claim = decode(await self._lines.get())
            agent = self._app.agents[claim.agent]
            # A task of its own: what it leaves in its context, or cancelled, ends with it.
            handler = loop.create_task(Execution(claim, agent, desk, self._threads, []).run())
            outcome = await handler
            self._worker.sendall(outcome_line(outcome))
            sys.stdout.flush()

    def _desk(self, told: dict[str, Any]) -> Desk:
        dsn, prepare = told["dsn"], told["prepare"]
        lender = Lender(dsn, size=2, prepare=prepare)
        return Desk(
            link=Link(dsn, name="semel-wait", prepare=prepare),
            recorder=Recorder(Link(dsn, name="semel-step", prepare=prepare)),
            notifiers=told["notifiers"],
            notify=told["notify"],
            ttl=timedelta(seconds=told["ttl"]),
            tools=Toolbox.of(self._app.tools, told["tools"]),
            undos=self._app.compensations,
            lend=lender.lend,
            lend_sync=lender.lend_sync,
        )


def main(target: str, fd: int) -> None:
    """Serve runs from the socket *fd*."""
    # The worker alone decides when we stop; a terminal's Ctrl-C goes to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    app = load(target)
    asyncio.run(Child(app, socket.socket(fileno=fd)).serve())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
