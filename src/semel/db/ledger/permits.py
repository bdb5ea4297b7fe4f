"""
Permits: who may wait for another request's claim, while holding a connection.

At most half of a pool: the other half goes on working, the request that is waited for among it.
A connection of no pool takes none from anybody. Counted in this process, since pools are.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

_LOCK = threading.Lock()
_WAITING: dict[int, int] = {}  # by the pool's id, while anybody waits


@contextmanager
def permit(pool: Any) -> Generator[bool, None, None]:
    """Whether to wait with a connection of *pool*, for as long as the block lasts."""
    most = _size(pool)
    if most is None:
        yield True
        return
    name = id(pool)
    with _LOCK:
        granted = _WAITING.get(name, 0) < most // 2
        if granted:
            _WAITING[name] = _WAITING.get(name, 0) + 1
    try:
        yield granted
    finally:
        if granted:
            with _LOCK:
                _WAITING[name] -= 1
                if not _WAITING[name]:
                    del _WAITING[name]


def _size(pool: Any) -> int | None:
    """How many connections *pool* has at most; None where it has no such number."""
    for name in ("max_size", "get_max_size", "size"):  # psycopg_pool, asyncpg, SQLAlchemy
        size = getattr(pool, name, None)
        if size is not None:
            return int(size() if callable(size) else size)
    return None
