"""
LINE: the webhook of a Messaging API channel. One request has any number of events.

The source is one channel, and `webhookEventId` the identity of each event; a redelivery regroups
events and keeps their ids. `isRedelivery` is no more than a hint: a redelivered event may be the
first one that ever got here. LINE waits for 200 and not longer than two seconds; what it gets no
200 for comes again only if redelivery is switched on. An event that cannot be read takes none
of the others with it.

Source: line/line-openapi, webhook.yml; Messaging API reference, "Receive messages (webhook)".
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from semel.core.text import load_object
from semel.edges.channel import (
    EVENTS_MAX,
    Reply,
    ignored,
    offer,
    only,
    prove,
    quarantined,
    text_of,
    unusable,
)
from semel.edges.signature import base64_mac, same
from semel.errors import BadRequest

if TYPE_CHECKING:
    from semel.config import Source
    from semel.edges.channel import Reading, Request
    from semel.model import Json, Offer

#: Reply tokens of the events that the console once made up to try a URL.
_DUMMY = re.compile(r"0{8,}|f{8,}")


def read(request: Request, source: Source) -> Reading:
    """An offer for each event; the run's input is {destination, event}."""

    def right(secret: bytes) -> bool:
        given = only(request, "x-line-signature").strip()
        return same(given, base64_mac(secret, request.body))

    prove(request, source, right)
    try:
        told = load_object(request.body)
    except BadRequest as bad:
        return _answered(quarantined(request, source, str(bad)))
    events = told.get("events")
    if not isinstance(events, list):
        return _answered(quarantined(request, source, "events is missing or no list"))
    if not events:
        return Reply(body=b"{}", media="application/json")  # LINE tries whether the URL works
    if len(events) > EVENTS_MAX:
        many = f"there are {len(events)} events, more than {EVENTS_MAX}"
        return _answered(quarantined(request, source, many))
    where = told.get("destination")
    return _answered([_event(request, source, where, event) for event in events])


def _answered(offers: list[Offer]) -> Reply:
    return Reply(body=None, offers=tuple(offers))


def _event(request: Request, source: Source, where: Json, event: Json) -> Offer:
    if not isinstance(event, dict):
        return unusable(request, source, "an event is no object")
    name = event.get("webhookEventId")
    token = event.get("replyToken")
    if name is None and isinstance(token, str) and _DUMMY.fullmatch(token):
        return ignored(request, source, "an event that the console made up to try the URL")
    if not isinstance(name, str):
        return unusable(request, source, "webhookEventId is missing or no text")
    told: Json = {"destination": where, "event": event}
    kind = text_of(event.get("type"))
    one = offer(request, source, name, told, kind=kind, correlation=_talk(event))
    mode = event.get("mode", "active")
    if one.verdict is not None or mode == "active":
        return one
    # It keeps its id, so that it can be explained, and replayed apart from the others.
    if mode == "standby":
        other = ignored(request, source, f"event {name} is for another module: mode standby")
    else:
        other = unusable(request, source, f"the mode of event {name} is not known")
    return replace(other, id=name)


def _talk(event: dict[str, Json]) -> str | None:
    """The group, room or person that *event* is from."""
    origin = event.get("source")
    if isinstance(origin, dict):
        for member in ("groupId", "roomId", "userId"):
            name = origin.get(member)
            if isinstance(name, str):
                return name
    return None
