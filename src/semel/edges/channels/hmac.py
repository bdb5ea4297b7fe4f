"""
HMAC: any sender that signs what it sends. The settings say how, and where its ids are.

An id in a header that is not signed proves nothing, so then what was said counts too, within the
source's `content_window`. A sender without ids is known by what it says alone.
"""

from __future__ import annotations

import base64
import hmac
from typing import TYPE_CHECKING

from semel.config.hmac import CONTENT
from semel.config.proof import hmac_key
from semel.core.text import load
from semel.edges import form
from semel.edges.channel import offer, only, prove, quarantined
from semel.edges.pointer import find
from semel.edges.signature import SIGNATURES_MAX, check_fresh, digest, same
from semel.errors import BadRequest, NotAuthentic

if TYPE_CHECKING:
    from semel.config import Source
    from semel.config.hmac import HmacSettings
    from semel.edges.channel import Reading, Request
    from semel.model import Json

_PER_SECOND = {"s": 1, "ms": 1000}


def read(request: Request, source: Source) -> Reading:
    """One event as an offer; the run's input is {event, id, payload}."""
    how = source.hmac
    if how is None:
        raise AssertionError("the settings of this source say how it signs")
    prove(request, source, lambda secret: _is_signed(request, how, secret))
    try:
        payload: Json
        if request.media == form.MEDIA:
            payload = {**form.texts(request.body)}
        else:
            payload = load(request.body)
        event = _found(request, payload, how.event)
        name = None if how.id == CONTENT else _found(request, payload, how.id)
        correlation = _found(request, payload, how.correlation)
    except BadRequest as bad:
        return quarantined(request, source, str(bad))
    if name is None and how.id != CONTENT:
        return quarantined(request, source, f"there is no id at {how.id}")
    content = digest((event or "").encode(), request.body)
    is_signed = how.id.startswith("body:") or "id" in how.parts[1::2]
    return [
        offer(
            request,
            source,
            content if name is None else name,
            {"event": event, "id": name, "payload": payload},
            kind=event,
            correlation=correlation,
            content=None if is_signed or name is None else content,
        )
    ]


def _is_signed(request: Request, how: HmacSettings, secret: bytes) -> bool:
    key = hmac_key(secret.decode("utf-8", "surrogateescape"), how.key)
    if key is None:
        return False
    wanted = _encoded(hmac.new(key, _message(request, how), how.algorithm).digest(), how)
    found = False
    for each in _given(request, how):
        found |= same(each, wanted)
    return found


def _given(request: Request, how: HmacSettings) -> list[bytes]:
    """The signatures in the header, of which a sender that rotates its secret sends several."""
    prefix = how.prefix.encode()
    parts = only(request, how.header.lower()).replace(b",", b" ").split(b" ", SIGNATURES_MAX)
    given = [part[len(prefix) :] for part in parts if part.startswith(prefix)]
    given = [each for each in given if each]
    if not given:
        raise NotAuthentic(f"{how.header} has no signature")
    return [each.lower() for each in given] if how.encoding == "hex" else given


def _encoded(mac: bytes, how: HmacSettings) -> bytes:
    match how.encoding:
        case "hex":
            return mac.hex().encode()
        case "base64":
            return base64.b64encode(mac)
        case "base64url":
            return base64.urlsafe_b64encode(mac)


def _message(request: Request, how: HmacSettings) -> bytes:
    """What is signed: text and parts in turn."""
    said = []
    for n, part in enumerate(how.parts):
        if n % 2 == 0:
            said.append(part.encode())
        elif part == "body":
            said.append(request.body)
        elif part == "id":
            said.append(only(request, how.id.partition(":")[2].lower()))
        else:
            told = only(request, str(how.timestamp).partition(":")[2].lower())
            unit = _PER_SECOND[how.timestamp_unit]
            check_fresh(request, told, how.window, per_second=unit)
            said.append(told)
    return b"".join(said)


def _found(request: Request, payload: Json, place: str | None) -> str | None:
    """
    What stands at *place*, as text; None: nothing does.

    Raises:
        BadRequest: what stands there is neither text nor a whole number.
    """
    if place is None:
        return None
    kind, _, where = place.partition(":")
    if kind == "header":
        return request.first(where.lower())
    value = find(payload, where)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadRequest(f"what stands at {place} is neither text nor a whole number")
    return str(value)
