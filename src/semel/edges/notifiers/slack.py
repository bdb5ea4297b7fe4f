"""
Slack: a bot's chat.postMessage, or an incoming webhook.

`client_msg_id` is the same at each repeat. Slack knows it, and names it in the method's errors
(duplicate_message_not_found), but does not list it as an argument: that it keeps a repeat away is
not promised. An incoming webhook takes no key at all. So a crash between Slack's answer and its
record may send twice.

Source: api.slack.com, chat.postMessage and incoming webhooks.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from semel.config.url import Url
from semel.edges.notifiers.notifier import NotifyLater, NotifyRefused, accepted, cleaned

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from semel.config import NotifierSettings
    from semel.edges.notifiers.message import Message
    from semel.edges.notifiers.notifier import Answer
    from semel.edges.notifiers.post import Post

API = Url(scheme="https", host="slack.com", port=443, target="/api")

_OK = 200
_UNREADABLE = "what is no JSON"
#: Answered with 200, and gone with the next attempt.
_LATER = frozenset(
    {
        _UNREADABLE,
        "fatal_error",
        "internal_error",
        "rate_limited",
        "ratelimited",
        "request_timeout",
        "service_unavailable",
        "team_added_to_org",
    }
)
#: An earlier attempt was accepted, and its message has been deleted since.
_BEFORE = "duplicate_message_not_found"


class Slack:
    """One channel of a bot, or the one that an incoming webhook leads to."""

    def __init__(
        self, settings: NotifierSettings, post: Post, environ: Mapping[str, str]
    ) -> None:
        self._post = post
        self._headers = {"Content-Type": "application/json; charset=utf-8"}
        self._channel: str | None = None
        if settings.url:
            self.url = settings.where("url", environ)
            self._hidden = self.url.target
        else:
            api = settings.where("api", environ) if settings.api else API
            self.url = api.at("/chat.postMessage")
            self._hidden = settings.value("token", environ)
            self._headers["Authorization"] = f"Bearer {self._hidden}"
            self._channel = settings.value("channel", environ)

    async def send(self, message: Message, key: UUID) -> int:
        """Send it with all that Slack would read as markup escaped, and no link unfurled."""
        text = message.text().replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        body: dict[str, object] = {"text": text, "unfurl_links": False, "unfurl_media": False}
        if self._channel is not None:
            body |= {"channel": self._channel, "mrkdwn": False, "client_msg_id": str(key)}
        answer = await self._post(self.url, self._headers, json.dumps(body).encode())
        error = _error(answer, is_bot=self._channel is not None)
        said = cleaned(error, self._hidden, message.token)
        status = accepted(answer, said=said)
        if error in {"", _BEFORE}:
            return status
        if error in _LATER:
            raise NotifyLater(f"Slack answered {said}; it is tried again")
        raise NotifyRefused(
            f"Slack answered {said}: check the token's scope chat:write, the channel, and that the"
            " bot was invited to it"
        )


def _error(answer: Answer, *, is_bot: bool) -> str:
    """What went wrong: a bot is told in the body, also with 200, a webhook by the status."""
    if not is_bot:
        return "" if answer.status == _OK else answer.body.decode("utf-8", "replace")
    try:
        said = json.loads(answer.body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        return _UNREADABLE
    return "" if said.get("ok") is True else str(said.get("error"))
