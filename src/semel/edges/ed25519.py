"""
Ed25519: whether the owner of a key signed something. The one thing that needs `cryptography`.

The package is loaded by the first signature; the settings have seen that it is there.

Source: RFC 8032.
"""

from __future__ import annotations


def is_signed(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether *signature*, of 64 bytes, is that of *message* by the public *key*, of 32."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PublicKey,
    )

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
