"""
Moved: a router's answer that sends a request to its own path with or without the last slash.

No handler has run, and a client that follows sends the same request, under the same key, there.

Source: RFC 9110, 15.4.8 and 15.4.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

#: After which the method stays as it is.
_REPEATED = frozenset({307, 308})


def is_moved(path: str, status: int, headers: Iterable[tuple[str, str]]) -> bool:
    """Whether this answer to a request for *path*, percent-encoded, is such a one."""
    if status not in _REPEATED:
        return False
    location = next((value for name, value in headers if name.lower() == "location"), "")
    here, there = unquote(path), unquote(urlsplit(location).path)
    return here != there and here.rstrip("/") == there.rstrip("/")
