"""
Named places where a test may have the process killed.

With SEMEL_TESTING=1 and SEMEL_STOP_AT=<name> the process sends itself SIGKILL when it passes
that place; otherwise passing costs one comparison. A name is a promise of the crash tests.

    ingress.accept.before    the request is verified, nothing is written
    ingress.accept.after     delivery, dedupe row and run are committed, nothing is answered
    worker.claim.before      about to claim
    worker.claim.after       the claim is committed, no handler has begun
    worker.complete.before   the handler has returned, nothing is written
    worker.complete.after    the completion is committed
"""

from __future__ import annotations

import os
import signal

STOPS = (
    "ingress.accept.before",
    "ingress.accept.after",
    "worker.claim.before",
    "worker.claim.after",
    "worker.complete.before",
    "worker.complete.after",
)

_armed = os.environ.get("SEMEL_STOP_AT") if os.environ.get("SEMEL_TESTING") == "1" else None


def stop_here(name: str) -> None:
    """Die here, without a word, if a test armed *name*."""
    if name == _armed:
        os.kill(os.getpid(), signal.SIGKILL)
