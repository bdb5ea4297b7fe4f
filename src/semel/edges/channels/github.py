"""
GitHub: a webhook of a repository, an organisation or an app.

The id is the GUID of the delivery, which a redelivery keeps. It is in no signature, nor is a
time, and one event has been seen under several GUIDs: so what was said counts too, within the
source's `content_window`. GitHub repeats nothing by itself, whatever it is answered.

The signature is over the bytes as they come, also of a form, whose field `payload` is the JSON.
Source: GitHub, "Validating webhook deliveries".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from semel.core.text import load_object
from semel.edges import form
from semel.edges.channel import id_fault, ignored, offer, prove, quarantined
from semel.edges.repository import matter
from semel.edges.signature import digest, hex_given, hex_mac, same
from semel.errors import BadRequest

if TYPE_CHECKING:
    from semel.config import Source
    from semel.edges.channel import Reading, Request


def read(request: Request, source: Source) -> Reading:
    """One event as an offer; the run's input is {event, delivery, payload}."""

    def right(secret: bytes) -> bool:
        given = hex_given(request, "x-hub-signature-256", b"sha256=")
        return same(given, hex_mac(secret, request.body))

    prove(request, source, right)
    try:
        text = request.body
        if request.media == form.MEDIA:
            text = form.fields(text)[b"payload"]
        payload = load_object(text)
        delivery = request.first("x-github-delivery")
        event = request.first("x-github-event")
    except KeyError:
        return quarantined(request, source, "the form has no field payload")
    except BadRequest as bad:
        return quarantined(request, source, str(bad))
    if event == "ping":
        ping = ignored(request, source, "a ping: the hook was made, or somebody tried it")
        return [ping if id_fault(delivery) else replace(ping, id=delivery)]
    content = digest((event or "").encode("latin-1"), text)
    return [
        offer(
            request,
            source,
            delivery or content,
            {"event": event, "delivery": delivery, "payload": payload},
            kind=event,
            correlation=matter(payload),
            content=content,
        )
    ]
