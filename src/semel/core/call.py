"""
A call is a value: a statement, its arguments, and how its rows become an answer.

Core modules build calls and do no I/O; `semel.db.execute` runs the same call on whatever
connection the caller has. The statement is a literal, so no input ever becomes SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import LiteralString

T = TypeVar("T", covariant=True)  # noqa: PLC0105 - a call of a list is a call of an iterable


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """
    One round trip. `%s` stands for each argument, in order.

    `%b` sends one in binary, which is cheaper for long arrays; only psycopg knows it, so it is
    for calls that our own processes make.
    """

    sql: LiteralString
    args: tuple[Any, ...]
    read: Callable[[Sequence[Any]], T]


def nothing(_rows: Sequence[Any]) -> None:
    """For calls whose answer is that they returned."""
