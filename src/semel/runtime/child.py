"""
A child process that executes handlers one at a time, out of the worker's way.

Two kinds of run come here: those of an agent with executor="process", and suspects, whose last
worker was lost: should the handler take its process down again, it takes this one. The child
speaks JSON lines over a socket, leases nothing and writes nothing to the database; it dies with
its worker.

    worker ──{claim}──> child ──handler──> {"done": text} | {"failed": …} ──> worker

Run as `python -m semel.runtime.child TARGET FD`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import queue
import signal
import socket
import sys
import threading
from datetime import datetime
from typing import Any
from uuid import UUID

from semel.model import Claim
from semel.runtime.app import load
from semel.runtime.handlers import Run
from semel.runtime.outcome import Done, Failed, of_error, of_result


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
    }
    return json.dumps(fields).encode() + b"\n"


def decode(line: bytes) -> Claim:
    """The claim that `encode` wrote."""
    fields: dict[str, Any] = json.loads(line)
    fields["run_id"] = UUID(fields["run_id"])
    fields["event_id"] = UUID(fields["event_id"]) if fields["event_id"] else None
    fields["ready_at"] = datetime.fromisoformat(fields["ready_at"])
    return Claim(**fields)


def outcome_line(outcome: Done | Failed) -> bytes:
    """*outcome* as one line of JSON."""
    match outcome:
        case Done(text):
            fields: dict[str, Any] = {"done": text}
        case Failed(code, reason, retryable):
            fields = {"failed": [code, reason, retryable]}
    return json.dumps(fields).encode() + b"\n"


def outcome_of(line: bytes) -> Done | Failed:
    """The outcome that `outcome_line` wrote."""
    fields = json.loads(line)
    return Done(fields["done"]) if "done" in fields else Failed(*fields["failed"])


def execute(handler: Any, claim: Claim) -> Done | Failed:
    """Call *handler* to its end, whatever it raises."""
    try:
        run = Run.of(claim, [])
        if inspect.iscoroutinefunction(handler):
            return of_result(asyncio.run(handler(run)))
        return of_result(handler(run))
    except BaseException as error:  # noqa: BLE001 - SystemExit too ends the attempt, not us
        return of_error(error)


def main(target: str, fd: int) -> None:
    """Serve runs from the socket *fd* until the worker closes it or is gone."""
    # The worker alone decides when we stop; a terminal's Ctrl-C goes to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = socket.socket(fileno=fd)
    lines: queue.Queue[bytes] = queue.Queue()

    def listen() -> None:
        # On end of file the worker is gone: so are we, in the middle of whatever we do.
        for line in worker.makefile("rb"):
            lines.put(line)
        os._exit(0)

    app = load(target)
    threading.Thread(target=listen, daemon=True).start()
    while True:
        claim = decode(lines.get())
        worker.sendall(outcome_line(execute(app.agents[claim.agent].handler, claim)))
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
