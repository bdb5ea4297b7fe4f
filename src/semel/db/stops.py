"""
Named places where a test may have the process killed.

With SEMEL_TESTING=1 and SEMEL_STOP_AT=<name> the process sends itself SIGKILL when it passes
that place; <name>#3 lets it pass twice before. Otherwise passing costs one comparison. A name is a
promise of the crash tests, and of `semel.testing`, where something else may happen there.

    ingress.accept.before      the request is verified, nothing is written
    ingress.accept.after       delivery, dedupe row and run are committed, nothing is answered
    poller.lease.before        about to take the lease of a bot
    poller.lease.after         it is taken, nothing is asked yet
    poller.batch.before        updates came, nothing of them is written
    poller.batch.after         they are committed with the next id; the server has not heard of it
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
    spool.sync.before          a record is written to the spool's file, and not synced
    spool.sync.after           it is synced, nothing is answered
    spool.drain.before         records are accepted and the position is moved, uncommitted
    spool.drain.after          that is committed, the records are still on the disk
    spool.remove.before        a file of which all is drained is about to be removed
    spool.remove.after         it is removed
    upkeep.fire.before         a batch of schedules is looked at, nothing is written
    upkeep.fire.after          their runs are started and their ticks moved on, nobody is told
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
    "poller.lease.before",
    "poller.lease.after",
    "poller.batch.before",
    "poller.batch.after",
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
    "spool.sync.before",
    "spool.sync.after",
    "spool.drain.before",
    "spool.drain.after",
    "spool.remove.before",
    "spool.remove.after",
    "upkeep.fire.before",
    "upkeep.fire.after",
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
