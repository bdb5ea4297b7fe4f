"""
Wake-ups: tell idle workers that there is work, after the commit and never in it.

Polling alone is correct and sufficient; a wake-up only makes it quick. It is one NOTIFY of its own
per agent and interval, never part of a transaction that writes: a NOTIFY in each insert would
serialise commits and cost four fifths of their rate.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

import psycopg
from psycopg.pq import TransactionStatus

from semel.db.pool import aconnect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

CHANNEL: Final = "semel"
#: Consumers of a project's journal listen here.
JOURNAL_CHANNEL: Final = "semel_journal"
#: One wake-up per agent in this time; workers look around by themselves for longer than that.
INTERVAL_SECONDS = 0.02
#: A silent LISTEN connection is asked for a sign of life this often.
PROBE_SECONDS = 30.0


class Bell:
    """Decides whether a wake-up for an agent is due; keeps nothing but when the last one was."""

    def __init__(self) -> None:
        self._rung: dict[str, float] = {}

    def due(self, agents: Iterable[str]) -> list[str]:
        """Those of *agents* that were not woken a moment ago."""
        now = time.monotonic()
        quiet = [
            a for a in dict.fromkeys(agents) if now - self._rung.get(a, 0.0) > INTERVAL_SECONDS
        ]
        self._rung.update(dict.fromkeys(quiet, now))
        return quiet


def outside_transaction(conn: Any) -> bool:
    """Whether what *conn* did last is committed: psycopg in autocommit, or asyncpg, at rest."""
    if isinstance(conn, psycopg.Connection | psycopg.AsyncConnection):
        return conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE
    asks = getattr(conn, "is_in_transaction", None)
    return asks is not None and not asks()


async def woken(
    dsn: str, channel: Literal["semel", "semel_journal"] = CHANNEL
) -> AsyncIterator[str]:
    """
    The names that somebody woke, for ever; '' after each connect, when one may have been missed.

    Args:
        dsn: Of a direct connection; a transaction pooler delivers no notification.
        channel: Where agents are woken, or consumers of a project's journal.
    """
    pause = 0.1
    while True:
        conn: psycopg.AsyncConnection[Any] | None = None
        try:
            conn = await aconnect(dsn, name="semel-listen")
            await conn.execute(f"listen {channel}")
            pause = 0.1
            yield ""
            while True:
                async for notify in conn.notifies(timeout=PROBE_SECONDS):
                    yield notify.payload
                await conn.execute("select 1")
        except psycopg.Error:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 5.0)
        finally:
            if conn is not None:
                with suppress(Exception):
                    await conn.close()
