"""
The seam of a channel: what a request is, and what a channel makes of it.

A channel is one pure function, `read(request, source)`. It verifies first and reads second, and
answers with offers, with an Alertmanager notification, or with a reply, where its provider must
hear something of its own. What it refuses it raises from the one
tree of errors; what is authentic but unusable it answers as a quarantined offer, so that the
sender stops and an operator can see it. A channel opens nothing, logs nothing and knows no
other channel; the ingress carries out what it says.
"""

from __future__ import annotations

import hmac
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from semel.errors import BadRequest, NotAuthentic
from semel.model import Alert, Json, Offer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from semel.config import Source

#: A kept header's value, and how many lines are kept.
HEADER_CHARS_MAX = 500
HEADERS_MAX = 64
REASON_CHARS_MAX = 500
#: A provider's id of an event; one beyond it is no id. No longer than what is kept of a header,
#: or a replay would read another one.
ID_CHARS_MAX = HEADER_CHARS_MAX
#: Events of one request.
EVENTS_MAX = 1000
#: Secrets whose forms in a header are remembered.
SECRETS_MAX = 256

#: What is kept, by its whole name or how it begins: where it came from, how to read it, and which
#: delivery it was. Whatever nobody named here may hold a secret of anybody's, and is not kept.
_KEPT = frozenset(
    {
        "content-encoding",
        "content-type",
        "idempotency-key",
        "idempotency_key",
        "user-agent",
        "svix-id",
        "svix-timestamp",
        "webhook-id",
        "webhook-timestamp",
        "x-line-retry-key",
        "x-request-id",
    }
)
_KEPT_PREFIXES = (
    "ce-",
    "x-forgejo-",
    "x-github-",
    "x-gitea-",
    "x-gogs-",
    "x-hub-",
    "x-line-",
    "x-slack-",
)
#: Not even there: a signature stands for the secret that made it, as far as its body goes.
_SECRET = (
    "auth",
    "bearer",
    "cookie",
    "cred",
    "jwt",
    "key",
    "otp",
    "pass",
    "pwd",
    "secret",
    "session",
    "sig",
    "token",
)
_HIDDEN = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, read whole. Header names are lower case, values Latin-1, as HTTP has it."""

    method: str
    headers: Sequence[tuple[str, str]]  # in the order of their lines, repeated ones repeated
    body: bytes
    local: bool  # sent by a program on this machine, and not through a proxy or a browser
    now: datetime | None = None  # a test's clock; None: the real one
    admitted: bool = False  # it was verified when it came, and is read again from the store
    query: bytes = b""  # what follows the ? of its URL, never kept
    proved: Proved = field(default=lambda _nth: None)  # told which secret proved it, from 1

    def values(self, name: str) -> list[str]:
        """What every line of the header *name* says."""
        return [value for header, value in self.headers if header == name]

    def first(self, *names: str) -> str | None:
        """
        The only line of the first of *names* that is there; None if none is.

        Raises:
            BadRequest: it is there more than once, so it says nothing, or has control characters.
        """
        for name in names:
            lines = self.values(name)
            if len(lines) > 1:
                raise BadRequest(f"there are {len(lines)} lines of {name}; there must be one")
            if lines:
                if any(char < " " or char == "\x7f" for char in lines[0]):
                    raise BadRequest(f"the header {name} has control characters")
                return lines[0]
        return None

    @property
    def media(self) -> str:
        """What its body is said to be, in lower case and without parameters; '' if it is not."""
        lines = self.values("content-type")
        return lines[0].partition(";")[0].strip().lower() if lines else ""

    @property
    def at(self) -> float:
        """When it came, in unix seconds: signatures are old or not by the ingress's clock."""
        return time.time() if self.now is None else self.now.timestamp()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """An Alertmanager notification: its alerts, and the rest of it."""

    envelope: dict[str, Json]
    alerts: list[Alert]  # the usable ones; of a fingerprint, one of each status at most
    unusable: str | None = None  # which are not, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a provider must hear, whatever becomes of the events that came with it."""

    status: int = 200
    body: bytes | None = b""  # None: what became of its events, as JSON
    media: str | None = None  # None: of no body
    headers: tuple[tuple[str, str], ...] = ()
    offers: tuple[Offer, ...] = ()  # none: nothing is kept, and the verdict is ignored


Proved: TypeAlias = "Callable[[int], None]"
Reading: TypeAlias = list[Offer] | Notification | Reply
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
    candidates: list[bytes] = []

    def right(secret: bytes) -> bool:
        found = False
        for candidate in candidates:
            found |= hmac.compare_digest(candidate, secret)
        return found

    if source.secrets and not request.admitted:
        candidates += given(request)
    prove(request, source, right)


def prove(request: Request, source: Source, right: Callable[[bytes], bool]) -> None:
    """
    Let an authentic request pass, as `admit`, by what its signature says.

    Args:
        request: What came.
        source: Without secrets it takes local requests only.
        right: Whether a secret made the signature; asked of every live one. It may raise
            NotAuthentic for a signature that is none.

    Raises:
        NotAuthentic: none did.
    """
    if request.admitted:
        return
    if not source.secrets:
        if request.local:
            return
        raise NotAuthentic(
            "this source has no secret, so it takes only what this machine sends"
        )
    proved = 0
    for nth, secret in enumerate(source.secrets, 1):
        if right(secret.reveal().encode("utf-8", "surrogateescape")):
            proved = proved or nth
    if not proved:
        raise NotAuthentic("the request does not carry a secret or signature of this source")
    request.proved(proved)


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


def offer(
    request: Request,
    source: Source,
    name: str,
    told: Json,
    *,
    kind: str | None = None,
    correlation: str | None = None,
    content: str | None = None,
) -> Offer:
    """
    The event that the provider calls *name*; *told* is its run's input.

    Args:
        request: What it came in.
        source: Whose agent it is for.
        name: Of an id that cannot be one it is quarantined.
        told: JSON that can be kept.
        kind: The event's type.
        correlation: What it belongs to, for an agent that joins.
        content: What was said, where *name* is not signed.
    """
    fault = id_fault(name)
    if fault is not None:
        return unusable(request, source, fault)
    return Offer(
        source=source.name,
        channel=source.channel,
        id=name,
        agent=source.agent,
        input=told,
        priority=source.priority,
        kind=kind,
        correlation=correlation,
        content=content,
        window=source.content_window,
        body=request.body,
        headers=headers_of(request, source),
    )


def packing(request: Request) -> str | None:
    """
    How the body is packed; None: it is plain.

    It is never unpacked: what is small on the wire may be anything in memory.
    """
    for told in request.values("content-encoding"):
        if told.strip().lower() not in {"", "identity"}:
            return _printable(told[:40])
    return None


def reason_of(text: str) -> str:
    """*text* as the reason of a delivery: bounded, and safe on a terminal."""
    return _printable(text[:REASON_CHARS_MAX])


def text_of(value: Json) -> str | None:
    """*value* where it is text."""
    return value if isinstance(value, str) else None


def id_fault(name: Any) -> str | None:
    """Why *name* is no id of an event; None: it is one."""
    if not isinstance(name, str) or not name.strip():
        return "the id of the event is missing, empty or no text"
    if len(name) > ID_CHARS_MAX:
        return f"the id of the event is longer than {ID_CHARS_MAX} characters"
    if not name.isprintable():
        return "the id of the event has control characters"
    return None


def ignored(request: Request, source: Source, reason: str) -> Offer:
    """The request, or an event of it, that is no work: kept, and no run."""
    return Offer(
        source=source.name,
        channel=source.channel,
        body=request.body,
        headers=headers_of(request, source),
        verdict="ignored",
        reason=reason,
    )


def unusable(request: Request, source: Source, reason: str) -> Offer:
    """The request, or an event of it, that is authentic and cannot be read: kept raw."""
    packed = packing(request)
    if packed is not None:
        reason = f"a body with Content-Encoding {packed} is not read: {reason}"
    return Offer(
        source=source.name,
        channel=source.channel,
        body=request.body,
        headers=headers_of(request, source),
        verdict="quarantined",
        reason=reason_of(reason),
    )


def quarantined(request: Request, source: Source, reason: str) -> list[Offer]:
    """The request, kept raw because it is authentic and unusable. It makes no dedupe row."""
    return [unusable(request, source, reason)]


def headers_of(request: Request, source: Source) -> dict[str, str]:
    """What is kept of the headers of a request to *source*."""
    # One that is read again from the store was cleaned when it came, and knows no secrets.
    secrets = () if request.admitted else source.secrets
    wanted = source.hmac.kept if source.hmac else ()
    return kept(request.headers, [secret.reveal() for secret in secrets], wanted)


def kept(
    headers: Sequence[tuple[str, str]],
    secrets: Iterable[str] = (),
    wanted: Iterable[str] = (),
) -> dict[str, str]:
    """
    The headers worth keeping with a delivery: the ones that are known, and no secret of them.

    Repeated lines are joined by a comma. Control characters become a question mark.

    Args:
        headers: Names in lower case, values in Latin-1.
        secrets: Live ones. A value that has one anywhere in it is kept as ***.
        wanted: Names that the configuration reads besides.
    """
    wanted = frozenset(wanted)
    forms = [form for secret in secrets for form in _forms(secret)]
    said: dict[str, str] = {}
    for name, value in headers:
        if name not in wanted and not _is_kept(name):
            continue
        if len(said) >= HEADERS_MAX and name not in said:
            break
        text = _HIDDEN if forms and any(form in value for form in forms) else value
        said[name] = f"{said[name]}, {text}" if name in said else text
    return {name: _printable(value[:HEADER_CHARS_MAX]) for name, value in said.items()}


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "?" for char in text)


def _is_kept(name: str) -> bool:
    return name in _KEPT or (
        name.startswith(_KEPT_PREFIXES) and not any(word in name for word in _SECRET)
    )


@lru_cache(maxsize=SECRETS_MAX)
def _forms(secret: str) -> frozenset[str]:
    """How *secret* may stand in a header: as it is, or in a URL."""
    raw = secret.encode("utf-8", "surrogateescape")
    return frozenset((raw.decode("latin-1"), quote(raw, safe=""), quote(raw)))
