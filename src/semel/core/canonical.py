"""
Canonical JSON: one text for each value, whatever order or spelling it came in.

Version 2 is RFC 8785: members sorted by UTF-16 code units, numbers as ECMAScript writes them, no
spaces. Version 1 is the same but for the order in which ECMAScript enumerates an object: names
that are array indexes come first, ascending; and half of a surrogate pair is written as an
escape. What has no such form is refused. The caller decides what counts as input; here nothing
is read from bytes.

Python's C encoder writes whatever it writes the same way; only a number that it would write
otherwise (1e-07 for 1e-7) sends the value to the slow writer below.
"""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect_left
from json.encoder import encode_basestring
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from semel.core import json_text

if TYPE_CHECKING:
    from collections.abc import Callable

Version: TypeAlias = Literal[1, 2]
Member: TypeAlias = tuple[str, Any]

#: Beyond, an integer is not the same number in every reader (RFC 8785, 3.2.2.3).
INTEGER_MAX = 2**53 - 1
#: How many arrays and objects may stand inside one another.
DEPTH_MAX = 200
#: ECMAScript's largest array index, the last name that enumerates as a number.
INDEX_MAX = "4294967294"
#: A fraction from here on is written by Python as by ECMAScript.
FRACTION_MIN = 1e-4
#: Powers of ten that ECMAScript writes without an exponent.
_PLAIN_POWER_MIN = -6
_PLAIN_POWER_MAX = 21

_AS_THEY_ARE = frozenset({str, bool, type(None)})
_NAME = itemgetter(0)
_SURROGATE = re.compile("[\ud800-\udfff]")


class Members(dict[str, Any]):
    """
    An object that is only ever written: its members in their order, and no name twice.

    Both encoders ask whatever is no plain dict for its items, which saves a second dict of them.
    """

    __slots__ = ("_members",)

    def __init__(self, members: list[Member]) -> None:
        super().__init__(members[:1])  # the C encoder takes an object of length 0 for {}
        self._members = members

    def items(self) -> Any:
        """The members."""
        return self._members


class Written(str):
    """A number's text that the C encoder would write otherwise; no JSON string is one."""

    __slots__ = ()


def canonical(value: Any, version: Version = 2) -> bytes:
    """
    *value* as canonical text in UTF-8.

    Raises:
        TypeError: it has a member that JSON has no form for.
        ValueError: NaN, an infinity, an integer beyond ±(2^53-1), half of a surrogate pair
            (version 2), or more than DEPTH_MAX levels, as a circle has.
    """
    form = _Form(version)
    tree = form.tree(value, 0)
    return utf8(written(tree, odd=form.odd), version)


def digest(value: Any) -> str:
    """The SHA-256 of *value*'s canonical text, as `sha256:<64 hex>`; raises as `canonical`."""
    return f"sha256:{hashlib.sha256(canonical(value)).hexdigest()}"


def arranged(members: list[Member], version: Version, *, wide: bool = True) -> list[Member]:
    """
    *members*, (name, value), in canonical order; the list may be sorted in place.

    Code points and UTF-16 code units differ in order only beyond the BMP: *wide* is False where
    no name has such a character.
    """
    members.sort(key=_utf16_name if wide else _NAME)
    if version == 2 or not members or members[0][0] >= ":":  # noqa: PLR2004 - no name has a digit
        return members
    return _enumerated(members)


def is_wide(text: str) -> bool:
    """Whether *text* has a character beyond the BMP."""
    return not text.isascii() and len(_utf16(text)) != 2 * len(text)


def number(value: float) -> int | float | Written:
    """
    *value* as something that is written as ECMAScript writes it.

    Raises:
        ValueError: NaN or an infinity.
    """
    size = abs(value)
    if value % 1 == 0:
        return int(value) if size <= INTEGER_MAX else Written(_ecmascript(value))
    if FRACTION_MIN <= size < math.inf:
        return value
    if not math.isfinite(value):
        raise ValueError("a number is out of range")
    return Written(_ecmascript(value))


def written(tree: Any, *, odd: bool, clean: bool = False) -> str:
    """
    The text of a *tree* whose members are in order.

    Args:
        tree: Of plain dicts, or of Members.
        odd: There is a Written in it.
        clean: No string in it has a character that is escaped; of use for few and long ones.
    """
    if clean:
        return _write(tree, '"{}"'.format)
    return _write(tree, encode_basestring) if odd else json_text.text(tree)


def utf8(text: str, version: Version) -> bytes:
    """
    Canonical *text* as bytes.

    Raises:
        ValueError: version 2, and there is half of a surrogate pair in it.
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        if version != 1:
            raise ValueError("a string has half of a surrogate pair") from None
    paired = _utf16(text).decode("utf-16-be", "surrogatepass")
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", paired).encode()


class _Form:
    """How one value is brought into order; `odd` once there is a Written in it."""

    def __init__(self, version: Version) -> None:
        self._version = version
        self.odd = False

    def tree(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict | list | tuple):
            if depth == DEPTH_MAX:
                raise ValueError(f"it is nested deeper than {DEPTH_MAX}")
            if isinstance(value, dict):
                return self._object(value, depth + 1)
            return [
                item if type(item) in _AS_THEY_ARE else self.tree(item, depth + 1)
                for item in value
            ]
        match value:
            case None | bool() | str():
                return value
            case int():
                if abs(value) > INTEGER_MAX:
                    raise ValueError("an integer is beyond ±(2^53-1)")
                return int(value)
            case float():
                return self._number(value)
            case _:
                raise TypeError(f"{type(value).__name__} has no JSON form")

    def _object(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        for name in value:
            if not isinstance(name, str):
                raise TypeError("a member's name is no string")
        return {
            name: item if type(item) in _AS_THEY_ARE else self.tree(item, depth)
            for name, item in arranged(
                list(value.items()), self._version, wide=is_wide("".join(value))
            )
        }

    def _number(self, value: float) -> int | float | Written:
        found = number(value)
        self.odd = self.odd or type(found) is Written
        return found


def _write(tree: Any, quoted: Callable[[str], str]) -> str:
    if isinstance(tree, dict):
        members = [
            f"{quoted(name)}:{value if type(value) is Written else _write(value, quoted)}"
            for name, value in tree.items()
        ]
        return f"{{{','.join(members)}}}"
    if isinstance(tree, list):
        return f"[{','.join([_write(item, quoted) for item in tree])}]"
    if isinstance(tree, str):
        return tree if type(tree) is Written else quoted(tree)
    return json_text.text(tree)


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _utf16_name(member: Member) -> bytes:
    return _utf16(member[0])


def _enumerated(members: list[Member]) -> list[Member]:
    """*members*, sorted by name, in the order in which ECMAScript enumerates them."""
    first, nonzero, last = (bisect_left(members, mark, key=_NAME) for mark in "01:")
    zero = members[first : first + 1] if members[first:] and members[first][0] == "0" else []
    indexes, others = _indexes(members[nonzero:last])
    # Digits of one length are in the order of their numbers already.
    indexes.sort(key=lambda member: len(member[0]))
    padded = members[first + len(zero) : nonzero]
    return zero + indexes + members[:first] + padded + others + members[last:]


def _indexes(members: list[Member]) -> tuple[list[Member], list[Member]]:
    """Of *members* whose names begin with 1 to 9 those that are array indexes, and the others."""
    names = [name for name, _ in members]
    joined = "".join(names)
    if joined.isdecimal() and joined.isascii() and max(map(len, names)) < len(INDEX_MAX):
        return members, []
    found: tuple[list[Member], list[Member]] = ([], [])
    for member in members:
        found[not _is_index(member[0])].append(member)
    return found


def _is_index(name: str) -> bool:
    """Whether a *name* that begins with 1 to 9 is an array index."""
    if not (name.isdecimal() and name.isascii()):
        return False
    return len(name) < len(INDEX_MAX) or (len(name) == len(INDEX_MAX) and name <= INDEX_MAX)


def _ecmascript(value: float) -> str:
    """
    As ECMAScript's Number.prototype.toString.

    The digits are those of Python, the shortest that read back the same; it puts the point and
    the exponent elsewhere.
    """
    digits, _, exponent = repr(value).partition("e")
    if not exponent:
        return digits.removesuffix(".0")
    power = int(exponent)
    if power < _PLAIN_POWER_MIN or power >= _PLAIN_POWER_MAX:
        return f"{digits}e{power:+d}"
    sign = "-" if value < 0 else ""
    digits = digits.removeprefix("-").replace(".", "")
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    return f"{sign}{digits.ljust(power + 1, '0')}"
