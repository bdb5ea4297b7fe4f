"""
Webhook: a POST of JSON to a server of yours, signed where there is a secret.

`Idempotency-Key` and `webhook-id` are the same at each repeat, while the link in the body is a
fresh one: tell repeats by the id, not by the body. With a secret the request is signed as
Standard Webhooks are, anew at each attempt.

Source: standardwebhooks.com, specification 1.0.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from typing import TYPE_CHECKING

from semel.edges.notifiers.notifier import NotifyLater, accepted
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from semel.config import NotifierSettings
    from semel.edges.notifiers.message import Message
    from semel.edges.notifiers.post import Post

_KEY_BYTES = range(24, 65)
_IN_FLIGHT = 409


class Webhook:
    """
    One endpoint.

    Raises:
        BadConfig: the secret is no Standard Webhooks secret.
    """

    def __init__(
        self, settings: NotifierSettings, post: Post, environ: Mapping[str, str]
    ) -> None:
        self._post = post
        self.url = settings.where("url", environ)
        token = settings.token and settings.value("token", environ)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        secret = settings.secret and settings.value("secret", environ)
        self._secret = _key(f"[notifiers.{settings.name}] secret", secret) if secret else None

    async def send(self, message: Message, key: UUID) -> int:
        """Post it; 409 says that a repeat came while the first was still read."""
        body = json.dumps(_payload(message), ensure_ascii=False).encode()
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": str(key),
            **self._headers,
            **self._signed(str(key), body),
        }
        answer = await self._post(self.url, headers, body)
        if answer.status == _IN_FLIGHT:
            raise NotifyLater("it answered 409: an earlier attempt is still read there")
        return accepted(answer)

    def _signed(self, name: str, body: bytes) -> dict[str, str]:
        moment = str(int(time.time()))
        headers = {"webhook-id": name, "webhook-timestamp": moment}
        if self._secret is None:
            return headers
        signed = hmac.digest(self._secret, f"{name}.{moment}.".encode() + body, hashlib.sha256)
        return {**headers, "webhook-signature": f"v1,{base64.b64encode(signed).decode()}"}


def _payload(message: Message) -> dict[str, object]:
    return {
        "type": "approval.requested",
        "timestamp": message.created_at.isoformat(),
        "data": {
            "project": message.project,
            "approval_id": str(message.approval_id),
            "run_id": str(message.run_id),
            "agent": message.agent,
            "recipient": message.recipient,
            "title": message.title,
            "action": message.action,
            "digest": message.digest,
            "need": message.need,
            "expires_at": message.expires_at.isoformat(),
            "link": message.link,
        },
    }


def _key(name: str, secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if not secret.startswith("whsec_") or len(key) not in _KEY_BYTES:
        raise BadConfig(
            f"{name} is no Standard Webhooks secret: write whsec_ and 24 to 64 random bytes in"
            " base64, as of `openssl rand -base64 32`"
        )
    return key
