"""
The seam of a channel: what a request is, and what a channel makes of it.

A channel is one pure function, `read(request, source)`. It verifies first and reads second, and
answers with offers or with an Alertmanager notification. What it refuses it raises from the one
tree of errors; what is authentic but unusable it answers as a quarantined offer, so that the
sender stops and an operator can see it. A channel opens nothing, logs nothing and knows no
other channel; the ingress carries out what it says.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from semel.errors import NotAuthentic
from semel.model import Alert, Json, Offer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from semel.config import Source

#: A kept header's value, and how many lines are kept.
HEADER_CHARS_MAX = 500
HEADERS_MAX = 64
REASON_CHARS_MAX = 500

_KEPT = frozenset(
    {
        "accept",
        "authorization",
        "content-encoding",
        "content-length",
        "content-type",
        "idempotency-key",
        "idempotency_key",
        "user-agent",
    }
)
#: An event's name, and kept as such anyway, though it is called a key.
_NAMES = frozenset({"idempotency-key", "idempotency_key"})
_SECRET = (
    "auth",
    "cookie",
    "credential",
    "key",
    "pass",
    "secret",
    "session",
    "signature",
    "token",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, read whole. Header names are lower case, values Latin-1, as HTTP has it."""

    method: str
    headers: Sequence[tuple[str, str]]  # in the order of their lines, repeated ones repeated
    body: bytes
    local: bool  # sent by a program on this machine, and not through a proxy or a browser
    now: datetime | None = None  # a test's clock; None: the real one
    admitted: bool = False  # it was verified when it came, and is read again from the store

    def values(self, name: str) -> list[str]:
        """What every line of the header *name* says."""
        return [value for header, value in self.headers if header == name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """An Alertmanager notification: its alerts, and the rest of it."""

    envelope: dict[str, Json]
    alerts: list[Alert]


Reading: TypeAlias = list[Offer] | Notification
Read: TypeAlias = "Callable[[Request, Source], Reading]"


def admit(
    request: Request, source: Source, given: Callable[[Request], Iterable[bytes]]
) -> None:
    """
    Let an authentic request pass, and one that passed when it came.

    Args:
        request: What came.
        source: Without secrets it takes local requests only.
        given: What of the request may be the secret. Every one is compared with every live
            secret, in constant time.

    Raises:
        NotAuthentic: anything else.
    """
    if request.admitted:
        return
    if not source.secrets:
        if request.local:
            return
        raise NotAuthentic(
            "this source has no secret, so it takes only what this machine sends"
        )
    right = False
    for candidate in given(request):
        for secret in source.secrets:
            known = secret.reveal().encode("utf-8", "surrogateescape")
            right |= hmac.compare_digest(candidate, known)
    if not right:
        raise NotAuthentic("the request does not carry a secret of this source")


def only(request: Request, name: str) -> bytes:
    """
    The bytes of the one line of an authenticating header.

    Raises:
        NotAuthentic: there is none, or several.
    """
    lines = request.values(name)
    if len(lines) != 1:
        raise NotAuthentic(f"there are {len(lines)} lines of {name}; there must be one")
    return lines[0].encode("latin-1")


def bearer(request: Request) -> list[bytes]:
    """What stands behind `Authorization: Bearer`."""
    scheme, _, rest = only(request, "authorization").strip().partition(b" ")
    return [rest.strip()] if scheme.lower() == b"bearer" else []


def quarantined(request: Request, source: Source, reason: str) -> list[Offer]:
    """The request, kept raw because it is authentic and unusable. It makes no dedupe row."""
    return [
        Offer(
            source=source.name,
            channel=source.channel,
            body=request.body,
            headers=kept(request.headers),
            verdict="quarantined",
            reason=reason[:REASON_CHARS_MAX],
        )
    ]


def kept(headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    """
    The headers worth keeping with a delivery: a known few and X-*; a secret's value is ***.

    Repeated lines are joined by a comma. Control characters become a question mark.
    """
    said: dict[str, str] = {}
    for name, value in headers:
        if name not in _KEPT and not name.startswith("x-"):
            continue
        if len(said) >= HEADERS_MAX and name not in said:
            break
        hidden = name not in _NAMES and any(word in name for word in _SECRET)
        text = "***" if hidden else value
        said[name] = f"{said[name]}, {text}" if name in said else text
    return {
        name: "".join(char if char.isprintable() else "?" for char in value[:HEADER_CHARS_MAX])
        for name, value in said.items()
    }
