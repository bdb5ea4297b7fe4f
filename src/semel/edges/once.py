"""
Once: a block whose writes and reply are committed once for a key, on the caller's own connection.

The block owns the outcome: it commits SUCCEEDED, or FAILED with everything undone, when it is
left. With `join=True` it takes part in a transaction that somebody else will commit. Authorise
before: a replay is an answer like any other.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, Unpack, overload

from semel.core import seals
from semel.core.operations import WAIT
from semel.db.execute import translated
from semel.db.ledger import driver_of
from semel.db.ledger.drive import drive, shielded
from semel.edges import told
from semel.edges.attempt import Attempt
from semel.edges.identity import Anonymous, asked
from semel.edges.operation import Operation
from semel.errors import BadRequest, LostRace

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from datetime import timedelta
    from types import TracebackType

    import psycopg

    from semel.config import DigestKey
    from semel.core.canonical import Version
    from semel.core.seals import Seal, Store
    from semel.core.spelling import Decode
    from semel.db.ledger.driver import Driver

#: Bytes of a reply that are kept; of a longer one the ledger remembers that it was.
RESULT_BYTES_MAX = 1 << 20

T = TypeVar("T")


class OnceOptions(TypedDict, total=False):
    """What `once` takes beside the connection; documented there."""

    actor: object
    input: Any
    digest: str | None
    version: Version
    decode: Decode
    keys: Sequence[DigestKey]
    anonymous: Anonymous
    required: bool
    request_id: str | None
    wait: timedelta | None
    result_max: int
    store: Store
    seal: Seal | None
    reconnect: Callable[[], Any] | None


class SyncOnce(Protocol):
    """`with once(conn, ...) as op`."""

    def __enter__(self) -> Operation: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


class AsyncOnce(Protocol):
    """`async with once(conn, ...) as op`."""

    async def __aenter__(self) -> Operation: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


class Once:
    """One operation on one connection; see `once`."""

    def __init__(
        self,
        conn: Any,
        *,
        project: str,
        key: str | None,
        operation: str,
        join: bool = False,
        wait: timedelta | None = WAIT,
        result_max: int = RESULT_BYTES_MAX,
        store: Store = "plain",
        seal: Seal | None = None,
        reconnect: Callable[[], Any] | None = None,
        **identity: Any,
    ) -> None:
        identity = {"actor": None, "input": None, **identity}
        try:
            seals.check(store, seal)
        except ValueError as bad:
            raise BadRequest(str(bad)) from None
        self._asked = asked(project=project, key=key, operation=operation, **identity)
        self._conn = conn
        self._join = join
        self._reconnect = reconnect
        self._settings: dict[str, Any] = {
            "wait": wait,
            "result_max": result_max,
            "store": store,
            "seal": seal,
        }
        self._op = Operation(
            project, None if self._asked is None else self._asked.identity.request_id
        )
        self._op.connection = conn
        self._attempt: Attempt | None = None

    @property
    def operation(self) -> Operation:
        """What the block will be handed; for adapters that hand it on before."""
        return self._op

    def __enter__(self) -> Operation:
        driver = driver_of(_resolved(self._conn), join=self._join)
        if driver.asynchronous:
            raise BadRequest("this connection is awaited: write `async with once(...)`")
        return drive(self._begin(driver))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        drive(self._begun.end(error))

    async def __aenter__(self) -> Operation:
        if _is_django(self._conn):
            return await self.begun_by(_in_django)
        driver = driver_of(self._conn, join=self._join)
        if not driver.asynchronous:
            raise BadRequest("this connection is not awaited: write `with once(...)`")
        return await self._begin(driver)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if _is_django(self._conn):
            await shielded(_in_django(self.__exit__, kind, error, trace))
        else:
            await shielded(self._begun.end(error))

    async def begun_by(self, thread: Callable[..., Coroutine[Any, Any, Any]]) -> Operation:
        """`__enter__` in a *thread*, which goes on when we are cancelled: then nothing remains."""
        try:
            await shielded(thread(self.__enter__))
        except asyncio.CancelledError as error:
            if self._attempt is not None:
                await shielded(thread(self.__exit__, type(error), error, None))
            raise
        return self._op

    @property
    def _begun(self) -> Attempt:
        assert self._attempt is not None  # noqa: S101 - a block that is left was entered
        return self._attempt

    async def _begin(self, driver: Driver) -> Operation:
        if self._attempt is not None:
            raise BadRequest("this block was entered before: call once(...) for each")
        attempt = self._attempt = Attempt(driver, self._op, self._asked, **self._settings)
        try:
            await attempt.begin()
        except BaseException as error:
            abort = attempt.abort()
            await (shielded(abort) if driver.asynchronous else abort)
            if told.is_race(error):
                raise LostRace(told.of(error).message) from error
            ours = translated(told.cause(error)) if isinstance(error, Exception) else error
            if ours is error or ours is told.cause(error):
                raise
            raise ours from error
        if self._reconnect is not None:
            driver.reconnect = self._reconnect
        return self._op


@overload
def once(
    conn: psycopg.Connection[Any],
    *,
    project: str,
    key: str | None,
    operation: str,
    join: bool = False,
    **options: Unpack[OnceOptions],
) -> SyncOnce: ...
@overload
def once(
    conn: psycopg.AsyncConnection[Any],
    *,
    project: str,
    key: str | None,
    operation: str,
    join: bool = False,
    **options: Unpack[OnceOptions],
) -> AsyncOnce: ...
@overload
def once(
    conn: Any,
    *,
    project: str,
    key: str | None,
    operation: str,
    join: bool = False,
    **options: Unpack[OnceOptions],
) -> Once: ...
def once(
    conn: Any,
    *,
    project: str,
    key: str | None,
    operation: str,
    join: bool = False,
    **options: Unpack[OnceOptions],
) -> Any:
    """
    Execute a block once for a key: `with`, or `async with` where the connection is awaited.

    Args:
        conn: psycopg, asyncpg, SQLAlchemy or Django. Idle, or in a READ COMMITTED transaction that
            has written nothing; on leaving the block it is committed.
        project: Whose ledger.
        key: 1 to 255 printable ASCII characters. None executes without the ledger.
        operation: The procedure's name, 1 to 512 bytes; another one under the key is a conflict.
        join: Take part in the caller's transaction and never end it: the outcome, FAILED too, is
            as durable as his COMMIT.
        actor: Who asks, authenticated: his id, as str() has it.
        anonymous: "shared" is one scope for all who have no id; else they are refused.
        input: Bytes as they came, or a JSON value; None is no input. Only its digest is kept.
        digest: In place of the input, where only that is known.
        version: Of the digest in a new row; a row is compared under its own.
        decode: How bytes are read: "strict" is I-JSON, "js" as JSON.parse.
        keys: That digests are made with; the first one writes.
        required: Refuse a request without a key.
        request_id: The row's id, in place of the one made of project, actor and key.
        wait: For another request's execution of the same; 0 answers InFlight at once. At most half
            of a pool's connections wait.
        result_max: Bytes of a reply that are kept. A longer one is answered once.
        store: "omit" keeps no reply, only that it was executed.
        seal: How kept replies are encrypted.
        reconnect: Opens another connection to the same database, to ask it what became of a COMMIT
            that was not answered; by default with the parameters of this one.

    Raises:
        BadKey, BadInput, BadRequest, Unauthenticated: an argument is none.
        KeyConflict: the key was used with another input, operation or actor.
        InFlight, LostRace, UnknownOutcome, DatabaseUnreachable: the same may be sent again.
        NeedsReconcile, ResultNotKept, LegacyUnverifiable: it will not be executed again.
        TransactionUnfit: of the connection's transaction.
        TransactionEnded, ErrorSwallowed, BadReply: of what the block did.
    """
    return Once(conn, project=project, key=key, operation=operation, join=join, **options)


def _is_django(conn: Any) -> bool:
    kind: type = type(conn)
    return _is_djangos(kind)


@cache
def _is_djangos(kind: type) -> bool:
    return any(base.__module__.startswith("django.") for base in kind.__mro__)


def _resolved(conn: Any) -> Any:
    """Of Django's the one that belongs to this thread."""
    if not _is_django(conn):
        return conn
    from django.db import connections  # noqa: PLC0415 - the caller has it

    # A proxy is another connection in each thread; one that was made by hand stays itself.
    return connections[conn.alias] if type(conn).__name__ == "ConnectionProxy" else conn


async def _in_django(work: Callable[..., T], *args: Any) -> T:
    """*work* in the thread where Django keeps its connections."""
    from asgiref.sync import sync_to_async  # noqa: PLC0415 - the caller has it

    done: T = await sync_to_async(work, thread_sensitive=True)(*args)
    return done
