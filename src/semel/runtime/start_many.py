"""
Start many runs at once, as a batch: all of them, or none.

    inputs ──page by page──> one statement for each page ──close──> the caller's COMMIT

Inputs are taken as they come, so that a hundred thousand need neither a hundred thousand trips
nor the memory of them all. The first that is none ends it, by its place, and nothing of the batch
is left in the caller's transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload
from uuid import uuid4

from semel.core import batches
from semel.core.json_text import text
from semel.core.runs import KEY_CHARS_MAX
from semel.core.text import DEPTH_MAX, dump, load
from semel.db.execute import on
from semel.db.ledger.drive import drive
from semel.db.transact import answered, is_async, whole
from semel.db.wake import outside_transaction
from semel.errors import BadKey, BadRequest, KeyConflict
from semel.runtime.start import BELL, wake

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator
    from datetime import timedelta

    import psycopg

    from semel.core.call import Call

#: A page has at most so many inputs, and so many characters of them where it has more than one.
PAGE_INPUTS = 1000
PAGE_CHARS = 1_000_000


class BatchOptions(TypedDict, total=False):
    """What `start_many` takes for all runs alike; documented there."""

    priority: int
    max_attempts: int | None
    delay: timedelta | None
    deadline: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What `semel.start_many` did. A duplicate was started before, with the same inputs."""

    name: str
    outcome: Literal["new", "duplicate"]
    total: int  # its runs
    duplicates: int  # inputs whose key had a run already


@overload
def start_many(
    conn: psycopg.Connection[Any],
    *,
    project: str,
    agent: str,
    inputs: Iterable[Any],
    keys: Iterable[str | None] | None = ...,
    batch: str | None = ...,
    on_complete: str | None = ...,
    **options: Unpack[BatchOptions],
) -> Batch: ...
@overload
def start_many(
    conn: psycopg.AsyncConnection[Any],
    *,
    project: str,
    agent: str,
    inputs: Iterable[Any],
    keys: Iterable[str | None] | None = ...,
    batch: str | None = ...,
    on_complete: str | None = ...,
    **options: Unpack[BatchOptions],
) -> Awaitable[Batch]: ...
@overload
def start_many(
    conn: Any,
    *,
    project: str,
    agent: str,
    inputs: Iterable[Any],
    keys: Iterable[str | None] | None = ...,
    batch: str | None = ...,
    on_complete: str | None = ...,
    **options: Unpack[BatchOptions],
) -> Any: ...
def start_many(
    conn: Any,
    *,
    project: str,
    agent: str,
    inputs: Iterable[Any],
    keys: Iterable[str | None] | None = None,
    batch: str | None = None,
    on_complete: str | None = None,
    **options: Unpack[BatchOptions],
) -> Batch | Awaitable[Batch]:
    """
    Start a run of *agent* for each of *inputs*, inside the transaction that *conn* is in.

    On a connection in autocommit it is a transaction of its own. The runs are ready in the order
    of their inputs. `semel batch show NAME` and the view `semel.batches` say how far they are.

    Args:
        conn: psycopg, asyncpg, SQLAlchemy or Django; `await` the answer where it is async.
        inputs: Any JSON, each; a generator is read as it comes, and only once.
        keys: For each input, None, or what at most one run is started for; see `start`.
        batch: Its name, 1 to 255 bytes: once in a project while it is kept. The same name again
            with the same inputs starts nothing; they are compared as Python writes them. None
            makes one up.
        on_complete: The agent that gets one run, with what became of the batch as its input,
            within seconds of the end of its last run.
        options: priority, max_attempts, delay and deadline of each run; see `start`.

    Raises:
        BadRequest: an input is no JSON, a key is none, or there are not as many keys as inputs.
            It names the place, from 0; nothing was started, and the transaction is unharmed.
        KeyConflict: the name has another agent or other inputs, or one of the keys has.
    """
    if isinstance(inputs, str | bytes | Mapping) or not isinstance(inputs, Iterable):
        raise BadRequest("inputs is a list, or whatever else yields one input after another")
    name = str(uuid4()) if batch is None else batch
    opening = batches.batch_open(project, name, agent, on_complete=on_complete)
    work = _start(conn, opening, _Pages(inputs, keys), options)
    return work if is_async(conn) else drive(work)


async def _start(
    conn: Any, opening: Call[batches.Opened], pages: _Pages, options: BatchOptions
) -> Batch:
    project, name, agent, on_complete, _ = opening.args
    async with whole(conn):
        found = await answered(on(conn, opening))
        if found.outcome == "open":
            raise BadRequest(f"batch {name[:80]!r} is being filled by another program")
        if found.outcome == "exists":
            return _again(found, (agent, on_complete), pages, name)
        for inputs, keys, first in pages.texts():
            call = batches.batch_add(project, name, inputs, keys=keys, **options)
            added = await answered(on(conn, call))
            if added.place is not None:
                raise KeyConflict(
                    f"input {first + added.place}: its key was used with another agent or input;"
                    " nothing was started"
                )
        close = batches.batch_close(project, name, pages.digest)
        _, total, duplicates = await answered(on(conn, close))
    if total and outside_transaction(conn) and BELL.due([agent]):
        await answered(wake(conn, agent))
    return Batch(name=name, outcome="new", total=total, duplicates=duplicates)


def _again(found: batches.Opened, told: tuple[Any, ...], pages: _Pages, name: str) -> Batch:
    for _ in pages.texts():
        pass
    if (found.agent, found.on_complete, found.digest) != (*told, pages.digest):
        raise KeyConflict(
            f"batch {name[:80]!r} is there, with another agent, on_complete or other inputs;"
            " nothing was started"
        )
    return Batch(name=name, outcome="duplicate", total=found.total, duplicates=found.duplicates)


@dataclass
class _Pages:
    """Inputs and keys as pages of JSON; once they were read, *digest* says what they were."""

    inputs: Iterable[Any]
    keys: Iterable[str | None] | None
    _hash: Any = field(default_factory=hashlib.sha256)

    @property
    def digest(self) -> bytes:
        """Of all that was read so far, however it was paged."""
        told: bytes = self._hash.digest()
        return told

    def texts(self) -> Iterator[tuple[str, list[str | None] | None, int]]:
        """
        Each page as a JSON array, its keys, and the place of its first input.

        Raises:
            BadRequest, BadKey: an input or a key is none; the message says where.
        """
        keys = None if self.keys is None else iter(self.keys)
        texts: list[str] = []
        named: list[str | None] = []
        first = chars = 0
        for value in self.inputs:
            place = first + len(texts)
            texts.append(_written(value, place))
            chars += len(texts[-1])
            if keys is not None:
                named.append(_key(keys, place))
            if len(texts) == PAGE_INPUTS or chars >= PAGE_CHARS:
                yield self._page(texts, None if keys is None else named, first)
                first, chars = first + len(texts), 0
                texts, named = [], []
        if texts:
            yield self._page(texts, None if keys is None else named, first)
        if keys is not None and next(keys, _NONE) is not _NONE:
            raise BadRequest(f"there are more keys than the {first + len(texts)} inputs")

    def _page(
        self, texts: list[str], keys: list[str | None] | None, first: int
    ) -> tuple[str, list[str | None] | None, int]:
        lines = "\n".join(texts)
        try:
            encoded = lines.encode()
        except UnicodeEncodeError:
            encoded = None
        if encoded is None or "\\u0000" in lines:
            _blame(texts, first)
        if keys is None:
            self._hash.update(lines.encode() + b"\n")
        else:  # no JSON begins with the sign that a key's line does
            both = zip(texts, keys, strict=True)
            self._hash.update("".join(f"{told}\n={key}\n" for told, key in both).encode())
        return f"[{','.join(texts)}]", keys, first


_NONE = object()


def _written(value: Any, place: int) -> str:
    try:
        told = text(value)
    except (TypeError, ValueError, RecursionError) as bad:
        raise BadRequest(f"input {place} is no JSON: {bad}") from None
    if told.count("[") + told.count("{") > DEPTH_MAX:
        try:
            load(told.encode(errors="replace"))
        except BadRequest as bad:
            raise BadRequest(f"input {place}: {bad}") from None
    return told


def _blame(texts: list[str], first: int) -> None:
    """Say which of *texts* PostgreSQL cannot store; none, if all can."""
    for n, told in enumerate(texts, first):
        try:
            dump(load(told.encode()))
        except (BadRequest, UnicodeEncodeError) as bad:
            said = bad if isinstance(bad, BadRequest) else "half of a surrogate pair"
            raise BadRequest(f"input {n} cannot be stored: {said}") from None


def _key(keys: Iterator[str | None], place: int) -> str | None:
    key: Any = next(keys, _NONE)
    if key is _NONE:
        raise BadRequest(f"input {place} has no key: give one, or None, for each input")
    if key is not None and not (
        isinstance(key, str) and key.isprintable() and 0 < len(key) <= KEY_CHARS_MAX
    ):
        raise BadKey(f"key {place}: a key is 1 to {KEY_CHARS_MAX} printable characters")
    told: str | None = key
    return told
