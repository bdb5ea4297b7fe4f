"""
Proof: what the secret of a source must be for its channel to verify anything by it.

A secret that cannot work is refused at the start, not at the first delivery. What the channels
make of secrets is made here, so that both read them alike.
"""

from __future__ import annotations

import base64
import binascii
from importlib.util import find_spec
from typing import TYPE_CHECKING

from semel.config.poll import TOKEN
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from semel.config.settings import Source

SYMMETRIC = "whsec_"
PUBLIC = "whpk_"
PUBLIC_BYTES = 32


def symmetric_key(secret: str) -> bytes | None:
    """The key in the Standard Webhooks *secret*, with or without `whsec_`; None: it is none."""
    return _base64(secret.removeprefix(SYMMETRIC))


def public_key(secret: str) -> bytes | None:
    """The Ed25519 key in the Standard Webhooks *secret* `whpk_...`; None: it is none."""
    if not secret.startswith(PUBLIC):
        return None
    key = _base64(secret.removeprefix(PUBLIC))
    return key if key is not None and len(key) == PUBLIC_BYTES else None


def hex_key(secret: str, *, size: int | None = None) -> bytes | None:
    """The key that *secret* is in hexadecimal, of *size* bytes; None: it is none."""
    try:
        key = binascii.unhexlify(secret)
    except ValueError:  # also of characters beyond ASCII
        return None
    return key if key and size in {None, len(key)} else None


def text_key(secret: str) -> bytes:
    """The key that *secret* is by itself."""
    return secret.encode("utf-8", "surrogateescape")


def hmac_key(secret: str, form: str) -> bytes | None:
    """The key of channel hmac, written as *form* says; None: it is none."""
    match form:
        case "hex":
            return hex_key(secret)
        case "base64":
            return _base64(secret)
        case _:
            return text_key(secret)


def check_secrets(at: str, source: Source) -> None:
    """
    Refuse secrets that nothing is ever verified by.

    Raises:
        BadConfig: naming the reference, never the secret.
    """
    for secret in source.secrets:
        fault, is_asymmetric = _judge(source, secret.reveal())
        if fault is not None:
            raise BadConfig(f"{at} secrets: {secret.reference} is no secret: {fault}")
        if is_asymmetric and find_spec("cryptography") is None:
            raise BadConfig(
                f"{at} secrets: {secret.reference} is an Ed25519 key, and the package that"
                " verifies by one is not there: pip install 'semel[ed25519]'"
            )
    if source.channel == "telegram-poll" and find_spec("httpcore") is None:
        raise BadConfig(
            f"{at} asks over HTTP, and the package that does is not there: pip install"
            " 'semel[notify]'"
        )


def _judge(source: Source, secret: str) -> tuple[str | None, bool]:
    """What is wrong with *secret*, and whether it is an Ed25519 key."""
    match source.channel:
        case "standard" if secret.startswith(PUBLIC):
            return _unless(public_key, secret, "whpk_ and 32 bytes in base64"), True
        case "standard":
            return _unless(
                symmetric_key, secret, "write whsec_ and its base64, as shown"
            ), False
        case "discord":
            wrong = "write the application's public key, 64 digits and letters a to f"
            return _unless(lambda told: hex_key(told, size=PUBLIC_BYTES), secret, wrong), True
        case "hmac" if source.hmac is not None:
            form = source.hmac.key
            return _unless(
                lambda told: hmac_key(told, form), secret, f"it is not {form}"
            ), False
        case "telegram-poll":
            wrong = "write the bot's token, as in 123456:ABC-def"
            return _unless(_token, secret, wrong), False
        case _:
            return None, False


def _token(secret: str) -> bytes | None:
    return secret.encode() if TOKEN.fullmatch(secret) else None


def _unless(read: Callable[[str], bytes | None], secret: str, fault: str) -> str | None:
    return fault if read(secret) is None else None


def _base64(text: str) -> bytes | None:
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:  # also of characters beyond ASCII
        return None
    return key or None
