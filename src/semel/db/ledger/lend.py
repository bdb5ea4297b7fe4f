"""Lend: a connection out of whatever a program keeps them in."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from semel.db.execute import unreachable
from semel.errors import DatabaseUnreachable

if TYPE_CHECKING:
    from collections.abc import Generator

#: Of psycopg_pool; the last one of asyncpg, SQLAlchemy and sockets.
_BUSY = frozenset({"PoolTimeout", "PoolClosed", "TooManyRequests", "TimeoutError"})


def lent(pool: Any) -> Any:
    """
    A context manager, sync or async, of one connection.

    Args:
        pool: A pool of psycopg_pool or asyncpg, a SQLAlchemy Engine, AsyncEngine or session maker,
            a Django connection, or a function that returns such a context manager.

    Raises:
        TypeError: none of these.
    """
    if hasattr(pool, "ensure_connection"):  # Django: each thread has its own
        return nullcontext(pool)
    for name in ("connection", "acquire", "connect"):  # psycopg_pool, asyncpg, SQLAlchemy
        if hasattr(pool, name):
            return getattr(pool, name)()
    if callable(pool):
        return pool()
    raise TypeError(
        f"{type(pool).__module__}.{type(pool).__qualname__} is no pool Semel knows; pass one of"
        " psycopg_pool, asyncpg or SQLAlchemy, a Django connection, or a function"
    )


@contextmanager
def lending() -> Generator[None, None, None]:
    """
    Around the moment when a pool lends a connection.

    Raises:
        DatabaseUnreachable: it has none, in time or ever, or the server is not to be reached.
    """
    try:
        yield
    except Exception as error:
        told = getattr(error, "orig", None) or error  # SQLAlchemy's is around the driver's
        if is_busy(told) or isinstance(told, OSError) or unreachable(told):
            raise DatabaseUnreachable("no connection was to be had") from error
        raise


def is_busy(error: BaseException | None) -> bool:
    """Whether a pool says that none of its connections was free in time, or ever will be."""
    return type(error).__name__ in _BUSY
