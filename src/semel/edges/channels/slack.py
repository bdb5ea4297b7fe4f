"""
Slack: the Events API, slash commands and interactivity of an app.

The id of an event is `event_id`, which Slack makes once for all workspaces. What people do has
none: a slash command or a dialogue is named by its `trigger_id`, and what has not even that by
its content. A retry is signed anew and keeps the id; its header is a hint and decides nothing.
Slack waits three seconds, and shows what it is answered to the person who typed: so it is
answered nothing but 200.

Source: Slack, "Verifying requests from Slack", "Using the Slack Events API".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.text import load_object
from semel.edges import form
from semel.edges.channel import Reply, ignored, offer, prove, text_of, unusable
from semel.edges.signature import digest, fresh, hex_given, hex_mac, same
from semel.errors import BadRequest

if TYPE_CHECKING:
    from semel.config import Source
    from semel.edges.channel import Reading, Request
    from semel.model import Json, Offer

CHALLENGE_CHARS_MAX = 1000


def read(request: Request, source: Source) -> Reading:
    """One event as an offer; the run's input is the envelope, or the fields of the form."""

    def right(secret: bytes) -> bool:
        given = hex_given(request, "x-slack-signature", b"v0=")
        told = fresh(request, "x-slack-request-timestamp", source.window)
        return same(given, hex_mac(secret, b"v0:" + told + b":" + request.body))

    prove(request, source, right)
    try:
        told: dict[str, Json]
        if request.media == form.MEDIA:
            told = {**form.texts(request.body)}
            if "payload" in told:
                told = load_object(str(told["payload"]).encode())
        else:
            told = load_object(request.body)
    except BadRequest as bad:
        return Reply(offers=(unusable(request, source, str(bad)),))
    challenge = told.get("challenge")
    if told.get("type") == "url_verification" and isinstance(challenge, str):
        if len(challenge) > CHALLENGE_CHARS_MAX or not challenge.isascii():
            long = "the challenge is too long, or not ASCII"
            return Reply(offers=(unusable(request, source, long),))
        return Reply(body=challenge.encode(), media="text/plain")
    return Reply(offers=(_event(request, source, told),))


def _event(request: Request, source: Source, told: dict[str, Json]) -> Offer:
    kind = told.get("type")
    if kind == "app_rate_limited":
        return ignored(request, source, "Slack holds events back: app_rate_limited")
    if told.get("ssl_check"):
        return ignored(request, source, "Slack tries the certificate: ssl_check")
    name = told.get("event_id")
    if name is None and kind != "event_callback":
        name = told.get("trigger_id") or digest(request.body)
    if not isinstance(name, str):
        return unusable(request, source, "event_id is missing or no text")
    return offer(request, source, name, told, kind=_kind(told), correlation=_thread(told))


def _kind(told: dict[str, Json]) -> str | None:
    """The type of the event inside, or of what a person did; a slash command has none itself."""
    event = told.get("event")
    if isinstance(event, dict):
        return text_of(event.get("type"))
    return "slash_command" if "command" in told else text_of(told.get("type"))


def _thread(told: dict[str, Json]) -> str | None:
    """The thread that an event is in, or begins: its channel and the time of its first message."""
    event = told.get("event")
    if not isinstance(event, dict):
        return None
    channel, began = event.get("channel"), event.get("thread_ts") or event.get("ts")
    if isinstance(channel, str) and isinstance(began, str):
        return f"{channel}/{began}"
    return None
