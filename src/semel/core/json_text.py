"""
JSON text: small values written many times a second.

json.JSONEncoder makes its C writer anew for each value, which takes longer than to write a small
one; here it is made once. Where there is no such writer, JSONEncoder does it.
"""

from __future__ import annotations

import json
from json import encoder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def _writer() -> Callable[[Any], str]:
    slow = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
    )
    make: Any = getattr(encoder, "c_make_encoder", None)
    if make is None:
        return slow.encode
    write = make(
        None, slow.default, encoder.encode_basestring, None, ":", ",", False, False, False
    )
    return lambda value: "".join(write(value, 0))


#: *value* without spaces or escapes that JSON does not ask for, members in the order they are in.
#: Raises ValueError on NaN and infinities, RecursionError on what is in itself.
text: Callable[[Any], str] = _writer()
