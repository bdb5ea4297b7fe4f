"""
Process: be a worker until a signal says stop.

What belongs to a process of its own is decided here: its event loop, its collector, its signals
and how it ends under handlers that will not.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

from semel.db.link import Link
from semel.runtime.schedules import program_of, seed
from semel.runtime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from semel.config import Settings
    from semel.runtime.app import App


def work(app: App, settings: Settings, *, target: str, dsn: str) -> None:
    """Be a worker process: SIGTERM or SIGINT drains, a second one stops at once."""
    # Runs come and go by the thousand and make no cycles: at its default pace the collector would
    # spend a third of the loop's time looking for them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    with asyncio.Runner(loop_factory=_fastest_loop()) as runner:
        worker = Worker(
            app,
            settings,
            target=target,
            dsn=dsn,
            signals=(signal.SIGTERM, signal.SIGINT),
        )
        runner.run(_said(app, settings, target=target, dsn=dsn))
        runner.run(_until_signalled(worker))


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop where it is installed; None is asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _said(app: App, settings: Settings, *, target: str, dsn: str) -> None:
    """Say the program's schedules; a database that is away is waited for."""
    link = Link(dsn, name="semel-schedules", prepare=not settings.pooler)
    try:
        await seed(
            app,
            link.insist,
            project=settings.project,
            program=program_of(app, target),
            within=settings.worker.dead_after,
        )
    finally:
        await link.close()


async def _until_signalled(worker: Worker) -> None:
    await worker.run()
    if worker.free < worker.slots:
        # Handlers that did not stop: their runs were given back, so what they still do would be
        # another worker's work. The process ends under them.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
