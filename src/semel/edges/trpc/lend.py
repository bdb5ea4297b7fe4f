"""Connections: borrowed from whatever pool a program has, one for each mutation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.db.borrow import Pool
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

#: Of a pool that does not say how many connections it has.
SIZE_UNKNOWN = 8


def lender(pool: Any) -> Callable[[], AbstractAsyncContextManager[Any]]:
    """
    What borrows a connection of *pool*.

    Args:
        pool: One that `semel.db.borrow` knows, or a function that returns one, or that returns an
            async context manager of a connection.

    Raises:
        BadConfig: it is neither.
    """
    known = Pool(pool)
    if _is_function(pool):
        return lambda: _lent(pool())
    return known.borrow


def size(pool: Any) -> int:
    """How many connections *pool* lends at once; SIZE_UNKNOWN where it does not say."""
    told = getattr(pool, "max_size", None)  # psycopg
    if told is None and hasattr(pool, "get_max_size"):  # asyncpg
        told = pool.get_max_size()
    engine = getattr(pool, "kw", {}).get("bind", pool)  # SQLAlchemy
    inner: Any = getattr(engine, "pool", None)
    if told is None and hasattr(inner, "size"):
        told = inner.size()
    return told if isinstance(told, int) and told > 0 else SIZE_UNKNOWN


def _is_function(pool: Any) -> bool:
    """Whether *pool* is called for what lends; a sessionmaker is called too, and known."""
    return callable(pool) and not _is_library(pool)


def _lent(made: Any) -> AbstractAsyncContextManager[Any]:
    """A connection of *made*, if it is a pool; else it is the connection's context manager."""
    try:
        if _is_library(made):
            return Pool(made).borrow()
    except BadConfig:
        pass  # a session, or what a pool's own method gave
    if not hasattr(made, "__aenter__"):
        raise BadConfig(f"{type(made).__qualname__} is neither a pool nor lends a connection")
    lent: AbstractAsyncContextManager[Any] = made
    return lent


def _is_library(made: Any) -> bool:
    return type(made).__module__.partition(".")[0] in {"asyncpg", "psycopg_pool", "sqlalchemy"}
