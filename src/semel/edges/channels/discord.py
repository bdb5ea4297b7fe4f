"""
Discord: interactions and webhook events of an application.

The id of an interaction is behind its `application_id`. An event has none, so it is known by
what it says. A signature that is wrong must be answered 401: Discord sends some on purpose and
takes an URL that lets them pass off the list. An interaction is answered at once with "wait",
which leaves the run fifteen minutes for its answer; what is only asked for suggestions is told
that there are none.

Source: Discord, "Interactions overview", "Webhook events".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from semel.config.proof import PUBLIC_BYTES, hex_key
from semel.core.text import load_object
from semel.edges.channel import Reply, offer, only, prove, quarantined, text_of, unusable
from semel.edges.ed25519 import is_signed
from semel.edges.signature import digest, hex_given
from semel.errors import BadRequest

if TYPE_CHECKING:
    from semel.config import Source
    from semel.edges.channel import Reading, Request
    from semel.model import Json

_PING = 1
_AUTOCOMPLETE = 4
_EVENT_PING = 0
_EVENT = 1
_JSON = "application/json"
_PONG = b'{"type":1}'
_WAIT = b'{"type":5}'
_NO_CHOICES = b'{"type":8,"data":{"choices":[]}}'
_NO_CONTENT = 204
_KINDS = {2: "APPLICATION_COMMAND", 3: "MESSAGE_COMPONENT", 5: "MODAL_SUBMIT"}


def read(request: Request, source: Source) -> Reading:
    """One interaction or event as an offer; the whole of it is the run's input."""
    prove(request, source, lambda secret: _is_signed(request, secret))
    try:
        told = load_object(request.body)
    except BadRequest as bad:
        return quarantined(request, source, str(bad))
    kind = told.get("type")
    if not isinstance(kind, int) or isinstance(kind, bool):
        return quarantined(request, source, "type is missing or no whole number")
    if "event" in told or kind == _EVENT_PING:
        return _event(request, source, kind, told)
    return _interaction(request, source, kind, told)


def _interaction(request: Request, source: Source, kind: int, told: dict[str, Json]) -> Reading:
    if kind == _PING:
        return Reply(body=_PONG, media=_JSON)
    if kind == _AUTOCOMPLETE:
        return Reply(body=_NO_CHOICES, media=_JSON)
    name, app = told.get("id"), told.get("application_id")
    if not isinstance(name, str) or not name or not isinstance(app, str):
        return quarantined(request, source, "id or application_id is missing or no text")
    said = _KINDS.get(kind, f"INTERACTION_{kind}")
    one = offer(request, source, f"{app}/{name}", told, kind=said, correlation=_channel(told))
    return Reply(body=_WAIT, media=_JSON, offers=(one,))


def _event(request: Request, source: Source, kind: int, told: dict[str, Json]) -> Reply:
    if kind == _EVENT_PING:
        return Reply(status=_NO_CONTENT)
    event = told.get("event")
    if kind != _EVENT or not isinstance(event, dict) or not event:
        strange = unusable(request, source, "type or event is not known")
        return Reply(status=_NO_CONTENT, offers=(strange,))
    said = [told.get("application_id"), event]
    name = digest(json.dumps(said, sort_keys=True).encode())
    one = offer(request, source, name, told, kind=text_of(event.get("type")))
    return Reply(status=_NO_CONTENT, offers=(one,))


def _is_signed(request: Request, secret: bytes) -> bool:
    key = hex_key(secret.decode("utf-8", "surrogateescape"), size=PUBLIC_BYTES)
    given = hex_given(request, "x-signature-ed25519").decode("latin-1")
    told = only(request, "x-signature-timestamp")
    signature = hex_key(given)
    if key is None or signature is None:
        return False
    return is_signed(key, signature, told + request.body)


def _channel(told: dict[str, Json]) -> str | None:
    name = told.get("channel_id")
    return name if isinstance(name, str) else None
