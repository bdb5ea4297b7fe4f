"""
Addresses: who sent a request, as far as that can be believed.

The other end of the connection is the sender, unless it is a proxy that the settings trust. Of
such a one X-Forwarded-For is read from the right, where the nearest proxy writes: the first
address that is no trusted proxy is the sender, and what stands further left was written by
anybody. A line that is malformed as far as it is read names nobody, and nobody is in no network.
`Forwarded`, `X-Real-IP` and their kin are never read for an address: a proxy that sets one of them
passes the others on as a stranger wrote them. That one is there at all says that a proxy is.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from semel.config.limits import Network

Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"

FORWARDED = b"x-forwarded-for"
#: Hosts of senders that are remembered to be this machine, or not.
HOSTS_MAX = 1024
#: Proxies that are passed through.
HOPS_MAX = 32
_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?|([0-9.]+):[0-9]{1,5}")

#: Who sends these sits between a client and us, or is a browser: it speaks for somebody else.
_BETWEEN = frozenset(
    {
        "cf-connecting-ip",
        "forwarded",
        "origin",
        "sec-fetch-site",
        "true-client-ip",
        "via",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-original-url",
        "x-real-ip",
    }
)
_BETWEEN_PREFIX = "x-forwarded"


def sender(
    peer: str | None, headers: Iterable[tuple[bytes, bytes]], trusted: Sequence[Network]
) -> Address | None:
    """
    The address that a request came from; None where nobody can say.

    Args:
        peer: The other end of the connection.
        headers: As ASGI has them, in the order of their lines.
        trusted: Networks of proxies.
    """
    address = read(peer or "")
    if address is None or not is_within(address, trusted):
        return address
    lines = [value.decode("latin-1") for name, value in headers if name == FORWARDED]
    if not lines:
        return address
    for said in reversed(",".join(lines).rsplit(",", HOPS_MAX)):
        hop = read(said.strip())
        if hop is None or not is_within(hop, trusted):
            return hop
        address = hop
    return address


def read(text: str) -> Address | None:
    """The address in *text*, with or without a port; a mapped IPv4 one as IPv4. None: none."""
    found = _PORT.fullmatch(text)
    if found is not None:
        text = found[1] or found[2]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            address = ipaddress.IPv6Address(int(address))
        return address.ipv4_mapped or address
    return address


def is_within(address: Address, networks: Iterable[Network]) -> bool:
    """Whether *address* is in one of *networks*."""
    return any(address in network for network in networks)


def is_local(client: tuple[str, int] | None, headers: Sequence[tuple[str, str]]) -> bool:
    """Whether a program on this machine sent it, without a proxy or a browser in between."""
    if client is None or not _is_loopback(client[0]):
        return False
    return not any(name in _BETWEEN or name.startswith(_BETWEEN_PREFIX) for name, _ in headers)


@lru_cache(maxsize=HOSTS_MAX)
def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
