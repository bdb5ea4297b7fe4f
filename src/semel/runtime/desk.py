"""Desk: what the attempts of one process share to journal and to wait."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.runtime.tools import Toolbox

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from datetime import datetime

    from semel.db.link import Link
    from semel.runtime.recorder import Recorder

#: Not decided within this, an approval fails its run.
APPROVAL_TTL = timedelta(minutes=15)


class Desk:
    """
    What they share.

    Args:
        link: For what is not gathered: parks, children, questions to the journal.
        notifiers: Those that are configured.
        notify: Who is told of an approval, unless the handler names others.
        undos: The compensations that are registered, by name.
        gate: Returns when something new may begin.
        lend, lend_sync: A connection for a transaction.
        clock: None, or the moment that a test says it is.
        patience: A step's pause before another try that is longer frees the slot, whatever its
            Retry says; with a clock that stands still none can be slept in place.
        tools: What run.tool may name.
    """

    def __init__(
        self,
        *,
        link: Link,
        recorder: Recorder,
        notifiers: Sequence[str] = (),
        notify: Sequence[str] = (),
        ttl: timedelta = APPROVAL_TTL,
        undos: Mapping[str, Callable[..., Any]] | None = None,
        gate: Callable[[], Awaitable[None]] | None = None,
        lend: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        lend_sync: Callable[[], AbstractContextManager[Any]] | None = None,
        clock: Callable[[], datetime | None] = lambda: None,
        patience: timedelta = timedelta.max,
        tools: Toolbox | None = None,
    ) -> None:
        self.link = link
        self.recorder = recorder
        self.notifiers = frozenset(notifiers)  # that can be told of an approval
        self.notify = tuple(notify)  # those that are, unless the handler names others
        self.ttl = ttl
        self.undos = undos or {}  # the compensations that are registered
        self.lend: Any = lend  # a connection for a transaction
        self.lend_sync: Any = lend_sync
        self.gate = gate  # returns when something new may begin
        self.clock = clock
        self.patience = patience
        self.tools = tools or Toolbox()
