"""
The course of one request: which try it is, and whether there is another.

Sent again is only what cannot happen twice by it: GET, HEAD, and what carries a key. And only
when the server may say otherwise next time: no answer came, a first execution is still going on,
or a server had no capacity. A 422, and a 409 that is to stay (-004, -005), are answers.

No I/O, no clock of its own: the clients tell what happened, this says how long to wait.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import httpx

from semel.edges.client import problem
from semel.edges.client.keys import HEADER, SPELLINGS, fresh, quoted
from semel.edges.client.patience import retry_after
from semel.errors import BadKey

if TYPE_CHECKING:
    from semel.edges.client.patience import Patience

SAFE = ("GET", "HEAD")
KEYED = ("POST", "PATCH")
IN_FLIGHT = "E-IDEMPOTENT-003"

BUSY = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
#: Nothing was sent, nothing will ever be, or it was our own fault.
FINAL = (httpx.LocalProtocolError, httpx.UnsupportedProtocol)
TRIED = "semel"


@dataclass(frozen=True)
class Tried:
    """
    What it took.

    Attributes:
        tries: How often the request was sent.
        key: The one it carried, as it stood in the header; None where it had none.
        replayed: The answer is that of an earlier execution (Idempotent-Replayed).
    """

    tries: int
    key: str | None
    replayed: bool


def tried(what: httpx.Response | httpx.HTTPStatusError | httpx.RequestError) -> Tried:
    """
    What it took to get this answer, or to give up with this error.

    Raises:
        KeyError: it is of another client.
    """
    if isinstance(what, httpx.HTTPStatusError):
        what = what.response
    told = what if isinstance(what, httpx.Response) else what.request
    found = told.extensions[TRIED]
    assert isinstance(found, Tried)  # noqa: S101 - the extension's name is ours
    return found


class Course:
    """A request's tries. Gives a POST or PATCH without a key one of its own."""

    def __init__(self, request: httpx.Request, patience: Patience) -> None:
        if request.method in KEYED and _key(request) is None:
            request.headers[HEADER] = quoted(fresh())
        self.key = _key(request)
        self.may_repeat = self.key is not None or request.method in SAFE
        self._request = request
        self._patience = patience
        self._until = time.monotonic() + patience.deadline
        self._timeouts = dict(request.extensions.get("timeout", {}))
        self._tries = 0

    @property
    def left(self) -> float:
        """Seconds to the deadline, at least 0."""
        return max(0.0, self._until - time.monotonic())

    def begin(self) -> None:
        """A try begins; none of its waits is longer than what is left."""
        self._tries += 1
        left = self.left
        bounded = {
            part: left if (own := self._timeouts.get(part)) is None else min(own, left)
            for part in ("connect", "read", "write", "pool")
        }
        self._request.extensions = {**self._request.extensions, "timeout": bounded}

    def late(self) -> httpx.ReadTimeout:
        """The error of a deadline that passed while an answer was awaited."""
        said = f"no whole answer within {self._patience.deadline:g} s"
        return httpx.ReadTimeout(said, request=self._request)

    def after_error(self, error: httpx.TransportError) -> float | None:
        """Seconds to the next try; None: there is none, raise it."""
        pause = None if isinstance(error, FINAL) else self._pause(None)
        if pause is None:
            told = Tried(self._tries, self.key, replayed=False)
            self._request.extensions = {**self._request.extensions, TRIED: told}
            # httpx raises some without their request
            error.request = self._request
            error.add_note(f"tries: {self._tries}")
        return pause

    def after_answer(self, response: httpx.Response) -> float | None:
        """Seconds to the next try; None: this is the answer. Errors' bodies have been read."""
        pause = None
        if _may_pass(response):
            headers = response.headers
            asked = retry_after(headers.get("retry-after"), headers.get("date"), time.time())
            pause = self._pause(asked)
        if pause is None:
            replayed = response.headers.get("idempotent-replayed", "").strip().lower()
            told = Tried(self._tries, self.key, replayed in ("true", "?1"))
            response.extensions[TRIED] = told
        return pause

    def _pause(self, asked: float | None) -> float | None:
        if not self.may_repeat or self._tries >= self._patience.tries:
            return None
        chance = random.random()  # noqa: S311 - it spreads load, it hides nothing
        pause = self._patience.pause(self._tries, asked, chance)
        return pause if pause < self.left else None


def _key(request: httpx.Request) -> str | None:
    """The key of *request*, as it stands there."""
    found = [request.headers[name] for name in SPELLINGS if name in request.headers]
    if any(not key.strip() for key in found):
        raise BadKey("the request carries an empty key")
    return found[0] if found else None


def _may_pass(response: httpx.Response) -> bool:
    """Whether the same request may get another answer later."""
    members = problem.read(response) or {}
    if response.status_code in BUSY:
        return members.get("retryable") is not False
    passing = members.get("retryable") is True or members.get("code") == IN_FLIGHT
    return response.status_code == HTTPStatus.CONFLICT and passing
