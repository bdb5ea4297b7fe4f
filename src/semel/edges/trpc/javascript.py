"""
JSON as JavaScript reads and writes it: `parse` is JSON.parse, `stringify` is JSON.stringify.

A number is a double, whichever way it is spelt: 1, 1.0 and 1e0 are one, and an integer beyond 2^53
is the double next to it. A whole number comes out as an int.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from json.encoder import encode_basestring
from typing import Any

from semel.core.canonical import DEPTH_MAX, INTEGER_MAX
from semel.edges.trpc.values import UNDEFINED, BigInt, Map, Set

_BOM = b"\xef\xbb\xbf"


def parse(text: bytes | str) -> Any:
    """
    The value of *text*.

    Raises:
        ValueError: no JSON, no UTF-8, or too deep.
    """
    if isinstance(text, bytes):
        try:
            text = text.removeprefix(_BOM).decode()
        except UnicodeDecodeError as bad:
            raise ValueError(f"the body is no UTF-8 at byte {bad.start}") from None
    try:
        value = _DECODE(text)
        _measure(value, DEPTH_MAX)
    except RecursionError:
        raise ValueError(f"more than {DEPTH_MAX} levels of nesting") from None
    except json.JSONDecodeError as bad:
        raise ValueError(_told(text, bad)) from None
    return value


def stringify(value: Any, *, finite: bool = False) -> str:
    """
    *value* on the wire.

    A member that is UNDEFINED is left out, in a list it is null; a number that is not finite is
    null; a moment is its ISO text in UTC, a bigint its digits in quotes.

    Args:
        finite: Refuse a number that is not, instead.

    Raises:
        TypeError: a value that has no form in JSON.
        ValueError: it contains itself, or is too deep.
    """
    writer = _Writer(finite=finite)
    writer.write(value, DEPTH_MAX)
    return "".join(writer.parts)


def moment(value: datetime) -> str:
    """As Date.prototype.toISOString: UTC, milliseconds; one without a zone is in UTC."""
    utc = (
        value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    ).replace(tzinfo=None)
    return f"{utc.isoformat(timespec='milliseconds')}Z"


def number(value: float) -> str:
    """As Number.prototype.toString; null where it is not finite."""
    if not math.isfinite(value):
        return "null"
    if abs(value) <= INTEGER_MAX and value == int(value):
        return str(int(value))
    mantissa, _, exponent = repr(value).partition("e")
    power = int(exponent or 0)
    if not exponent:
        return mantissa.removesuffix(".0")
    if power < -6 or power > 20:  # noqa: PLR2004 - ECMAScript's bounds
        return f"{mantissa.removesuffix('.0')}e{power:+}"
    sign = "-" if value < 0 else ""
    digits = mantissa.lstrip("-").replace(".", "")
    if power > 0:
        return f"{sign}{digits:0<{power + 1}}"
    return f"{sign}0.{'0' * (-power - 1)}{digits}"


def plain(value: Any) -> Any:
    """*value*, or what a model of pydantic's says it is in JSON."""
    dump = getattr(value, "model_dump", None)
    return value if dump is None or isinstance(value, type) else dump(mode="json")


def text(value: str) -> str:
    """A string in quotes; well-formed, whatever halves of pairs it has."""
    quoted: str = encode_basestring(value)
    if quoted.isascii():
        return quoted
    try:
        quoted.encode()
    except UnicodeEncodeError:
        return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in quoted)
    return quoted


class _Writer:
    """Writes one value, in parts."""

    def __init__(self, *, finite: bool) -> None:
        self.parts: list[str] = []
        self._put = self.parts.append
        self._finite = finite

    def write(self, value: Any, left: int) -> None:  # noqa: C901 - a line for each type
        """*value*, with at most *left* levels in it."""
        if isinstance(value, str):
            self._put(text(value))
        elif value is None or value is UNDEFINED:
            self._put("null")
        elif isinstance(value, bool):
            self._put("true" if value else "false")
        elif isinstance(value, BigInt):
            self._put(f'"{int(value)}"')
        elif isinstance(value, int):
            self._put(int.__repr__(value))
        elif isinstance(value, float):
            self._number(value)
        elif left <= 0:
            raise ValueError(f"more than {DEPTH_MAX} levels of nesting, or a value in itself")
        elif isinstance(value, Map | Set | set | frozenset):
            self._put("{}")  # all that JSON.stringify knows of them
        elif isinstance(value, dict):
            self._members(value, left - 1)
        elif isinstance(value, list | tuple):
            self._items(value, left - 1)
        else:
            self._rest(value, left - 1)

    def _number(self, value: float) -> None:
        if self._finite and not math.isfinite(value):
            raise ValueError("a number is beyond what a double can hold")
        self._put(number(value))

    def _members(self, value: dict[Any, Any], left: int) -> None:
        before = "{"
        for name, member in value.items():
            if not isinstance(name, str):
                raise TypeError(f"a member's name is no string but {type(name).__name__}")
            if member is UNDEFINED:
                continue
            self._put(f"{before}{text(name)}:")
            self.write(member, left)
            before = ","
        self._put("{}" if before == "{" else "}")

    def _items(self, value: list[Any] | tuple[Any, ...], left: int) -> None:
        before = "["
        for item in value:
            self._put(before)
            self.write(item, left)
            before = ","
        self._put("[]" if before == "[" else "]")

    def _rest(self, value: Any, left: int) -> None:
        if isinstance(value, datetime):
            self._put(f'"{moment(value)}"')
        elif isinstance(value, date):
            self._put(f'"{value.isoformat()}"')
        elif isinstance(value, bytes | bytearray):
            self.write({str(place): byte for place, byte in enumerate(value)}, left)
        else:
            known = plain(value)
            if known is value:
                raise TypeError(f"{type(value).__name__} has no form in JSON")
            self.write(known, left)


def _whole(spelling: str) -> int | float:
    if len(spelling) < 16:  # noqa: PLR2004 - 2^53 has 16 digits
        return int(spelling)
    return _double(spelling)


def _double(spelling: str) -> int | float:
    value = float(spelling)
    return int(value) if value.is_integer() and abs(value) <= INTEGER_MAX else value


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODE = json.JSONDecoder(
    parse_int=_whole, parse_float=_double, parse_constant=_constant
).decode


def _measure(value: Any, left: int) -> None:
    """Refuse what is deeper than *left*; JSON.parse has no such limit, and a stack has."""
    level = [value]
    while level:
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(m for m in each.values() if isinstance(m, dict | list))
            elif isinstance(each, list):
                inner.extend(m for m in each if isinstance(m, dict | list))
        if inner and left <= 1:
            raise RecursionError
        level, left = inner, left - 1


def _told(given: str, bad: json.JSONDecodeError) -> str:
    if not given.strip() or bad.pos >= len(given.rstrip()):
        return "Unexpected end of JSON input"
    return f"{bad.msg} in JSON at position {bad.pos}"
