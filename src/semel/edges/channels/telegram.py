"""
Telegram: a bot's webhook, of which one request is one update, and the updates of one we ask for.

The source is one bot on one Bot API server, so update_id alone is the identity: a set, never a
high-water mark, since after a quiet week the next id may be smaller. Telegram repeats an update
for a day until it gets a 2xx, and holds back the chat's later ones meanwhile; an unusable
update is therefore kept and answered 200. Updates of one chat, and in it of one topic, belong
together. An answer must have no member `method`, which
Telegram would carry out as a call.

Source: Bot API, setWebhook; telegram-bot-api, WebhookActor.cpp and td, TQueue.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.text import load_object
from semel.edges.channel import admit, headers_of, only, quarantined
from semel.errors import BadRequest, NotAuthentic
from semel.model import Offer

if TYPE_CHECKING:
    from semel.config import Source
    from semel.edges.channel import Reading, Request
    from semel.model import Json

SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105 - a header's name
_ID_LIMIT = 2**63


def read(request: Request, source: Source) -> Reading:
    """One update as an offer; its whole object is the run's input."""
    admit(request, source, lambda sent: [only(sent, SECRET_HEADER)])
    return _update(request, source)


def read_polled(request: Request, source: Source) -> Reading:
    """One update that we asked for; nobody posts any to a source that polls."""
    if not request.admitted:
        raise NotAuthentic(
            "this source asks Telegram for its updates, and takes none that is posted: its"
            " channel is telegram-poll"
        )
    return _update(request, source)


def _update(request: Request, source: Source) -> Reading:
    try:
        update = load_object(request.body)
    except BadRequest as bad:
        return quarantined(request, source, str(bad))
    update_id = update.get("update_id")
    if not isinstance(update_id, int) or isinstance(update_id, bool):
        return quarantined(request, source, "update_id is missing or no integer")
    if not -_ID_LIMIT < update_id < _ID_LIMIT:
        return quarantined(request, source, "update_id is out of range")
    return [
        Offer(
            source=source.name,
            channel=source.channel,
            id=str(update_id),
            agent=source.agent,
            input=update,
            priority=source.priority,
            kind=next((name for name in update if name != "update_id"), None),
            correlation=_chat(update),
            body=request.body,
            headers=headers_of(request, source),
        )
    ]


def _chat(update: dict[str, Json]) -> str | None:
    """
    The chat that *update* is from, and its topic; None for one of no chat, such as a poll's.

    A thread's id counts in a forum only: elsewhere answers have one that what they answer has not.
    """
    for told in update.values():
        if not isinstance(told, dict):
            continue
        # A button's press names the message that it stands under.
        message = told.get("message", told)
        if not isinstance(message, dict):
            continue
        chat = message.get("chat")
        if not isinstance(chat, dict) or not isinstance(chat.get("id"), int):
            continue
        thread = message.get("message_thread_id") if message.get("is_topic_message") else None
        return f"{chat['id']}/{thread}" if isinstance(thread, int) else str(chat["id"])
    return None
