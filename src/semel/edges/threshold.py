"""
Threshold: whether a request may come in at all, before it is read, and whether too many did.

Addresses are asked before anything of a request is read. The rate is asked after it was proved
authentic and before anything is written: strangers use up nobody's rate, though each costs the
price of its signature. A bucket is of one source and one process; several ingresses of a
source let through as many times its rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.config.limits import networks
from semel.edges import address
from semel.edges.bucket import Buckets
from semel.errors import AddressRefused, SourceTooOften

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Scope

    from semel.config import Server, Source


class Threshold:
    """The limits of one source."""

    def __init__(self, source: Source, server: Server) -> None:
        self._name = source.name
        self._allowed = networks(source.allow)
        self._trusted = networks(server.trusted_proxies)
        self._rate = source.rate
        self._bucket: Buckets | None = None
        if source.rate is not None:
            seconds = source.rate.per.total_seconds() / source.rate.count
            self._bucket = Buckets(burst=source.rate.count, seconds=seconds)

    def admit(self, scope: Scope) -> None:
        """
        Refuse a sender whose address is in none of the networks.

        Raises:
            AddressRefused: so, or nobody can say what its address is.
        """
        if not self._allowed:
            return
        peer = scope["client"][0] if scope.get("client") else None
        who = address.sender(peer, scope["headers"], self._trusted)
        if who is None or not address.is_within(who, self._allowed):
            raise AddressRefused(
                f"source {self._name} takes nothing from"
                f" {who or 'an address that nobody can tell'}"
            )

    def spend(self) -> None:
        """
        Take one request of the rate.

        Raises:
            SourceTooOften: there is none left; it has the seconds to wait.
        """
        if self._bucket is None or self._rate is None:
            return
        wait = self._bucket.spend(None)
        if wait > 0:
            said = f"source {self._name} takes {self._rate.shown()}, and this is one more"
            raise SourceTooOften(said, wait=wait)


def thresholds(
    sources: Mapping[tuple[str, str], Source], server: Server
) -> dict[tuple[str, str], Threshold]:
    """Those of the *sources* that have limits."""
    return {
        name: Threshold(source, server)
        for name, source in sources.items()
        if source.allow or source.rate
    }
