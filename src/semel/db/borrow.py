"""Borrow: calls that commit by themselves, on a connection of the program's own async pool."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from semel.db.execute import on, translated
from semel.db.ledger.lend import lending, lent
from semel.db.transact import answered, atransact
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from semel.core.call import Call

T = TypeVar("T")

_ASYNC = (
    "pass an async pool of psycopg_pool or asyncpg, an AsyncEngine or async_sessionmaker of"
    " SQLAlchemy, or a function that returns an async context manager of a connection"
)


class Pool:
    """
    The program's pool, or whatever `semel.db.ledger.lend` takes for one.

    Raises:
        BadConfig: it lends nothing.
    """

    def __init__(self, pool: Any) -> None:
        if isinstance(pool, str) or not (
            callable(pool)
            or any(hasattr(pool, n) for n in ("connection", "acquire", "connect"))
        ):
            raise BadConfig(
                f"{type(pool).__module__}.{type(pool).__qualname__} is no pool; {_ASYNC}"
            )
        self._pool = pool

    @asynccontextmanager
    async def borrow(self) -> AsyncGenerator[Any, None]:
        """
        A connection, or a session, for as long as the block lasts.

        Raises:
            DatabaseUnreachable: there is none to be had.
        """
        async with AsyncExitStack() as stack:
            with _translated():
                lent_ = lent(self._pool)
                if not hasattr(lent_, "__aenter__"):
                    raise BadConfig(f"the pool is not awaited; {_ASYNC}")
                with lending():
                    conn = await stack.enter_async_context(lent_)
            yield conn

    async def run(self, call: Call[T]) -> T:
        """
        Run *call* in a transaction of its own.

        Raises:
            SemelError: what the SQL refused, or DatabaseUnreachable.
        """
        async with self.borrow() as conn:
            with _translated():
                if getattr(conn, "autocommit", False) is True or hasattr(conn, "fetchrow"):
                    return await answered(on(conn, call))
                return await atransact(conn, lambda: answered(on(conn, call)))


@contextmanager
def _translated() -> Generator[None, None, None]:
    try:
        yield
    except Exception as error:
        cause = getattr(error, "orig", None) or error  # SQLAlchemy's is around the driver's
        ours = translated(cause)
        if ours is cause:
            raise
        raise ours from error
