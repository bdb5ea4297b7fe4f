"""
JSON as text: what we send to PostgreSQL and what we accept from outside.

PostgreSQL's jsonb holds no NUL character and no lone surrogate, and its depth is bounded by the
server's stack. What it cannot hold is refused here, with a sentence, before it gets there.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn

from semel.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from semel.model import Json

#: How many arrays and objects may stand inside one another.
DEPTH_MAX = 200


_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def dump(value: Any) -> str:
    """
    *value* as compact JSON text.

    Raises:
        TypeError: it has a member that JSON has no form for.
        ValueError: NaN, an infinity, a circle, or a NUL character.
    """
    text = _ENCODE(value)
    if "\\u0000" in text and _has_nul(value):
        raise ValueError("a string in it has a NUL character, which PostgreSQL cannot store")
    try:
        text.encode()
    except UnicodeEncodeError as lone:
        raise ValueError("a string in it has half of a surrogate pair") from lone
    return text


def dump_bytes(values: Iterable[bytes]) -> str:
    """*values* as the text of a bytea[]: a list costs psycopg a Python loop over its dumpers."""
    return "{" + ",".join(['"\\\\x' + value.hex() + '"' for value in values]) + "}"


def settled(value: Any) -> Any:
    """
    *value*, parsed from JSON, as PostgreSQL's jsonb gives it back.

    Members are in its order, by length and then by bytes, and a large number with an exponent is
    an integer: whoever has it now reads what another will read from the database.
    """
    match value:
        case dict():
            return {name: settled(value[name]) for name in sorted(value, key=_member)}
        case list():
            return [settled(item) for item in value]
        case float() if "e+" in (shown := repr(value)):
            return int(Decimal(shown))
        case float():
            return value or 0.0  # it has no negative zero
        case _:
            return value


def _member(name: str) -> tuple[int, bytes]:
    raw = name.encode()
    return len(raw), raw


def load(raw: bytes) -> Json:
    """
    The JSON value in *raw*, as PostgreSQL can keep it.

    Args:
        raw: UTF-8. A byte order mark is not JSON.

    Raises:
        BadRequest: not UTF-8, not JSON, deeper than DEPTH_MAX, a number out of range, a NUL
            character or half of a surrogate pair. The message says which.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as bad:
        raise BadRequest(
            f"the body is not UTF-8: byte {bad.start} begins no character"
        ) from None
    if _depth(text) > DEPTH_MAX:
        raise BadRequest(f"the JSON is nested deeper than {DEPTH_MAX}")
    try:
        value: Json = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as bad:
        raise BadRequest(f"the body is not JSON: {bad}") from None
    if "\\u" in text:
        try:
            dump(value)
        except ValueError as bad:
            raise BadRequest(f"the JSON cannot be stored: {bad}") from None
    return value


def load_object(raw: bytes) -> dict[str, Json]:
    """
    The JSON object in *raw*.

    Raises:
        BadRequest: as `load`, or another JSON value than an object.
    """
    value = load(raw)
    if not isinstance(value, dict):
        raise BadRequest(f"the body is a JSON {_kind(value)}, not an object")
    return value


def _depth(text: str) -> int:
    """How deep brackets nest in *text*; brackets inside strings count too little to matter."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return 0
    deepest = depth = 0
    quoted = escaped = False
    for char in text:
        if quoted:
            quoted = escaped or char != '"'
            escaped = not escaped and char == "\\"
        elif char == '"':
            quoted = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _has_nul(value: Any) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str) and "\0" in item:
            return True
        if isinstance(item, dict):
            stack += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            stack += item
    return False


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is out of range")
    return number


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case _:
            return "array"
