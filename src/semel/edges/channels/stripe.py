"""
Stripe: a webhook endpoint of an account, or of a platform with accounts connected to it.

The id is `evt_...`; behind the `account` where an event is of a connected one. Each attempt is
signed anew, for up to three days. The key is the whole secret, `whsec_` and all. Two events may
tell of one change of an object: that they are two is Stripe's word, and they make two runs.

Source: Stripe, "Verify webhook signatures manually".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.text import load_object
from semel.edges.channel import offer, only, prove, quarantined, text_of
from semel.edges.signature import SIGNATURES_MAX, check_fresh, hex_mac, same
from semel.errors import BadRequest, NotAuthentic

if TYPE_CHECKING:
    from semel.config import Source
    from semel.edges.channel import Reading, Request


def read(request: Request, source: Source) -> Reading:
    """One event as an offer; the whole event is the run's input."""

    def right(secret: bytes) -> bool:
        told, given = _signatures(only(request, "stripe-signature"))
        check_fresh(request, told, source.window)
        wanted = hex_mac(secret, told + b"." + request.body)
        found = False
        for each in given:
            found |= same(each, wanted)
        return found

    prove(request, source, right)
    try:
        event = load_object(request.body)
    except BadRequest as bad:
        return quarantined(request, source, str(bad))
    name, account = event.get("id"), event.get("account")
    if not isinstance(name, str) or not isinstance(account, str | None):
        return quarantined(request, source, "id is missing or no text, or account is no text")
    full = f"{account}/{name}" if account and name else name
    return [offer(request, source, full, event, kind=text_of(event.get("type")))]


def _signatures(line: bytes) -> tuple[bytes, list[bytes]]:
    """The time and the signatures of `t=...,v1=...,v1=...`; other schemes are not looked at."""
    times, given = [], []
    for part in line.split(b",", SIGNATURES_MAX):
        scheme, _, value = part.strip().partition(b"=")
        if scheme == b"t":
            times.append(value)
        elif scheme == b"v1":
            given.append(value.lower())
    if len(times) != 1 or not given:
        raise NotAuthentic("stripe-signature has no time, or two, or no signature v1")
    return times[0], given
