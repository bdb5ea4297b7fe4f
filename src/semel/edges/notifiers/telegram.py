"""
Telegram: a bot's sendMessage. It has no key by which a repeat is known.

A crash between Telegram's answer and its record sends the message twice; both links lead to the
one question, and the first decision wins.

Source: Bot API, sendMessage, ResponseParameters; tdlib/telegram-bot-api#126.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from semel.config.url import Url
from semel.edges.notifiers.notifier import accepted, bounded, cleaned
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta
    from uuid import UUID

    from semel.config import NotifierSettings
    from semel.edges.notifiers.message import Message
    from semel.edges.notifiers.post import Post

API = Url(scheme="https", host="api.telegram.org", port=443)
_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,100}")


class Telegram:
    """
    One chat of one bot.

    Raises:
        BadConfig: the token has not the form of one.
    """

    def __init__(
        self, settings: NotifierSettings, post: Post, environ: Mapping[str, str]
    ) -> None:
        self._post = post
        self._token = settings.value("token", environ)
        if not _TOKEN.fullmatch(self._token):
            raise BadConfig(
                f"[notifiers.{settings.name}] token is no bot token: it has the form 123456:ABC-def"
            )
        api = settings.where("api", environ) if settings.api else API
        self.url = api.at(f"/bot{self._token}/sendMessage")
        self._chat = settings.value("chat", environ)

    async def send(self, message: Message, key: UUID) -> int:  # noqa: ARG002 - it knows no key
        """Send it as plain text, so that nothing in it is taken for markup."""
        body = {
            "chat_id": self._chat,
            "text": message.text(),
            "link_preview_options": {"is_disabled": True},
        }
        answer = await self._post(
            self.url, {"Content-Type": "application/json"}, json.dumps(body).encode()
        )
        said = _object(answer.body)
        text = cleaned(said.get("description"), self._token, message.token)
        return accepted(answer, said=text, asked=_asked(said))


def _object(body: bytes) -> dict[str, object]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _asked(said: dict[str, object]) -> timedelta | None:
    parameters = said.get("parameters")
    seconds = parameters.get("retry_after") if isinstance(parameters, dict) else None
    return bounded(seconds) if isinstance(seconds, int) else None
