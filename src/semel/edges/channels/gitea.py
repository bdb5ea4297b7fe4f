"""
Gitea and Forgejo: a hook of a repository, an organisation or the whole server.

The id is the UUID of the delivery. It is in no signature, nor is a time, and Gitea's button
delivers the same payload under a new one: so what was said counts too, within the source's
`content_window`. Gitea repeats nothing by itself, whatever it is answered.

What is signed is the JSON text. In a form, or the query of a GET hook, that is the field
`payload` and not the bytes on the wire. A hook without a secret at Gitea sends its signature
headers empty, and nothing empty is a signature.

Source: go-gitea/gitea, services/webhook/deliver.go; Forgejo adds X-Forgejo-* beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.text import load_object
from semel.edges import form
from semel.edges.channel import offer, prove, quarantined
from semel.edges.repository import matter
from semel.edges.signature import digest, hex_given, hex_mac, same
from semel.errors import BadRequest, NotAuthentic

if TYPE_CHECKING:
    from semel.config import Source
    from semel.edges.channel import Reading, Request

#: All say the same; the first that is there counts.
_SIGNATURES = (
    ("x-gitea-signature", b""),
    ("x-forgejo-signature", b""),
    ("x-gogs-signature", b""),
    ("x-hub-signature-256", b"sha256="),
)
_FAMILIES = ("x-gitea", "x-forgejo", "x-gogs", "x-github")


def read(request: Request, source: Source) -> Reading:
    """One event as an offer; the run's input is {event, type, delivery, payload}."""
    prove(request, source, lambda secret: _is_signed(request, secret))
    try:
        text = form.fields(request.body)[b"payload"] if _is_form(request) else request.body
        payload = load_object(text)
        delivery = request.first(*(f"{family}-delivery" for family in _FAMILIES))
        event = request.first(*(f"{family}-event" for family in _FAMILIES))
        kind = request.first(*(f"{family}-event-type" for family in _FAMILIES)) or event
    except KeyError:
        return quarantined(request, source, "the form has no field payload")
    except BadRequest as bad:
        return quarantined(request, source, str(bad))
    content = digest((kind or "").encode("latin-1"), text)
    return [
        offer(
            request,
            source,
            delivery or content,
            {"event": event, "type": kind, "delivery": delivery, "payload": payload},
            kind=event,
            correlation=matter(payload),
            content=content,
        )
    ]


def _is_signed(request: Request, secret: bytes) -> bool:
    given = _signature(request)
    found = False
    for text in _texts(request):
        found |= same(given, hex_mac(secret, text))
    return found


def _signature(request: Request) -> bytes:
    for name, prefix in _SIGNATURES:
        if request.values(name):
            return hex_given(request, name, prefix)
    raise NotAuthentic("there is no signature")


def _texts(request: Request) -> list[bytes]:
    """What may be signed: the body, and the JSON in it where it is a form."""
    if not _is_form(request):
        return [request.body]
    try:
        return [request.body, form.fields(request.body)[b"payload"]]
    except (BadRequest, KeyError):
        return [request.body]


def _is_form(request: Request) -> bool:
    return request.media == form.MEDIA
