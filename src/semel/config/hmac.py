"""
HMAC settings: how a sender without a channel of its own signs, and where its ids are.

A place is written `header:NAME`, or `body:/a/b`, a JSON pointer into the body. What is signed is
a template of {body} and, where the sender signs them, {id} and {timestamp}.

Source: RFC 6901 for pointers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from semel.config.values import within
from semel.errors import BadConfig

Algorithm = Literal["sha256", "sha384", "sha512", "sha1"]
Encoding = Literal["hex", "base64", "base64url"]
KeyForm = Literal["text", "hex", "base64"]
TimeUnit = Literal["s", "ms"]

#: The id of an event whose sender gives none: the digest of what it says.
CONTENT = "content"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_PLACE = re.compile(r"header:[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}|body:(/([^~/]|~[01])*)+")
_PART = re.compile(r"\{(body|id|timestamp)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HmacSettings:
    """How a source of channel hmac is verified and read."""

    source: str  # whose they are
    header: str = ""  # of the signature; required
    prefix: str = ""  # what stands before the signature, such as sha256=
    algorithm: Algorithm = "sha256"
    encoding: Encoding = "hex"  # of the signature
    key: KeyForm = "text"  # how the secret is written
    signed: str = "{body}"  # the bytes that are signed
    timestamp: str | None = None  # a place, header:NAME; it is in what is signed
    timestamp_unit: TimeUnit = "s"
    window: timedelta = timedelta(minutes=5)  # of the timestamp, in both directions
    id: str = CONTENT  # a place, or content
    event: str | None = None  # a place: the kind of the event
    correlation: str | None = None  # a place: what the event belongs to

    def __post_init__(self) -> None:
        at = f"[sources.{self.source}.hmac]"
        if not _HEADER.fullmatch(self.header):
            raise BadConfig(
                f"{at} header is {self.header[:80]!r}: name the header of the signature, as in"
                ' header = "X-Signature"'
            )
        for key in ("id", "event", "correlation", "timestamp"):
            place = getattr(self, key)
            if place is None or (key == "id" and place == CONTENT):
                continue
            if not _PLACE.fullmatch(place):
                more = ' or "content"' if key == "id" else ""
                raise BadConfig(
                    f'{at} {key} is {place[:80]!r}: write "header:NAME", or "body:/a/b" for'
                    f" member b of member a of the body{more}"
                )
        within(f"{at} window", self.window, timedelta(seconds=1), timedelta(days=1))
        parts = _PART.findall(self.signed)
        if parts.count("body") != 1 or "{" in _PART.sub("", self.signed):
            raise BadConfig(
                f"{at} signed is {self.signed[:80]!r}: what is signed has {{body}} once, and may"
                " have {id} and {timestamp}"
            )
        if (self.timestamp is not None) != ("timestamp" in parts):
            raise BadConfig(
                f"{at} timestamp and {{timestamp}} in signed go together: one that is not signed"
                " proves nothing"
            )
        if self.timestamp is not None and not self.timestamp.startswith("header:"):
            raise BadConfig(f'{at} timestamp is {self.timestamp[:80]!r}: write "header:NAME"')
        if "id" in parts and not self.id.startswith("header:"):
            raise BadConfig(
                f'{at} signed has {{id}}: say which header it is in, as in id = "header:NAME"'
            )

    @property
    def parts(self) -> list[str]:
        """What is signed, cut at its parts: text, name, text, name, ..., text."""
        return _PART.split(self.signed)

    @property
    def kept(self) -> list[str]:
        """The headers that say what came: they are kept with a delivery, in lower case."""
        places = (self.id, self.event, self.correlation, self.timestamp)
        named = (each.partition(":") for each in places if each is not None)
        return [name.lower() for kind, _, name in named if kind == "header"]
