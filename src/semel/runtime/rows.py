"""
Rows as the journal keeps them: what a transaction's block had read, so that it reads it again.

JSON with a tag for what JSON has no form for. A value of another type is refused when it is read
first, not when a crash makes it matter.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from semel.errors import BadStepResult

_TAGS: dict[str, Any] = {
    "uuid": (UUID, str, UUID),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "interval": (
        timedelta,
        lambda v: [v.days, v.seconds, v.microseconds],
        lambda v: timedelta(*v),
    ),
    "numeric": (Decimal, str, Decimal),
    "bytes": (bytes, lambda v: base64.b64encode(v).decode(), base64.b64decode),
}


def kept(value: Any) -> Any:
    """
    *value* as JSON.

    Raises:
        BadStepResult: its type cannot be kept.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {"{}": [[kept(key), kept(item)] for key, item in value.items()]}
        case bytes() | bytearray() | memoryview():
            return {"bytes": base64.b64encode(bytes(value)).decode()}
        case Sequence():
            return [kept(item) for item in value]
        case _:
            pass
    for tag, (kind, write, _) in _TAGS.items():
        if isinstance(value, kind):
            return {tag: write(value)}
    raise BadStepResult(
        f"a transaction's block read a {type(value).__name__}, which the journal cannot keep;"
        " use run.transaction(name, function), which is executed once and keeps its result only"
    )


def read(told: Any) -> Any:
    """The value that `kept` wrote."""
    if isinstance(told, list):
        return [read(item) for item in told]
    if isinstance(told, dict):
        [(tag, value)] = told.items()
        if tag == "{}":
            return {read(key): read(item) for key, item in value}
        return _TAGS[tag][2](value)
    return told
