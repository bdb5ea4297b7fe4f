"""
Named places where a test may have the process killed.

With SEMEL_TESTING=1 and SEMEL_STOP_AT=<name> the process sends itself SIGKILL when it passes
that place; <name>#3 lets it pass twice before. Otherwise passing costs one comparison. A name is a
promise of the crash tests, and of `semel.testing`, where something else may happen there.

    ingress.accept.before      the request is verified, nothing is written
    ingress.accept.after       delivery, dedupe row and run are committed, nothing is answered
    worker.claim.before        about to claim
    worker.claim.after         the claim is committed, no handler has begun
    worker.step.before         steps have had their effects, or have none yet; nothing is journaled
    worker.step.after          their entries are committed, no handler knows
    worker.transaction.before  a transaction of a step has written all, and is not committed
    worker.transaction.after   it is committed, the handler does not know
    worker.park.before         about to leave the worker and wait
    worker.park.after          the wait is committed with its questions, the handler still there
    worker.complete.before     the handler has returned, nothing is written
    worker.complete.after      the completion is committed
    ledger.begin.before        about to claim an operation
    ledger.begin.after         it is claimed; recorded: the claim is committed. No handler has begun
    ledger.commit.before       the handler has returned, its operation has no outcome yet
    ledger.commit.after        the outcome is committed: SUCCEEDED, or of a failed handler FAILED
    ledger.answer.before       and nobody is answered; a replay passes here too
    journal.batch.before       a consumer's transaction has its rows and the cursor, uncommitted
    journal.batch.after        it is committed
    journal.commit.before      a consumer has done with what it leased, the cursor stands still
    journal.commit.after       the cursor is moved
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

STOPS = (
    "ingress.accept.before",
    "ingress.accept.after",
    "worker.claim.before",
    "worker.claim.after",
    "worker.step.before",
    "worker.step.after",
    "worker.transaction.before",
    "worker.transaction.after",
    "worker.park.before",
    "worker.park.after",
    "worker.complete.before",
    "worker.complete.after",
    "ledger.begin.before",
    "ledger.begin.after",
    "ledger.commit.before",
    "ledger.commit.after",
    "ledger.answer.before",
    "journal.batch.before",
    "journal.batch.after",
    "journal.commit.before",
    "journal.commit.after",
)

_told = os.environ.get("SEMEL_STOP_AT", "") if os.environ.get("SEMEL_TESTING") == "1" else ""
_armed, _, _nth = _told.partition("#")
_left = int(_nth) if _nth.isdecimal() else 1


def _die(name: str) -> None:
    global _left  # noqa: PLW0603 - one process dies once
    if name == _armed:
        _left -= 1
        if _left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


_watcher: Callable[[str], None] | None = _die if _armed else None


def watch(watcher: Callable[[str], None] | None) -> None:
    """Call *watcher* at each place that this process passes, instead; for `semel.testing`."""
    global _watcher  # noqa: PLW0603 - one process is one world
    _watcher = watcher


def stop_here(name: str) -> None:
    """Die here, without a word, if a test armed *name*."""
    if _watcher is not None:
        _watcher(name)
