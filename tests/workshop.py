"""One attempt at work in this process: no heartbeat, no watchdog, nobody to tell it that it lost."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from semel.db.lender import Lender
from semel.db.link import Link
from semel.model import Claim
from semel.runtime.attempt import Attempt, Shop
from semel.runtime.children import Children
from semel.runtime.desk import Desk
from semel.runtime.finisher import Finisher
from semel.runtime.handlers import Agent, Backoff
from semel.runtime.recorder import Recorder


def work(
    dsn: str,
    claim: Claim,
    handler: Callable[..., Any],
    *,
    undos: Mapping[str, Callable[..., Any]] | None = None,
    clock: Callable[[], Any] = lambda: None,
    lend: str | None = None,
) -> Attempt:
    """
    Work on *claim* to its end; answers what the worker knows of it then.

    Args:
        lend: Where the connections that transactions borrow lead; as *dsn* by default.
    """

    async def go() -> Attempt:
        writes, steps, waits = (Link(dsn, name=f"test-{name}") for name in ("w", "s", "p"))
        recorder, finisher = Recorder(steps, clock), Finisher(writes)
        lender = Lender(lend or dsn, size=2)
        threads = ThreadPoolExecutor(4, thread_name_prefix="semel-run")
        desk = Desk(
            link=waits,
            recorder=recorder,
            undos=undos,
            lend=lender.lend,
            lend_sync=lender.lend_sync,
            clock=clock,
        )
        shop = Shop(
            children=Children("", b""),
            threads=threads,
            link=writes,
            finisher=finisher,
            desk=desk,
            loop=asyncio.get_running_loop(),
        )
        attempt = Attempt(claim, _agent(handler), shop, trusted_until=float("inf"), alone=False)
        try:
            await asyncio.wait([attempt.start()])
        finally:
            await finisher.close()
            await recorder.close()
            for link in (writes, steps, waits):
                await link.close()
            await lender.close()
            threads.shutdown()
        return attempt

    return asyncio.run(go())


def _agent(handler: Callable[..., Any]) -> Agent:
    return Agent(
        name="a",
        handler=handler,
        max_attempts=3,
        concurrency=None,
        executor="async" if asyncio.iscoroutinefunction(handler) else "thread",
        backoff=Backoff(base=timedelta(0)),
    )
