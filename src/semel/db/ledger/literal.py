"""
Literal: a call with its arguments written into it, for the simple query protocol.

That protocol takes several statements in one round trip, and no parameters. What is not plain
ASCII without quotes goes as hexadecimal digits, so that no setting of the session - encoding,
standard_conforming_strings, bytea_output - has a say in how it is read.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from semel.core.call import Call

_PLAIN = re.compile(r"[A-Za-z0-9 :.,;_/+*=(){}\[\]<>|@#&?!$~^%\"-]*")
_MICROSECOND = timedelta(microseconds=1)


def bound(call: Call[Any]) -> str:
    """*call* as one statement of SQL."""
    first, *rest = call.sql.split("%s")
    return first + "".join(
        literal(value) + part for value, part in zip(call.args, rest, strict=True)
    )


def literal(value: Any) -> str:  # noqa: C901, PLR0911 - one line for each type
    """
    *value* as SQL reads it.

    Raises:
        TypeError: a type that no call of the ledger has.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str() if _PLAIN.fullmatch(value):
            return f"'{value}'"
        case str():
            return f"convert_from(decode('{value.encode().hex()}','hex'),'UTF8')"
        case bytes():
            return f"decode('{value.hex()}','hex')"
        case list():
            return f"array[{','.join(literal(item) for item in value)}]::text[]"
        case timedelta():
            return f"'{value // _MICROSECOND} microseconds'::interval"
        case datetime():
            return f"'{value.isoformat()}'::timestamptz"
        case UUID():
            return f"'{value}'::uuid"
        case _:
            raise TypeError(f"{type(value).__name__} has no literal")
