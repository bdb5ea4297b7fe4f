"""
Told: what the ledger keeps of an error, and what kind it is.

Of a database's error its SQLSTATE and its first line: the details name values, and SQLAlchemy
repeats statement and parameters. Of any other error its class and what it says.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from semel.db.execute import unreachable
from semel.errors import DatabaseUnreachable, SemelError, UnknownOutcome

MESSAGE_CHARS_MAX = 500
_RACES = {"40001", "40P01"}
_ABORTED = "25P02"


class Told(NamedTuple):
    """A code, and a sentence for whoever reads the ledger."""

    code: str
    message: str


def cause(error: BaseException) -> Any:
    """The driver's error below SQLAlchemy's or Django's; *error* itself where there is none."""
    for below in (
        getattr(getattr(error, "orig", None), "__cause__", None),
        getattr(error, "orig", None),
        error,
        error.__cause__,
    ):
        if getattr(below, "sqlstate", None) is not None:
            return below
    return getattr(error, "orig", None) or error


def is_race(error: BaseException) -> bool:
    """Whether the database ended the transaction in favour of another: deadlock, serialization."""
    return getattr(cause(error), "sqlstate", None) in _RACES


def is_aborted(error: BaseException) -> bool:
    """Whether something was sent in a transaction that was aborted before."""
    return getattr(cause(error), "sqlstate", None) == _ABORTED


def may_be_committed(error: BaseException) -> bool:
    """Whether COMMIT may have been done though *error* was raised: its answer was lost."""
    below = cause(error)
    if isinstance(below, DatabaseUnreachable):  # ours, which is raised where nothing was kept
        return False
    return isinstance(below, UnknownOutcome) or unreachable(below)


def is_lost(error: BaseException) -> bool:
    """Whether it says that the server is out of reach."""
    below = cause(error)
    # The last: asyncpg's, of a connection that broke in the middle of a statement.
    return (
        unreachable(below)
        or isinstance(below, OSError)
        or type(below).__name__ == "InternalClientError"
    )


def of(error: BaseException) -> Told:
    """What is kept of *error*."""
    below = cause(error)
    sqlstate = getattr(below, "sqlstate", None)
    if isinstance(error, SemelError):
        return Told(error.code, _said(error)[:MESSAGE_CHARS_MAX])
    if sqlstate is not None:
        diag = getattr(below, "diag", None)
        message = getattr(diag, "message_primary", None) or getattr(below, "message", None)
        return Told(
            str(sqlstate), f"{type(below).__name__}: {message or ''}"[:MESSAGE_CHARS_MAX]
        )
    name = type(error).__name__
    return Told(name, f"{name}: {_said(error)}"[:MESSAGE_CHARS_MAX])


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as worse:  # noqa: BLE001 - a stranger's __str__; his error is kept all the same
        return f"({type(worse).__name__} in its __str__)"
