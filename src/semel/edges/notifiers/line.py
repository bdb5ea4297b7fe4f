"""
LINE: a push message under a retry key, so that a repeat is known.

409 says that LINE has accepted this key before: an earlier attempt went well. It remembers a key
for 24 hours; a repeat after that would be a second message.

Source: developers.line.biz, Messaging API, retrying API requests; line-openapi, messaging-api.yml.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from semel.config.url import Url
from semel.edges.notifiers.notifier import accepted, cleaned

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from semel.config import NotifierSettings
    from semel.edges.notifiers.message import Message
    from semel.edges.notifiers.post import Post

API = Url(scheme="https", host="api.line.me", port=443)
_ACCEPTED_BEFORE = 409


class Line:
    """One person, group or room of one channel."""

    def __init__(
        self, settings: NotifierSettings, post: Post, environ: Mapping[str, str]
    ) -> None:
        self._post = post
        api = settings.where("api", environ) if settings.api else API
        self.url = api.at("/v2/bot/message/push")
        self._token = settings.value("token", environ)
        self._to = settings.value("to", environ)

    async def send(self, message: Message, key: UUID) -> int:
        """Push it as one text message."""
        body = {"to": self._to, "messages": [{"type": "text", "text": message.text()}]}
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {self._token}",
            "X-Line-Retry-Key": str(key),
        }
        answer = await self._post(self.url, headers, json.dumps(body).encode())
        if answer.status == _ACCEPTED_BEFORE:
            return answer.status
        return accepted(answer, said=cleaned(_said(answer.body), self._token, message.token))


def _said(body: bytes) -> object:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return said.get("message") if isinstance(said, dict) else None
