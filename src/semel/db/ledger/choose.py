"""Choose: the driver's class for whatever connection a program works with."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from semel.db.ledger.driver import Driver


def driver_of(conn: Any, *, join: bool = False) -> Driver:
    """
    The driver of *conn*: psycopg, asyncpg, SQLAlchemy or Django.

    Raises:
        TypeError: no connection that we know.
    """
    kind: type = type(conn)
    return _driver(kind)(conn, join=join)


@cache  # there are as many as a program has kinds of connection
def _driver(kind: type) -> Callable[..., Driver]:
    names = {base.__module__.split(".")[0] for base in kind.__mro__}
    # Each is imported with its library: whoever has such a connection has that.
    if "psycopg" in names:
        from semel.db.ledger.psycopg import Psycopg  # noqa: PLC0415

        return Psycopg
    if "asyncpg" in names:
        from semel.db.ledger.asyncpg import Asyncpg  # noqa: PLC0415

        return Asyncpg
    if "sqlalchemy" in names:
        from semel.db.ledger.sqlalchemy import SQLAlchemy  # noqa: PLC0415

        return SQLAlchemy
    if "django" in names:
        from semel.db.ledger.django import Django  # noqa: PLC0415

        return Django
    raise TypeError(
        f"{kind.__module__}.{kind.__qualname__} is no connection Semel knows; "
        "pass a psycopg, asyncpg, SQLAlchemy or Django connection"
    )
