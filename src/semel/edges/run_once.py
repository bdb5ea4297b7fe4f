"""
Run once: a function in a transaction of its own under a key, again where the database asks for it.

A deadlock, a serialization failure and a lost connection are not the operation's failures: the
whole of it is executed again, after a pause, a few times.
"""

from __future__ import annotations

import random
from contextlib import AsyncExitStack, ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, Unpack

from semel.db.execute import translated
from semel.db.ledger.drive import drive, pause
from semel.db.ledger.lend import is_busy, lending, lent
from semel.db.transact import answered
from semel.edges.once import Once, OnceOptions
from semel.edges.told import cause
from semel.errors import DatabaseUnreachable, LostRace, UnknownOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from semel.core.operations import Reply

ATTEMPTS = 5
#: Before the second execution; it doubles.
PAUSE_SECONDS = 0.05
PAUSE_SECONDS_MAX = 2.0
_AGAIN = (DatabaseUnreachable, LostRace)


def run_once(
    pool: Any,
    fn: Callable[..., Any],
    *,
    project: str,
    key: str | None,
    operation: str,
    attempts: int = ATTEMPTS,
    **options: Unpack[OnceOptions],
) -> Any:
    """
    Execute `fn(conn, op)` once for a key, on a connection of *pool*.

    What *fn* returns is the reply, unless it replied itself.

    Args:
        pool: A pool of psycopg_pool or asyncpg, a SQLAlchemy engine or session maker, a Django
            connection, or a function that returns a context manager of a connection.
        attempts: How often it is executed at most, while the database ends it by a deadlock or a
            serialization failure, or is away.
        options: Those of `once`.

    Returns:
        The reply, `op.response()`; an awaitable of it where the pool's connections are awaited.

    Raises:
        DatabaseUnreachable: also where *pool* has no connection in time.
        Exception: as `once`, and whatever *fn* raises.
    """
    settings = {"project": project, "key": key, "operation": operation, **options}
    lender = lent(pool)
    asynchronous = hasattr(lender, "__aenter__") and not hasattr(lender, "__enter__")
    run = _async if asynchronous else _sync
    # Under a key one whose end is not known may be asked for again; without one it may be done.
    again = _AGAIN if key is None else (*_AGAIN, UnknownOutcome)

    async def once(first: Any) -> Reply:
        lender, seconds = first, PAUSE_SECONDS
        for attempt in count(1):
            try:
                return await run(lender, fn, settings)
            except Exception as error:
                # Who has waited for a pool in vain is not to wait again.
                last = attempt >= attempts or is_busy(error.__cause__)
                if last or not isinstance(translated(cause(error)), again):
                    raise
            await pause(seconds * (0.5 + random.random()), asynchronous=asynchronous)  # noqa: S311
            seconds = min(2 * seconds, PAUSE_SECONDS_MAX)
            lender = lent(pool)
        raise AssertionError

    return once(lender) if asynchronous else drive(once(lender))


async def _async(lender: Any, fn: Callable[..., Any], settings: dict[str, Any]) -> Reply:
    async with AsyncExitStack() as stack:
        with lending():
            conn = await stack.enter_async_context(lender)
        async with Once(conn, **settings) as op:
            if op.replay is None:
                op.returned(await answered(fn(conn, op)))
        return op.response()


async def _sync(lender: Any, fn: Callable[..., Any], settings: dict[str, Any]) -> Reply:
    with ExitStack() as stack:
        with lending():
            conn = stack.enter_context(lender)
        with Once(conn, **settings) as op:
            if op.replay is None:
                op.returned(fn(conn, op))
        return op.response()
