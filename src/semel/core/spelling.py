"""
Spelling: from the bytes that a client sent to the canonical text of what they say.

Two ways to read them. `strict` is I-JSON: whoever reads it otherwise reads the same. `js` is what
JSON.parse yields, for what a JavaScript server would have read: of members of one name the last
one counts, an integer is the double nearest to it, and a byte order mark is skipped. Neither
takes bytes that are no UTF-8, a number that no double can hold, or more than the limits allow.

What costs: Python's C decoder reads, members are put in order as it does, and its C encoder writes.
A large object is never made, only written. A text of few and long values has its strings copied,
not escaped, where the text has no escape.
"""

from __future__ import annotations

import codecs
import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from semel.core.canonical import (
    DEPTH_MAX,
    FRACTION_MIN,
    INTEGER_MAX,
    Member,
    Members,
    Version,
    Written,
    arranged,
    is_wide,
    number,
    utf8,
    written,
)
from semel.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from semel.model import Json

Decode: TypeAlias = Literal["js", "strict"]

#: Bytes of one input.
SIZE_MAX = 16 * 1024 * 1024
#: An integer of fewer digits is exact in a double.
_EXACT_DIGITS = len(str(INTEGER_MAX)) - 1
_DIGITS = bytes(48 if 48 <= byte <= 57 else 0 for byte in range(256))  # noqa: PLR2004 - 0 to 9
_DIGITS_RUN = b"0" * (_EXACT_DIGITS + 1)
#: Characters for each value from which on a text is long.
LONG = 1024
#: Members from which on an object is not made, only written.
MANY = 64


def spelled(raw: bytes, version: Version, decode: Decode) -> bytes:
    """
    The canonical text of the JSON in *raw*.

    Raises:
        BadInput: it has none, or passes SIZE_MAX or DEPTH_MAX.
    """
    strict = decode == "strict"
    text = _text(raw, decode)
    numbers = _Numbers(strict=strict)
    wide = is_wide(text) or ("\\" in text and "\\u" in text)

    def inside(members: list[Member]) -> dict[str, Any]:
        if len(members) >= MANY and len({name for name, _ in members}) == len(members):
            return Members(arranged(members, version, wide=wide))
        value = dict(arranged(members, version, wide=wide))
        if strict and len(value) < len(members):
            _single(members)
        return value

    long = _is_long(text)
    tree = _parsed(text, raw, numbers, inside, long=long)
    canonical = written(tree, odd=numbers.odd, clean=long and "\\" not in text)
    try:
        return utf8(canonical, 2 if strict else version)
    except ValueError as bad:
        raise BadInput(f"the input has no digest: {bad}") from None


def read(raw: bytes, decode: Decode = "strict") -> Json:
    """
    The value of the JSON in *raw*, as `spelled` reads it; an inexact integer is a float.

    Raises:
        BadInput: as `spelled`, but half of a surrogate pair is read where *decode* is js.
    """
    strict = decode == "strict"
    text = _text(raw, decode)
    numbers = _Numbers(strict=strict, written=False)
    value: Json = _parsed(text, raw, numbers, _single if strict else dict, long=_is_long(text))
    if strict and "\\u" in text:
        spelled(raw, 2, decode)
    return value


def _text(raw: bytes, decode: Decode) -> str:
    if len(raw) > SIZE_MAX:
        raise BadInput(f"the input is larger than {SIZE_MAX} bytes")
    if decode == "js":
        raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode()
    except UnicodeDecodeError as bad:
        raise BadInput(
            f"the input is not UTF-8: byte {bad.start} begins no character"
        ) from None


def _is_long(text: str) -> bool:
    """Whether *text* has few values for its length, so that none of them costs much."""
    return len(text) > LONG * (1 + text.count(","))


def _parsed(
    text: str,
    raw: bytes,
    numbers: _Numbers,
    inside: Callable[[list[Member]], dict[str, Any]],
    *,
    long: bool,
) -> Any:
    """The value of *text*, each object made by *inside*."""
    whole = numbers.integer if long or _DIGITS_RUN in raw.translate(_DIGITS) else None
    try:
        value = json.loads(
            text,
            parse_int=whole,
            parse_float=numbers.fraction,
            parse_constant=_refuse,
            object_pairs_hook=inside,
        )
    except RecursionError:
        raise BadInput(f"the input is nested deeper than {DEPTH_MAX}") from None
    except ValueError as bad:
        raise BadInput(f"the input is not JSON: {bad}") from None
    if long or text.count("[") + text.count("{") > DEPTH_MAX:
        _check_depth(value)
    return value


class _Numbers:
    """How numbers are read; `odd` once there is one that only its own text can write."""

    def __init__(self, *, strict: bool, written: bool = True) -> None:
        self._strict = strict
        self._written = written
        self.odd = False

    def integer(self, text: str) -> int | float | Written:
        if len(text) <= _EXACT_DIGITS:
            return int(text)
        value = float(text)
        if abs(value) <= INTEGER_MAX:
            return int(value)
        if self._strict:
            raise BadInput("the input has an integer beyond ±(2^53-1): send it as a string")
        return self.fraction(text)

    def fraction(self, text: str) -> int | float | Written:
        value = float(text)
        if FRACTION_MIN < abs(value) < INTEGER_MAX and not value.is_integer():
            return value  # as `number` would say, and most are
        if not math.isfinite(value):
            raise BadInput("the input has a number that is out of range")
        if not self._written:
            return value
        found = number(value)
        if type(found) is Written:
            self.odd = True
        return found


def _single(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of *members*, each name once."""
    value = dict(members)
    if len(value) != len(members):
        [(twice, _)] = Counter(name for name, _ in members).most_common(1)
        raise BadInput(f"the input has the member {twice[:40]!a} more than once")
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            item
            for inside in level
            if isinstance(inside, dict | list)
            for item in (
                [value for _, value in inside.items()] if isinstance(inside, dict) else inside
            )
        ]
        if not level:
            return
    if any(isinstance(item, dict | list) for item in level):
        raise BadInput(f"the input is nested deeper than {DEPTH_MAX}")


def _refuse(name: str) -> NoReturn:
    raise BadInput(f"the input is not JSON: {name} is no number of it")
