"""
The idempotency key of a request: read from its headers, or refused.

Both spellings are one header: `Idempotency-Key` of the IETF draft and the seed's
`idempotency_key`. A value is a structured-field string in double quotes, or bare; most clients
send it bare, and both are one key. Parameters behind the quotes are ignored. What two lines become
when a proxy or a WSGI server joins them with a comma is refused as two lines are.

Source: draft-ietf-httpapi-idempotency-key-header-07; RFC 9651, 3.1.2 and 3.3.3.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from semel.errors import BadKey

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY_CHARS_MAX = 255
NAMES = ("idempotency-key", "idempotency_key")

_STRING = r'"(?:[^"\\]|\\["\\])*"'
_PARAMETER = rf" *; *[a-z*][a-z0-9_.*-]*(?:=(?:{_STRING}|[A-Za-z0-9*?:@+/=.!#$%&\'^_`|~-]+))?"
_QUOTED = re.compile(rf"({_STRING})(?:{_PARAMETER})*")
#: In a bare key they would be a list, a parameter or half of a string.
_NOT_BARE = frozenset('",;\\')


def find(headers: Sequence[tuple[str, str]], *, required: bool) -> str | None:
    """
    The key of a request, unquoted; None where it brings none.

    Args:
        headers: Pairs of lower-case name and value, repeated lines repeated.
        required: Refuse a request without a key.

    Raises:
        BadKey: missing where required, repeated, two that differ, or no key.
    """
    keys: set[str] = set()
    for name in NAMES:
        lines = [value for header, value in headers if header == name]
        if len(lines) > 1:
            raise BadKey(f"there are {len(lines)} lines of {name}")
        keys.update(_unquoted(line) for line in lines)
    if len(keys) > 1:
        raise BadKey(f"{NAMES[0]} and {NAMES[1]} are both there and differ")
    if not keys and required:
        raise BadKey("this source requires an Idempotency-Key")
    return keys.pop() if keys else None


def _unquoted(line: str) -> str:
    key = line.strip(" \t")
    if key.startswith('"'):
        quoted = _QUOTED.fullmatch(key)
        if quoted is None:
            raise BadKey("the key opens a quotation mark and is no structured-field string")
        key = re.sub(r"\\(.)", r"\1", quoted[1][1:-1])
    elif found := sorted(_NOT_BARE.intersection(key)):
        raise BadKey(f"the key has {found[0]!r} in it: such a key is sent in quotation marks")
    if not key:
        raise BadKey("the key is empty")
    if len(key) > KEY_CHARS_MAX:
        raise BadKey(f"the key has {len(key)} characters, more than {KEY_CHARS_MAX}")
    if not (key.isascii() and key.isprintable()):
        raise BadKey("the key has a character that is not printable ASCII")
    return key
