"""
Pointers: what stands at a place of a JSON value.

Source: RFC 6901. A member that is not there, and one that is null, both stand for nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semel.model import Json

#: Digits of an index; no list of a request is longer than a body.
_INDEX_CHARS_MAX = 7


def find(value: Json, pointer: str) -> Json:
    """What stands at *pointer*, such as `/a/0/b`, in *value*; None where nothing does."""
    for member in _members(pointer):
        if isinstance(value, dict):
            value = value.get(member)
        elif isinstance(value, list):
            is_index = member.isascii() and member.isdigit() and len(member) <= _INDEX_CHARS_MAX
            at = int(member) if is_index else len(value)
            value = value[at] if at < len(value) else None
        else:
            return None
    return value


@lru_cache(maxsize=1024)
def _members(pointer: str) -> tuple[str, ...]:
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
