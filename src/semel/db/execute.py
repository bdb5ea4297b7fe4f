"""
Run a call on a connection: ours, or whatever the caller works with.

`run` and `arun` are for psycopg, which our own processes use. `on` takes any connection that a
user's transaction may be in - psycopg, asyncpg, SQLAlchemy, Django - and answers at once or with
an awaitable, as the connection does. It sends one statement: no commit, no rollback, no cursor
factory or adapter of the connection is touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from semel.errors import DatabaseUnreachable, SemelError, by_sqlstate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    import psycopg

    from semel.core.call import Call

T = TypeVar("T")


def run(conn: psycopg.Connection[Any], call: Call[T]) -> T:
    """
    Run *call* on a psycopg connection.

    Raises:
        SemelError: what the SQL refused, by its code.
        psycopg.Error: anything that is not ours.
    """
    import psycopg.rows  # noqa: PLC0415 - the driver is loaded by who uses it

    try:
        # Whatever rows the caller's connection makes for him, ours are tuples.
        cursor = conn.cursor(row_factory=psycopg.rows.tuple_row)
        return call.read(cursor.execute(call.sql, call.args).fetchall())
    except psycopg.Error as error:
        raise translated(error) from error


async def arun(conn: psycopg.AsyncConnection[Any], call: Call[T]) -> T:
    """Run *call* on an async psycopg connection; otherwise as `run`."""
    import psycopg.rows  # noqa: PLC0415 - the driver is loaded by who uses it

    try:
        cursor = conn.cursor(row_factory=psycopg.rows.tuple_row)
        await cursor.execute(call.sql, call.args, binary=True)
        return call.read(await cursor.fetchall())
    except psycopg.Error as error:
        raise translated(error) from error


def on(conn: Any, call: Call[T]) -> T | Awaitable[T]:
    """
    Run *call* inside the caller's transaction, on the caller's driver.

    Args:
        conn: psycopg Connection or AsyncConnection, asyncpg Connection, SQLAlchemy Session,
            Connection, AsyncSession or AsyncConnection, or a Django connection.

    Returns:
        The answer, or an awaitable of it where the connection is async.

    Raises:
        TypeError: no driver that we know.
    """
    names = {base.__module__.split(".")[0] for base in type(conn).__mro__}
    if "psycopg" in names:
        return arun(conn, call) if hasattr(conn, "__aenter__") else run(conn, call)
    if "asyncpg" in names:
        return _asyncpg(conn, call)
    if "sqlalchemy" in names:
        is_async = any(
            base.__module__.startswith("sqlalchemy.ext.asyncio") for base in type(conn).__mro__
        )
        return _sqlalchemy_async(conn, call) if is_async else _sqlalchemy(conn, call)
    if "django" in names:
        return _django(conn, call)
    raise TypeError(
        f"{type(conn).__module__}.{type(conn).__qualname__} is no connection Semel knows; "
        "pass a psycopg, asyncpg, SQLAlchemy or Django connection"
    )


def translated(error: Exception) -> Exception:
    """Our error for *error*'s SQLSTATE where it is ours, else *error* itself."""
    sqlstate = getattr(error, "sqlstate", None)
    ours = by_sqlstate(sqlstate)
    if ours is not None:
        diag = getattr(error, "diag", None)
        message = getattr(diag, "message_primary", None) or str(error)
        hint = getattr(diag, "message_hint", None)
        return ours(f"{message}. {hint}" if hint else message)
    if unreachable(error):
        return DatabaseUnreachable(str(error).strip() or type(error).__name__)
    return error


def unreachable(error: BaseException) -> bool:
    """Whether *error* says that the server is away, and not that it refused something."""
    if isinstance(error, DatabaseUnreachable):
        return True
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate is not None:
        # The last two: its transaction took too long for the server, which closed the connection.
        return str(sqlstate).startswith(("08", "57P", "25P03", "25P04"))
    return type(error).__name__ in {"OperationalError", "InterfaceError", "ConnectionTimeout"}


def retryable(error: BaseException) -> bool:
    """Whether the same transaction may be sent again whole: a deadlock, a race, a lost server."""
    sqlstate = getattr(error, "sqlstate", None)
    if isinstance(error, SemelError):
        return error.retryable
    return sqlstate in {"40001", "40P01", "55P03"} or unreachable(error)


async def _asyncpg(conn: Any, call: Call[T]) -> T:
    rows: Sequence[Any] = [
        tuple(row) for row in await conn.fetch(_numbered(call.sql), *call.args)
    ]
    return call.read(rows)


def _sqlalchemy(conn: Any, call: Call[T]) -> T:
    return call.read(conn.execute(*_named(call)).fetchall())


async def _sqlalchemy_async(conn: Any, call: Call[T]) -> T:
    return call.read((await conn.execute(*_named(call))).fetchall())


def _django(conn: Any, call: Call[T]) -> T:
    with conn.cursor() as cursor:
        cursor.execute(call.sql, list(call.args))
        return call.read(cursor.fetchall())


def _numbered(sql: str) -> str:
    parts = sql.split("%s")
    return "".join(part if n == 0 else f"${n}{part}" for n, part in enumerate(parts))


def _named(call: Call[Any]) -> tuple[Any, dict[str, Any]]:
    from sqlalchemy import text  # noqa: PLC0415 - the caller has it, we may not

    parts = call.sql.split("%s")
    # The space: text() takes no `:a1::uuid` for a parameter.
    sql = "".join(part if n == 0 else f":a{n} {part}" for n, part in enumerate(parts))
    return text(sql), {f"a{n}": value for n, value in enumerate(call.args, 1)}
