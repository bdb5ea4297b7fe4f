"""
A URL that we send to: read once, by one parser, into the parts that are connected to.

What another parser might read otherwise is refused: credentials, spaces, backslashes, anything
that is not ASCII. No refusal quotes the URL, since one may hold a secret.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from semel.errors import BadConfig

_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,252}[a-z0-9_.])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """Where to connect, and what to ask for there."""

    scheme: Literal["http", "https"]
    host: str  # a name or an address, in lower case; an IPv6 address without its brackets
    port: int
    target: str = "/"  # path and query

    @property
    def authority(self) -> str:
        """As it stands in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """All of it that may be shown: the rest may hold a secret."""
        return f"{self.scheme}://{self.authority}"

    def at(self, path: str) -> Url:
        """*path*, which begins with a slash, below this one."""
        base = self.target.rstrip("/")
        return Url(scheme=self.scheme, host=self.host, port=self.port, target=base + path)

    @classmethod
    def read(cls, name: str, text: str, *, http: bool = False) -> Url:
        """
        The URL *text*, which the setting *name* gives.

        Args:
            http: Plain http is allowed too.

        Raises:
            BadConfig: it is none, or may be read in two ways.
        """
        if not text.isascii() or not text.isprintable() or set(text) & set(" \\"):
            raise BadConfig(
                f"{name} has a space, a backslash or a character beyond ASCII: write the host in"
                " its xn-- form, and the rest percent-encoded"
            )
        try:
            parts = urlsplit(text)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise BadConfig(
                f"{name} is no URL: write it as in https://host:port/path"
            ) from None
        if parts.scheme == "http" and not http:
            raise BadConfig(
                f"{name} begins with http: write https, or add allow_http = true where nobody"
                " else can listen"
            )
        if parts.scheme not in _PORTS:
            raise BadConfig(f"{name} is no web address: write it as in https://host/path")
        if "@" in parts.netloc:
            raise BadConfig(
                f"{name} has a user or password in it: leave them out, they end in logs"
            )
        if "#" in text:
            raise BadConfig(f"{name} has a #: what follows is never sent, leave it out")
        if port == 0 or not _is_host(host):
            raise BadConfig(f"{name} has no usable host: write it as in https://host:port/path")
        return cls(
            scheme="http" if parts.scheme == "http" else "https",
            host=host,
            port=port or _PORTS[parts.scheme],
            target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        )


def _is_host(host: str) -> bool:
    if ":" not in host:
        return _HOST.fullmatch(host) is not None
    try:
        return ipaddress.IPv6Address(host).scope_id is None
    except ValueError:
        return False
