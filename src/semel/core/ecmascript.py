"""
ECMAScript values: what JSON.stringify makes of them.

A transformer of tRPC hands over more than JSON has: dates, undefined, big integers. Digest version
1 is taken of what JSON.stringify writes for those, with a big integer as a string. Nothing of it
is ever read back.
"""

from __future__ import annotations

import enum
import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from semel.core.canonical import DEPTH_MAX, INTEGER_MAX

if TYPE_CHECKING:
    from semel.model import Json


class Undefined(enum.Enum):
    """The type of UNDEFINED."""

    UNDEFINED = "undefined"


#: No value: a member that is left out, null in an array.
UNDEFINED: Final = Undefined.UNDEFINED


class BigInt(int):
    """A bigint, which is no number: written as a string of its digits."""


def stringified(  # noqa: PLR0911 - one for each kind of value
    value: Any, depth: int = 0
) -> Json | Literal[Undefined.UNDEFINED]:
    """
    What JSON.stringify writes of *value*, as JSON; UNDEFINED where it writes nothing.

    An int is a number of JavaScript, so the double nearest to it; bytes are a Uint8Array; sets
    and patterns have no members of their own.

    Raises:
        TypeError: it has a member that no value of JavaScript stands for, or a date without zone.
        ValueError: more than DEPTH_MAX levels, as a circle has, or a date out of range.
    """
    match value:
        case None | bool() | str() | Undefined():
            return value
        case BigInt():
            return str(int(value))
        case int():
            return int(value) if abs(value) <= INTEGER_MAX else _double(value)
        case float():
            return value if math.isfinite(value) else None
        case datetime():
            return _date(value)
        case bytes() | bytearray():
            return {str(place): byte for place, byte in enumerate(value)}
        case set() | frozenset() | re.Pattern():
            return {}
        case dict() | list() | tuple():
            if depth == DEPTH_MAX:
                raise ValueError(f"it is nested deeper than {DEPTH_MAX}")
            return _members(value, depth + 1)
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def _members(value: Any, depth: int) -> Json:
    if not isinstance(value, dict):
        items = [stringified(item, depth) for item in value]
        return [None if item is UNDEFINED else item for item in items]
    if not all(isinstance(name, str) for name in value):
        raise TypeError("a member's name is no string")
    members = {name: stringified(item, depth) for name, item in value.items()}
    return {name: item for name, item in members.items() if item is not UNDEFINED}


def _double(value: int) -> float | None:
    try:
        return float(value)
    except OverflowError:  # Infinity, of which JSON.stringify makes null
        return None


def _date(value: datetime) -> str:
    """As Date.prototype.toISOString, which has milliseconds."""
    if value.tzinfo is None:
        raise TypeError("a date without its zone has no JSON form")
    try:
        there = value.astimezone(UTC)
    except OverflowError:
        raise ValueError("a date is out of range") from None
    return f"{there.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
