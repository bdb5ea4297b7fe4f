"""
Tx: what a transaction's block is handed, and the rows of its statements.

What a statement answers is read whole and kept in the journal, so that a block that was committed
before reads the same without sending anything.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from semel.core import journals, runs, steps
from semel.core.text import dump
from semel.db.execute import on
from semel.db.transact import answered
from semel.errors import BadRequest, JournalMismatch, KeyConflict
from semel.runtime.progress import json_text
from semel.runtime.rows import kept, read

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from semel.core.call import Call as Statement
    from semel.core.journals import Note
    from semel.core.steps import Entry
    from semel.model import Started
    from semel.runtime.journal import Call
    from semel.runtime.progress import Progress

_UNSET: Any = object()


class Tx:
    """
    What a transaction's block is handed: it sends statements and keeps what they read.

    `result` is the step's, any JSON; `done` says that the block was committed before.
    """

    def __init__(self, progress: Progress, call: Call, conn: Any) -> None:
        self._progress = progress
        self._call = call
        self._conn = conn  # None when it was committed before
        self._rows: list[Any] = json.loads(call.detail) if call.detail else []
        self._turn = 0
        self._runs = 0
        self._completion: Any = _UNSET
        self._over = False  # its connection is somebody else's by now
        self.notes: list[Entry] = []  # of others, journaled with it
        self._said: list[Note] = []  # for the project's journal
        self.result: Any = json.loads(call.result) if call.result is not None else None

    @property
    def done(self) -> bool:
        """Whether it was committed before: nothing is sent."""
        return self._conn is None

    @property
    def connection(self) -> Any:
        """
        The psycopg connection, for what `execute` has no form for; ask `done` first.

        Raises:
            BadRequest: the block was committed before: there is nothing to send.
        """
        if self._conn is None:
            raise BadRequest(
                f"transaction {self._call.key!r} was committed before: ask tx.done, or use"
                " run.transaction(name, function)"
            )
        return self._conn

    def close(self) -> None:
        """The block has ended: what is said to it now would be said outside the transaction."""
        self._over = True

    def _require_open(self) -> None:
        if self._over:
            raise BadRequest(
                f"the block of transaction {self._call.key!r} has ended; say it inside"
            )

    def complete(self, result: Any = None) -> None:
        """Complete the run with this transaction; *result* is the run's. End the handler then."""
        self._require_open()
        self._completion = json_text(self._call.key, result)

    def journal(self, topic: str, payload: Any = None) -> None:
        """
        Say something in the project's journal, for its consumers; written at the end of the block.

        Args:
            topic: 1 to 255 bytes.
            payload: Any JSON of at most 256 KiB; at most 1000 of them in a block.

        Raises:
            BadRequest, TooLarge: it is not.
        """
        self._require_open()
        said = journals.note(topic, payload)
        if not self.done:
            self._said.append(said)

    @property
    def said(self) -> bool:
        """Whether consumers of the project's journal have something to read, once committed."""
        return bool(self._said)

    def _key(self, key: str | None) -> str:
        self._runs += 1
        return key or f"{self._progress.key_of(self._call.key)}/{self._runs}"

    def _start(
        self, agent: str, value: Any, key: str | None, options: dict[str, Any]
    ) -> Statement[Started]:
        return runs.run_start(
            self._progress.claim.project, agent, value, key=self._key(key), **options
        )

    def _keep(self, started: Started) -> None:
        if started.outcome == "conflict":
            raise KeyConflict(
                "this key was used with another agent or input; nothing was started"
            )
        self._turn = len(self._rows)
        self._rows.append(kept(started.run_id))

    def _next_run(self) -> UUID:
        run_id: UUID = read(self._next_rows())
        return run_id

    def _next_rows(self) -> Any:
        if self._turn == len(self._rows):
            raise self._progress.breaks(
                JournalMismatch(
                    f"transaction {self._call.key!r} had {self._turn} statements when it was"
                    " committed, the code sends more"
                )
            )
        rows = self._rows[self._turn]
        self._turn += 1
        return rows

    def statements(self) -> tuple[list[Statement[Any]], str]:
        """What is to be sent last, under the fence, and the result as JSON text."""
        claim, call = self._progress.claim, self._call
        text = json_text(call.key, self.result)
        detail = dump(self._rows) if self._rows else None
        self.notes = self._progress.pending()
        entries = [*self.notes, call.entry("result", text, detail)]
        clock = self._progress.desk.clock()
        last: list[Statement[Any]] = [
            steps.step_record(
                claim.project,
                claim.worker,
                [(claim.run_id, claim.fence, entry) for entry in entries],
                now=clock,
            )
        ]
        if self._said:
            last.insert(
                0,
                journals.journal_append(
                    claim.project, self._said, run_id=claim.run_id, now=clock
                ),
            )
        if self._completion is not _UNSET:
            last.append(
                runs.run_complete(
                    claim.project,
                    claim.worker,
                    [(claim.run_id, claim.fence, self._completion)],
                    now=clock,
                )
            )
        return last, text


class Cursor:
    """The rows of one statement, read now or journaled before."""

    def __init__(self, answered: list[Any] | int | None) -> None:
        self._rows = answered if isinstance(answered, list) else None
        self._count = answered if isinstance(answered, int) else 0
        self._next = 0

    @property
    def rowcount(self) -> int:
        """How many rows it answered, or changed where it answers none."""
        return self._count if self._rows is None else len(self._rows)

    def _take(self, count: int | None) -> list[Any]:
        if self._rows is None:
            raise BadRequest("the statement answers no rows")
        end = len(self._rows) if count is None else self._next + count
        taken, self._next = self._rows[self._next : end], min(end, len(self._rows))
        return [tuple(row) if isinstance(row, list) else row for row in taken]


class SyncCursor(Cursor):
    """For a `def` handler."""

    def fetchone(self) -> Any:
        """The next row, or None."""
        return next(iter(self._take(1)), None)

    def fetchall(self) -> list[Any]:
        """The rows that are left."""
        return self._take(None)


class AsyncCursor(Cursor):
    """For an `async def` handler."""

    async def fetchone(self) -> Any:
        """The next row, or None."""
        return next(iter(self._take(1)), None)

    async def fetchall(self) -> list[Any]:
        """The rows that are left."""
        return self._take(None)


class AsyncTx(Tx):
    """In an `async def` handler."""

    async def execute(
        self, sql: Any, params: Sequence[Any] | dict[str, Any] | None = None
    ) -> AsyncCursor:
        """Send one statement; its rows are kept in the journal."""
        self._require_open()
        if self._conn is None:
            return AsyncCursor(read(self._next_rows()))
        cursor = await self._conn.execute(sql, params)
        answer = await cursor.fetchall() if cursor.description else max(0, cursor.rowcount)
        self._rows.append(kept(answer))
        return AsyncCursor(answer)

    async def start(
        self,
        agent: str,
        input: Any = None,  # noqa: A002 - the contract's word
        *,
        key: str | None = None,
        **options: Any,
    ) -> UUID:
        """Start a run with this transaction; its key is the step's own unless one is given."""
        self._require_open()
        if self._conn is not None:
            self._keep(await answered(on(self._conn, self._start(agent, input, key, options))))
        return self._next_run()


class SyncTx(Tx):
    """In a `def` handler."""

    def execute(
        self, sql: Any, params: Sequence[Any] | dict[str, Any] | None = None
    ) -> SyncCursor:
        """Send one statement; its rows are kept in the journal."""
        self._require_open()
        if self._conn is None:
            return SyncCursor(read(self._next_rows()))
        cursor = self._conn.execute(sql, params)
        answer = cursor.fetchall() if cursor.description else max(0, cursor.rowcount)
        self._rows.append(kept(answer))
        return SyncCursor(answer)

    def start(
        self,
        agent: str,
        input: Any = None,  # noqa: A002 - the contract's word
        *,
        key: str | None = None,
        **options: Any,
    ) -> UUID:
        """Start a run with this transaction; its key is the step's own unless one is given."""
        self._require_open()
        if self._conn is not None:
            started: Any = on(self._conn, self._start(agent, input, key, options))
            self._keep(started)
        return self._next_run()
