"""
Operation: what the block of `once` is handed.

It collects what the transaction is to say besides the caller's own rows - the reply, runs to
start, entries of the journal - and says nothing itself: all of it is written when the block ends
well, and none of it otherwise.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from semel.core import journals, runs
from semel.core.canonical import canonical
from semel.core.digest import value_digest
from semel.core.operations import Reply
from semel.db.stops import stop_here
from semel.edges.told import Told
from semel.errors import BadReply, BadRequest, TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from semel.core.call import Call
    from semel.core.journals import Note
    from semel.model import Json, Started

JSON_TYPE = ("Content-Type", "application/json")
BYTES_TYPE = ("Content-Type", "application/octet-stream")
#: Where the keys of runs that operations start are remembered, apart from those of callers.
SOURCE = "operation"


#: What a header line is made of, as every server sends it. Source: RFC 9110, 5.
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LINE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class StartOptions(TypedDict, total=False):
    """What `op.start` takes beside the agent and input; documented at `semel.start`."""

    priority: int
    max_attempts: int | None
    delay: timedelta | None
    deadline: timedelta | None
    unique: str | None


class Operation:
    """
    One operation, while it is executed or replayed.

    Attributes:
        project: Whose ledger it is in.
        request_id: Its row's id there; None without a key.
        replay: What was answered before: answer it again, and do nothing. None: execute.
        attempts: Which execution this is, 1 for the first; None without a key.
        connection: What its own writes go through: the connection, or session, of `once`.
    """

    def __init__(self, project: str, request_id: str | None) -> None:
        self.project = project
        self.request_id = request_id
        self.replay: Reply | None = None
        self.attempts: int | None = None
        self.connection: Any = None
        self.failure: Told | None = None
        self._reply: Reply | None = None
        self._kept: tuple[Reply, bool] | None = None
        self._refused: BadReply | None = None
        self._starts: list[tuple[str, Call[Started]]] = []
        self._notes: list[Note] = []
        self._ended = False

    def reply(
        self,
        value: Any = None,
        *,
        status: int = 200,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        """
        What the caller is answered, now and in every replay; the last one counts.

        Args:
            value: Any JSON, which is written as RFC 8785 does; or bytes, which stay as they are.
            headers: In their order, repeats kept. Content-Type is application/json, of bytes
                application/octet-stream, unless it is among them.

        Raises:
            BadReply: it is no JSON, no status of 200 to 599, or no header line of HTTP. The
                operation fails, also if this is caught.
        """
        self._executing("reply")
        kind = BYTES_TYPE if isinstance(value, bytes) else JSON_TYPE
        try:
            if type(status) is bool or not 200 <= int(status) == status <= 599:  # noqa: PLR2004 - of HTTP
                raise ValueError(f"{status} is no status of an answer")  # noqa: TRY301 - one way out
            lines = [_line(name, line) for name, line in headers]
            body = value if isinstance(value, bytes) else canonical(value)
        except (TypeError, ValueError, RecursionError) as bad:
            self._refused = BadReply(f"the reply cannot be kept: {bad}"[:300])
            raise self._refused from bad
        if not any(name.lower() == "content-type" for name, _ in lines):
            lines.insert(0, kind)
        self.answer(Reply(status=int(status), headers=lines, body=body))

    def answer(self, reply: Reply, *, kept: tuple[Reply, bool] | None = None) -> None:
        """
        As `reply`, for adapters that have the answer already.

        Args:
            kept: What the ledger keeps instead of it, and whether that is a tombstone.
        """
        self._executing("reply")
        self._reply, self._kept = reply, kept

    def fail(self, message: str, *, code: str = "failed") -> None:
        """
        Let it be FAILED without raising: at the end of the block all its writes are undone.

        What it replied is still its response; it is not kept, so a retry executes again.
        """
        self._executing("fail")
        self.failure = Told(str(code), str(message))

    def journal(self, topic: str, payload: Any = None) -> None:
        """
        Say *payload* in the journal, once the operation is committed.

        Args:
            topic: 1 to 255 bytes.
            payload: Any JSON of at most 256 KiB.

        Raises:
            BadRequest, TooLarge: it cannot be said, or they are more than a thousand.
        """
        self._executing("journal")
        if len(self._notes) == journals.ENTRIES_MAX:
            raise TooLarge(f"an operation journals at most {journals.ENTRIES_MAX} entries")
        self._notes.append(journals.note(topic, payload))

    def start(
        self,
        agent: str,
        input: Any = None,  # noqa: A002 - the contract's word
        *,
        key: str | None = None,
        **options: Unpack[StartOptions],
    ) -> None:
        """
        Start a run of *agent* with the operation: both are committed, or neither.

        Args:
            input: Any JSON.
            key: Its name within the operation; by default its place among the runs started. The
                same name again is the same run, and with another agent or input a KeyConflict,
                which fails the operation.
            options: Those of `semel.start`.

        Raises:
            BadRequest: an argument is none.
        """
        self._executing("start")
        run_key = None
        if self.request_id is not None:
            name = key or f"#{len(self._starts) + 1}"
            run_key = value_digest([self.request_id, name])
        call = runs.run_start(
            self.project, agent, input, key=run_key or key, source=SOURCE, **options
        )
        self._starts.append((agent, call))

    def response(self) -> Reply:
        """
        What to answer: the reply, or that of the first execution. It exists only after COMMIT.

        Without a reply it is the status 200 and the body null.

        Raises:
            BadRequest: the block has not ended, or not well.
        """
        if self.replay is None and not self._ended:
            raise BadRequest(
                "op.response() exists only after COMMIT: ask for it behind the block"
            )
        stop_here("ledger.answer.before")
        if self.replay is not None:
            return self.replay
        if self.failure is not None and self._reply is None:
            raise BadRequest(f"the operation failed and has no reply: {self.failure.message}")
        return self._answer()

    # -- for whoever ends it ----------------------------------------------------------------

    @property
    def replied(self) -> Reply | None:
        """The reply so far."""
        return self._reply

    @property
    def refused(self) -> BadReply | None:
        """Why what was replied cannot be kept, if it cannot."""
        return self._refused

    @property
    def kept(self) -> tuple[Reply, bool]:
        """What the ledger is to keep of the reply, and whether that is a tombstone."""
        return self._kept or (self._answer(), False)

    @property
    def starts(self) -> list[Call[Started]]:
        """Runs to be started."""
        return [call for _, call in self._starts]

    @property
    def agents(self) -> list[str]:
        """Whose runs they are."""
        return [agent for agent, _ in self._starts]

    @property
    def notes(self) -> list[Note]:
        """Entries of the journal."""
        return self._notes

    @property
    def entries(self) -> list[dict[str, Json]]:
        """The same, as `operation_finish` takes them."""
        # As it was when it was said: the work may have changed its object since.
        return [{"topic": note.topic, "payload": json.loads(note.text)} for note in self._notes]

    def returned(self, value: Any) -> None:
        """The work returned *value*: its reply, unless it replied or failed by itself."""
        if self._reply is None and self.failure is None:
            self.reply(value)

    def end(self) -> None:
        """It is durable as it is: there is a response."""
        self._ended = True

    def _answer(self) -> Reply:
        return self._reply or Reply(status=200, headers=[JSON_TYPE], body=b"null")

    def _executing(self, word: str) -> None:
        if self.replay is not None:
            raise BadRequest(
                f"op.{word}: this is a replay; where op.replay is not None, execute nothing"
            )
        if self._ended:
            raise BadRequest(f"op.{word}: the operation has ended")


def _line(name: Any, value: Any) -> tuple[str, str]:
    """A header line, or ValueError."""
    line = (str(name), str(value))
    if not (_NAME.fullmatch(line[0]) and _LINE.fullmatch(line[1])):
        raise ValueError(f"{line[0][:40]!r} is no header line of HTTP")
    return line
