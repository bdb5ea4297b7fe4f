"""Choose: the driver's class for whatever connection a program works with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel.db.ledger.driver import Driver


def driver_of(conn: Any, *, join: bool = False) -> Driver:
    """
    The driver of *conn*: psycopg, asyncpg, SQLAlchemy or Django.

    Raises:
        TypeError: no connection that we know.
    """
    names = {base.__module__.split(".")[0] for base in type(conn).__mro__}
    # Each is imported with its library: whoever has such a connection has that.
    if "psycopg" in names:
        from semel.db.ledger.psycopg import Psycopg  # noqa: PLC0415

        return Psycopg(conn, join=join)
    if "asyncpg" in names:
        from semel.db.ledger.asyncpg import Asyncpg  # noqa: PLC0415

        return Asyncpg(conn, join=join)
    if "sqlalchemy" in names:
        from semel.db.ledger.sqlalchemy import SQLAlchemy  # noqa: PLC0415

        return SQLAlchemy(conn, join=join)
    if "django" in names:
        from semel.db.ledger.django import Django  # noqa: PLC0415

        return Django(conn, join=join)
    raise TypeError(
        f"{type(conn).__module__}.{type(conn).__qualname__} is no connection Semel knows; "
        "pass a psycopg, asyncpg, SQLAlchemy or Django connection"
    )
