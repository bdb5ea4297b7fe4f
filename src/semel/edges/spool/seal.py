"""
Seal: records are on the disk as AES-256-GCM, each bound to its place.

A segment has a key of its own, made of the configured one and the segment's id, so that a nonce
drawn at random never meets itself, and a record that is moved to another place or file is seen.
The configured keys are never on the disk; of one stands the beginning of a digest in each segment,
so that a key that is missing is told from a byte that is wrong.

Source: NIST SP 800-38D; RFC 5869.
"""

from __future__ import annotations

import hmac
import os
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING

from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

NONCE_BYTES = 12
TAG_BYTES = 16
NAME_BYTES = 8


class Seal:
    """Closes and opens the records of one segment."""

    def __init__(self, key: bytes, segment: UUID) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra

        extracted = hmac.digest(segment.bytes, key, "sha256")
        self._cipher = AESGCM(hmac.digest(extracted, b"semel spool 1\x01", "sha256"))
        self._segment = segment.bytes

    def close(self, seq: int, plain: bytes) -> bytes:
        """*plain* as record *seq*; NONCE_BYTES and TAG_BYTES longer."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, plain, self._place(seq))

    def open(self, seq: int, closed: bytes) -> bytes | None:
        """What was closed as record *seq*; None: it was not, or not by this key."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as above

        nonce, rest = closed[:NONCE_BYTES], closed[NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, rest, self._place(seq))
        except (InvalidTag, ValueError):
            return None

    def _place(self, seq: int) -> bytes:
        return self._segment + seq.to_bytes(8, "big")


class Keys:
    """
    The configured keys: the first one writes, all of them read.

    Raises:
        BadConfig: the package that encrypts is not there.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if find_spec("cryptography") is None:
            raise BadConfig(
                "[spool] encrypts what it keeps, and the package that does is not there:"
                " pip install 'semel[spool]'"
            )
        self._by_name = {_name(key): key for key in keys}
        self.name = _name(keys[0])  # of the one that writes

    def seal(self, segment: UUID, name: bytes) -> Seal | None:
        """That of *segment*, written with the key called *name*; None: no such key is told."""
        key = self._by_name.get(name)
        return None if key is None else Seal(key, segment)

    def seals(self, segment: UUID) -> list[Seal]:
        """One for each key, where nobody knows which wrote *segment*."""
        return [Seal(key, segment) for key in self._by_name.values()]


def _name(key: bytes) -> bytes:
    return sha256(b"semel spool key " + key).digest()[:NAME_BYTES]
