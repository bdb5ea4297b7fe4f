"""How each provider signs, written once more and apart from what verifies it."""

import base64
import hashlib
import hmac
from typing import Any
from urllib.parse import quote_plus

from nacl.signing import SigningKey

from semel.config import Source
from web import secret

Headers = list[tuple[str, str]]
#: A test's key pair, and how Discord and Standard Webhooks write the public half.
PAIR = SigningKey(bytes(range(32)))
PUBLIC_HEX = PAIR.verify_key.encode().hex()
PUBLIC_WHPK = "whpk_" + base64.b64encode(PAIR.verify_key.encode()).decode()
WHSEC = "whsec_" + base64.b64encode(b"k" * 24).decode()
NOW = 1_767_225_600.0
FORM = ("content-type", "application/x-www-form-urlencoded")


def hexed(key: str, message: bytes) -> str:
    return hmac.new(key.encode(), message, hashlib.sha256).hexdigest()


def gitea(key: str, body: bytes, uuid: str = "u-1", event: str = "push") -> Headers:
    return [
        ("x-gitea-delivery", uuid),
        ("x-gitea-event", event),
        ("x-gitea-event-type", event),
        ("x-gitea-signature", hexed(key, body)),
    ]


def github(key: str, body: bytes, guid: str = "g-1", event: str = "push") -> Headers:
    return [
        ("x-github-delivery", guid),
        ("x-github-event", event),
        ("x-hub-signature-256", "sha256=" + hexed(key, body)),
    ]


def line(key: str, body: bytes) -> Headers:
    mac = hmac.new(key.encode(), body, hashlib.sha256).digest()
    return [("x-line-signature", base64.b64encode(mac).decode())]


def slack(key: str, body: bytes, at: float = NOW) -> Headers:
    told = str(int(at))
    return [
        ("x-slack-request-timestamp", told),
        ("x-slack-signature", "v0=" + hexed(key, f"v0:{told}:".encode() + body)),
    ]


def stripe(key: str, body: bytes, at: float = NOW) -> Headers:
    told = str(int(at))
    return [("stripe-signature", f"t={told},v1={hexed(key, f'{told}.'.encode() + body)}")]


def standard(key: str, body: bytes, at: float = NOW, name: str = "msg_1") -> Headers:
    told = str(int(at))
    message = f"{name}.{told}.".encode() + body
    if key == PUBLIC_WHPK:
        signed = "v1a," + base64.b64encode(PAIR.sign(message).signature).decode()
    else:
        known = base64.b64decode(key.removeprefix("whsec_"))
        mac = hmac.new(known, message, hashlib.sha256).digest()
        signed = "v1," + base64.b64encode(mac).decode()
    return [("webhook-id", name), ("webhook-timestamp", told), ("webhook-signature", signed)]


def discord(_key: str, body: bytes, at: float = NOW) -> Headers:
    told = str(int(at))
    return [
        ("x-signature-ed25519", PAIR.sign(told.encode() + body).signature.hex()),
        ("x-signature-timestamp", told),
    ]


def payload(body: bytes) -> bytes:
    """*body* as the field of a form."""
    return b"payload=" + quote_plus(body).encode()


def source(channel: Any, *secrets: str, **changes: Any) -> Source:
    told: dict[str, Any] = {"name": channel, "channel": channel, "agent": "a"}
    return Source(secrets=tuple(secret(each) for each in secrets), **(told | changes))
