"""
Standard Webhooks, and Svix with its own names for the same headers.

The id is `webhook-id`, which is signed and stays over retries; each attempt has a new time and
signature. `v1` is an HMAC by `whsec_...`, `v1a` an Ed25519 signature by the key whose public half
is `whpk_...`; a header may carry several of both, and one that fits is enough.

Source: standard-webhooks/standard-webhooks, spec/standard-webhooks.md.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from semel.config.proof import public_key, symmetric_key
from semel.core.text import load
from semel.edges.channel import offer, only, prove, quarantined, text_of
from semel.edges.ed25519 import is_signed
from semel.edges.signature import SIGNATURES_MAX, base64_mac, fresh, same
from semel.errors import BadRequest

if TYPE_CHECKING:
    from semel.config import Source
    from semel.edges.channel import Reading, Request


def read(request: Request, source: Source) -> Reading:
    """One event as an offer; the body is the run's input, whatever JSON it is."""
    family = "webhook" if request.values("webhook-id") else "svix"
    prove(request, source, lambda secret: _is_signed(request, source, family, secret))
    try:
        name = request.first(f"{family}-id")
        told = load(request.body)
    except BadRequest as bad:
        return quarantined(request, source, str(bad))
    kind = text_of(told.get("type")) if isinstance(told, dict) else None
    return [offer(request, source, name or "", told, kind=kind)]


def _is_signed(request: Request, source: Source, family: str, secret: bytes) -> bool:
    name = only(request, f"{family}-id")
    told = fresh(request, f"{family}-timestamp", source.window)
    given = only(request, f"{family}-signature").split(b" ", SIGNATURES_MAX)
    message = name + b"." + told + b"." + request.body
    text = secret.decode("utf-8", "surrogateescape")
    public = public_key(text)
    if public is not None:
        return any(is_signed(public, each, message) for each in _of_version(given, b"v1a,"))
    key = symmetric_key(text)
    if key is None:
        return False
    wanted = base64_mac(key, message)
    found = False
    for each in given:
        found |= same(each, b"v1," + wanted)
    return found


def _of_version(given: list[bytes], version: bytes) -> list[bytes]:
    """The signatures of *version*, decoded; what is no base64 is none."""
    found = []
    for each in given:
        if each.startswith(version):
            try:
                found.append(base64.b64decode(each[len(version) :], validate=True))
            except ValueError:
                continue
    return found
