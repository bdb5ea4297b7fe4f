"""
Parameter: a call's arguments beside its text, for the extended query protocol.

Texts, not values in binary: what PostgreSQL reads there depends on no setting of the session but
client_encoding, which whoever sends them has looked at. bytes alone go as they are.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable

    from semel.core.call import Call

_MICROSECOND = timedelta(microseconds=1)


class Unsendable(Exception):
    """An argument that has no such form; `literal` has one, or says what is wrong with it."""


def numbered(sql: str) -> bytes:
    """A call's statement, with `$1` for its first argument."""
    first, *rest = sql.split("%s")
    return (first + "".join(f"${n}{part}" for n, part in enumerate(rest, 1))).encode()


def parameters(call: Call[Any]) -> tuple[list[bytes | None], list[int]]:
    """
    The arguments of *call* as libpq takes them, and which format each has.

    Raises:
        Unsendable: a type without a form, or a NUL, at which libpq would end the text.
    """
    values: list[bytes | None] = []
    try:
        for value in call.args:
            if value is None:
                values.append(None)
            elif type(value) is str:
                if "\0" in value:
                    raise Unsendable
                values.append(value.encode())
            else:
                values.append(_FORMS[type(value)](value))
    except (KeyError, UnicodeEncodeError) as error:
        raise Unsendable from error
    return values, [1 if type(value) is bytes else 0 for value in call.args]


_FORMS: dict[type, Callable[[Any], bytes]] = {
    bool: lambda value: b"t" if value else b"f",
    int: lambda value: b"%d" % value,
    bytes: lambda value: value,
    timedelta: lambda value: b"%d microseconds" % (value // _MICROSECOND),
    datetime: lambda value: value.isoformat().encode(),
    UUID: lambda value: str(value).encode(),
}
