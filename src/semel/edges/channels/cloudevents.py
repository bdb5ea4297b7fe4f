"""
CloudEvents 1.0 over HTTP: binary, structured and batched, and the handshake of its web hooks.

The identity is `source` and `id` together. An event without either is refused and not named by
chance: under a name of ours every repetition would be new. Nothing is signed; who may post shows
a bearer token, in a header or as `access_token` in the URL. The handshake names nobody's secret
and is answered to anyone: all it says is that events may come.

Source: cloudevents/spec, http-protocol-binding.md, http-webhook.md, json-format.md.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from semel.core.text import load
from semel.edges import form
from semel.edges.channel import (
    EVENTS_MAX,
    Reply,
    admit,
    bearer,
    id_fault,
    offer,
    quarantined,
    unusable,
)
from semel.errors import BadRequest, NotAuthentic, TooLarge, UnsupportedMedia

if TYPE_CHECKING:
    from semel.config import Source
    from semel.edges.channel import Reading, Request
    from semel.model import Json, Offer

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
_BEGIN = "application/cloudevents"
_JSON = re.compile(r"(application|text)/([a-z0-9.+-]+\+)?json")
_REQUIRED = ("id", "source", "type")
#: Members of the JSON form that are no attributes.
_DATA = frozenset({"data", "data_base64"})
_LINE_CHARS_MAX = 200


def read(request: Request, source: Source) -> Reading:
    """
    An offer for each event; the run's input is the event in its JSON form.

    Raises:
        NotAuthentic: no secret of the source.
        BadRequest: it is no CloudEvent, or one without its attributes.
        UnsupportedMedia: it is one in a form that is not read.
    """
    if request.method == "OPTIONS":
        return _handshake(request)
    admit(request, source, _given)
    if request.media == BATCH:
        return _batch(request, source)
    if request.media == STRUCTURED:
        try:
            told = load(request.body)
        except BadRequest as bad:
            return quarantined(request, source, str(bad))
        return [_event(request, source, told)]
    if request.media.startswith(_BEGIN):
        raise UnsupportedMedia(f"events as {request.media} are not read: send {STRUCTURED}")
    event = _attributes(request)
    _judge(event)
    try:
        event |= _data(request)
    except BadRequest as bad:
        return quarantined(request, source, str(bad))
    return [_event(request, source, event)]


def _handshake(request: Request) -> Reply:
    origin = request.first("webhook-request-origin")
    rate = request.first("webhook-request-rate")
    if not origin or len(origin) > _LINE_CHARS_MAX or not origin.isprintable():
        raise BadRequest("an OPTIONS request without a WebHook-Request-Origin asks for nothing")
    answer = [("Allow", "OPTIONS, POST"), ("WebHook-Allowed-Origin", origin)]
    if rate is not None:
        is_rate = rate.isascii() and rate.isdigit() and len(rate) < _LINE_CHARS_MAX
        answer.append(("WebHook-Allowed-Rate", rate if is_rate else "*"))
    return Reply(headers=tuple(answer))


def _given(request: Request) -> list[bytes]:
    if request.values("authorization"):
        return bearer(request)
    try:
        return [form.fields(request.query)[b"access_token"]]
    except (BadRequest, KeyError):
        raise NotAuthentic("there is neither a bearer token nor an access_token") from None


def _batch(request: Request, source: Source) -> Reading:
    try:
        told = load(request.body)
    except BadRequest as bad:
        return quarantined(request, source, str(bad))
    if not isinstance(told, list):
        return quarantined(request, source, "a batch is a JSON array, and this is none")
    if len(told) > EVENTS_MAX:
        raise TooLarge(f"there are {len(told)} events in the batch, more than {EVENTS_MAX}")
    if not told:
        return Reply(body=b"{}", media="application/json")
    offers: list[Offer] = []
    for event in told:
        try:
            offers.append(_event(request, source, event))
        except BadRequest as bad:  # it takes none of the others with it
            offers.append(unusable(request, source, str(bad)))
    return offers


def _event(request: Request, source: Source, told: Json) -> Offer:
    if not isinstance(told, dict):
        raise BadRequest("an event is no JSON object")
    _judge(told)
    return offer(
        request, source, f"{told['source']} {told['id']}", told, kind=str(told["type"])
    )


def _judge(event: dict[str, Json]) -> None:
    if event.get("specversion") != "1.0":
        raise BadRequest("specversion is missing, or not 1.0")
    for name in _REQUIRED:
        value = event.get(name)
        if id_fault(value) is not None:
            raise BadRequest(f"the attribute {name} is missing, empty, too long or no text")
    if any(char.isspace() for char in str(event["source"])):
        raise BadRequest("the attribute source has a space in it, so it is no URI-reference")


def _attributes(request: Request) -> dict[str, Json]:
    """The attributes in the headers of binary mode, their values decoded once."""
    found: dict[str, Json] = {}
    for name, value in request.headers:
        if not name.startswith("ce-"):
            continue
        if name[3:] in found or name[3:] in _DATA:
            raise BadRequest(f"the header {name} is there twice, or names no attribute")
        text = value.strip()
        if len(text) > 1 and text[0] == text[-1] == '"':
            text = re.sub(r"\\(.)", r"\1", text[1:-1])
        try:
            found[name[3:]] = unquote_to_bytes(text.encode("latin-1")).decode()
        except UnicodeDecodeError:
            raise BadRequest(f"the header {name} is not UTF-8 once decoded") from None
    if "\0" in "".join(map(str, found.values())):
        raise BadRequest("an attribute has a NUL character")
    return found


def _data(request: Request) -> dict[str, Json]:
    """The data of binary mode, as the JSON form has it."""
    if not request.body:
        return {}
    said = request.first("content-type")
    kind: dict[str, Json] = {"datacontenttype": said} if said is not None else {}
    if not request.media or _JSON.fullmatch(request.media):
        return kind | {"data": load(request.body)}
    if request.media.startswith("text/"):
        try:
            text = request.body.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" not in text:
            return kind | {"data": text}
    return kind | {"data_base64": base64.b64encode(request.body).decode()}
