"""
Canonical JSON: one text for each value, whatever order or spelling it came in.

RFC 8785: members sorted by UTF-16 code units, numbers as ECMAScript writes them, no spaces. What
has no such form is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

#: Beyond, an integer is not the same number in every reader (RFC 8785, 3.2.2.3).
INTEGER_MAX = 2**53


def canonical(value: Any) -> str:
    """
    *value* as RFC 8785 text.

    Raises:
        TypeError: it has a member that JSON has no form for.
        ValueError: NaN, an infinity, an integer beyond 2^53, or half of a surrogate pair.
    """
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            value.encode("utf-16-be")  # half of a pair is refused here
            return json.dumps(value, ensure_ascii=False)
        case int():
            if abs(value) > INTEGER_MAX:
                raise ValueError(f"the integer {str(value)[:40]} is beyond 2^53")
            return str(value)
        case float():
            return _number(value)
        case list() | tuple():
            return f"[{','.join(canonical(item) for item in value)}]"
        case dict():
            if not all(isinstance(name, str) for name in value):
                raise TypeError("a member's name is no string")
            members = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))
            return f"{{{','.join(f'{canonical(k)}:{canonical(v)}' for k, v in members)}}}"
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def digest(value: Any) -> str:
    """The SHA-256 of *value*'s canonical text, as `sha256:<64 hex>`; raises as `canonical`."""
    return f"sha256:{hashlib.sha256(canonical(value).encode()).hexdigest()}"


def _number(value: float) -> str:
    """As ECMAScript's Number.prototype.toString: the shortest digits that read back the same."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is no JSON number")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    # The value is 0.DIGITS x 10^point.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:  # noqa: PLR2004 - ECMAScript's bounds
        return f"{sign}{digits}{'0' * (point - count)}"
    if 0 < point <= 21:  # noqa: PLR2004
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:  # noqa: PLR2004
        return f"{sign}0.{'0' * -point}{digits}"
    power = f"e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return f"{sign}{digits[0]}{'.' + digits[1:] if count > 1 else ''}{power}"
