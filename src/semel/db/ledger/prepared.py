"""
Prepared: what a claim and a close say to a psycopg connection, noted in psycopg's own book.

psycopg notes there what it has prepared, and forgets it all when a ROLLBACK, a DISCARD or a change
of the schema has gone by; what stands in its book comes and goes with that. A name says which text
it stands for: where a pooler hands sessions around it never is another statement.

Only a claim prepares, since it has nothing to lose: no write of the caller's is undone where it
fails. `prepare_threshold=None` prepares nothing.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg.pq import DiagnosticField, ExecStatus

from semel.core import operations
from semel.db.ledger.parameter import numbered

if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import Sequence

    from psycopg.pq.abc import PGresult

_OURS = b"semel_"
_WORDS = re.compile("[a-z ]{1,56}")
_PIPELINES = psycopg.capabilities.has_pipeline()
#: There is none of that name, there is one already, its result has another shape by now.
_LACKS = (b"26000", b"42P05", b"0A000")


class Statement(NamedTuple):
    """One text to prepare."""

    key: tuple[bytes, tuple[int, ...]]  # psycopg's: the text, and the types of its parameters
    name: bytes

    @property
    def text(self) -> bytes:
        """As it is prepared."""
        return self.key[0]


@lru_cache(maxsize=256)
def statement(sql: str) -> Statement:
    """The statement of a call, or of a word."""
    text = numbered(sql)
    said = sql.replace(" ", "_") if _WORDS.fullmatch(sql) else hashlib.sha256(text).hexdigest()
    return Statement((text, ()), _OURS + said[:56].encode())


CLAIM, CLOSE = statement(operations.BEGIN), statement(operations.CLOSE)


def names(conn: Any) -> Any:
    """What is prepared on *conn*, by key; None where nothing is to be, or nobody can say."""
    book = getattr(conn, "_prepared", None)
    if (
        not _PIPELINES
        or getattr(book, "prepare_threshold", None) is None
        or getattr(book, "_to_flush", True)  # it is about to deallocate
        or conn.pgconn.parameter_status(b"client_encoding") != b"UTF8"
    ):
        return None
    return getattr(book, "_names", None)


def note(
    noted: OrderedDict[Any, bytes],
    used: Sequence[Statement],
    fresh: Sequence[Statement],
    results: Sequence[PGresult],
) -> bool:
    """
    Note the *fresh* ones that *results* begin with; whether the server had all that were *used*.

    Where it had not, this session is not what the book takes it for: none of ours stays in it.
    """
    for made, result in zip(fresh, results, strict=False):
        if result.status == ExecStatus.COMMAND_OK:
            noted[made.key] = made.name
    if results[-1].status not in (ExecStatus.PIPELINE_ABORTED, ExecStatus.FATAL_ERROR):
        for each in used:
            noted.move_to_end(each.key)
        return True
    if not any(result.error_field(DiagnosticField.SQLSTATE) in _LACKS for result in results):
        return True
    for key in [key for key, name in noted.items() if name.startswith(_OURS)]:
        del noted[key]
    return False
