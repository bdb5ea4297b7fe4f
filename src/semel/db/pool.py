"""
Connections with our settings: one at a time, or a pool for the ingress.

Every connection is in autocommit: a call is one statement and one transaction. TCP keepalives
find a half-open connection in about 25 seconds; a Unix socket ignores them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

CONNECT_SECONDS_MAX = 5
#: How long a request waits for a free connection before it is told to come back.
POOL_WAIT_SECONDS = 3.0
#: A lost connection is tried again so long, then whoever asks next tries anew. Pauses double, and
#: with a longer time a pool would find a database that is back only after as long as it was away.
RECONNECT_SECONDS = 3.0
#: A pooled connection that rested this long is checked before it is lent again.
REST_SECONDS = 1.0

SETTINGS: dict[str, Any] = {
    "autocommit": True,
    "connect_timeout": CONNECT_SECONDS_MAX,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}


def connect(dsn: str, *, name: str = "semel", prepare: bool = True) -> psycopg.Connection[Any]:
    """
    Open one connection.

    Args:
        name: Shown to the DBA as application_name.
        prepare: False behind a pooler that hands a session to many clients.

    Raises:
        psycopg.OperationalError: the server cannot be reached.
    """
    threshold = 5 if prepare else None
    return psycopg.connect(dsn, application_name=name, prepare_threshold=threshold, **SETTINGS)


async def aconnect(
    dsn: str, *, name: str = "semel", prepare: bool = True
) -> psycopg.AsyncConnection[Any]:
    """Open one async connection; otherwise as `connect`."""
    threshold = 5 if prepare else None
    return await psycopg.AsyncConnection.connect(
        dsn, application_name=name, prepare_threshold=threshold, **SETTINGS
    )


class Pooled(psycopg.AsyncConnection[Any]):
    """A connection that knows when it was lent last."""

    lent_at = float("-inf")


async def _check(conn: psycopg.AsyncConnection[Any]) -> None:
    now = time.monotonic()
    if isinstance(conn, Pooled):
        rested, conn.lent_at = now - conn.lent_at, now
        if rested < REST_SECONDS:
            return
    await conn.execute("")


def pool(
    dsn: str, *, size: int, name: str = "semel", prepare: bool = True
) -> AsyncConnectionPool[psycopg.AsyncConnection[Any]]:
    """
    A pool of at most *size* async connections; open it with `async with`.

    A connection that rested for a second is asked for a sign of life before it is lent, so a
    restarted server costs no request, and a busy one no round trip.
    """
    from psycopg_pool import AsyncConnectionPool  # noqa: PLC0415 - the server extra brings it

    kwargs = {
        "application_name": name,
        "prepare_threshold": 5 if prepare else None,
        **SETTINGS,
    }
    return AsyncConnectionPool(
        dsn,
        connection_class=Pooled,
        kwargs=kwargs,
        min_size=1,
        max_size=size,
        timeout=POOL_WAIT_SECONDS,
        reconnect_timeout=RECONNECT_SECONDS,
        check=_check,
        open=False,
        name=name,
    )
