"""
The seam of a notifier: a message goes in, one request goes out, and the answer is judged.

A notifier knows its provider: where to post, in which form, under which key a repeat is known, and
what the answer means. What failed for now is a NotifyFailed, and the run is tried again; what no
repeat can mend is a NotifyRefused, and the run ends. Neither ever quotes a secret or a link.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, ClassVar, Protocol

from semel.errors import DoNotRetry, NotifyFailed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from semel.config.url import Url
    from semel.edges.notifiers.message import Message

#: A provider that asks for a longer pause gets this one.
PAUSE_MAX = timedelta(hours=1)
SAID_CHARS_MAX = 200

_OK = range(200, 300)
_REDIRECTS = range(300, 400)
_SERVER_FAULTS = range(500, 600)
#: Timed out, too early, too many: the same request may pass later.
_LATER = frozenset({408, 425, 429})
_MENDS = {
    400: "the request was not understood: check the notifier's settings",
    401: "the token is not accepted: renew it",
    403: "it is not allowed there: check the token's rights, and that the bot was invited",
    404: "there is nothing: check the address and the token",
    410: "it is gone: check the address",
}


class NotifyLater(NotifyFailed):
    """Failed for now. `retry_after`: the shortest pause the provider asks for."""

    def __init__(self, said: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(said)
        self.retry_after = retry_after


class NotifyRefused(NotifyFailed, DoNotRetry):
    """No repeat can mend it."""

    retryable: ClassVar[bool] = False

    def __init__(self, said: str) -> None:
        super().__init__(f"{self.code} {said}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes  # its beginning, if it is long


class Notifier(Protocol):
    """One way to reach one recipient."""

    @property
    def url(self) -> Url:
        """Where it posts; of it only the origin may be shown."""

    async def send(self, message: Message, key: UUID) -> int:
        """
        Send *message*; answers the HTTP status that accepted it.

        Args:
            key: The same at each attempt of one notification, whatever link it carries.

        Raises:
            NotifyLater: the network, the provider, or too many requests.
            NotifyRefused: what a person must mend.
        """


def accepted(answer: Answer, *, said: str = "", asked: timedelta | None = None) -> int:
    """
    The status of an *answer* that accepted the message.

    Args:
        said: What the provider says about it, cleaned.
        asked: The pause it asks for elsewhere than in Retry-After.

    Raises:
        NotifyLater, NotifyRefused: it accepted nothing.
    """
    status = answer.status
    if status in _OK:
        return status
    words = f"it answered {status}{f' ({said})' if said else ''}"
    if status in _LATER or status in _SERVER_FAULTS:
        raise NotifyLater(f"{words}; it is tried again", retry_after=asked or _pause(answer))
    if status in _REDIRECTS:
        raise NotifyRefused(f"{words}: a redirect is not followed, write the final address")
    raise NotifyRefused(f"{words}: {_MENDS.get(status, 'mend the notifier in semel.toml')}")


def cleaned(said: object, *hidden: str) -> str:
    """What a provider *said*, fit for an error: short, printable, and none of *hidden* in it."""
    text = said if isinstance(said, str) else ""
    if any(secret in text for secret in hidden):
        return ""
    return "".join(char if char.isprintable() else " " for char in text)[:SAID_CHARS_MAX]


def bounded(seconds: float) -> timedelta:
    """A pause that a provider asks for, within reason."""
    return min(max(timedelta(seconds=min(seconds, 1e6)), timedelta(0)), PAUSE_MAX)


def _pause(answer: Answer) -> timedelta | None:
    told = answer.headers.get("retry-after", "").strip()
    if told.isascii() and told.isdigit():
        return bounded(float(told[:9]))
    try:
        moment = parsedate_to_datetime(told)
    except ValueError:
        return None
    at = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return bounded(at.timestamp() - time.time())
