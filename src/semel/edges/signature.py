"""
Signatures: what several channels do alike to find out who sent something.

Everything is compared as bytes and in constant time. What a header says is never decoded where
the right answer can be encoded instead, so there is nothing in it to stumble over. Nothing here
raises anything but NotAuthentic.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING

from semel.edges.channel import only
from semel.errors import NotAuthentic

if TYPE_CHECKING:
    from datetime import timedelta

    from semel.edges.channel import Request

#: Digits of a unix time.
_TIME_CHARS_MAX = 15
#: Signatures of one request that are compared.
SIGNATURES_MAX = 32


def hex_mac(key: bytes, message: bytes, algorithm: str = "sha256") -> bytes:
    """The HMAC as lower-case hexadecimal."""
    return hmac.new(key, message, algorithm).hexdigest().encode()


def base64_mac(key: bytes, message: bytes, algorithm: str = "sha256") -> bytes:
    """The HMAC in base64, padded."""
    return base64.b64encode(hmac.new(key, message, algorithm).digest())


def same(given: bytes, right: bytes) -> bool:
    """Whether the two are one, in a time that does not tell where they part."""
    return hmac.compare_digest(given, right)


def hex_given(request: Request, name: str, prefix: bytes = b"") -> bytes:
    """
    The hexadecimal signature in the one line of the header *name*, in lower case.

    Raises:
        NotAuthentic: there is none, or not one, or it does not begin with *prefix*.
    """
    line = only(request, name).strip()
    if not line.startswith(prefix) or len(line) == len(prefix):
        raise NotAuthentic(f"{name} has no signature")
    return line[len(prefix) :].lower()


def fresh(request: Request, name: str, window: timedelta, *, per_second: int = 1) -> bytes:
    """
    The time in the header *name*, as it is signed.

    Args:
        request: What came.
        name: Its one line is a unix time in digits.
        window: How far it may lie from now, in both directions.
        per_second: How many of its units are a second.

    Raises:
        NotAuthentic: it is no time, or another.
    """
    line = only(request, name)
    check_fresh(request, line, window, per_second=per_second)
    return line


def check_fresh(
    request: Request, told: bytes, window: timedelta, *, per_second: int = 1
) -> None:
    """
    Refuse a time *told* that is none, or lies too far from now, before or behind.

    Raises:
        NotAuthentic: so.
    """
    if not told.isdigit() or len(told) > _TIME_CHARS_MAX:
        raise NotAuthentic("the time of the signature is no unix time")
    if abs(request.at - int(told) / per_second) > window.total_seconds():
        raise NotAuthentic(
            "the signature is older, or later, than the window of the source: see the clocks"
        )


def digest(*parts: bytes) -> str:
    """What *parts* say, each behind its length: `sha256:` and 64 hexadecimal digits."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return f"sha256:{whole.hexdigest()}"
