"""
The guard: which addresses we connect to when a setting, not we, says where.

A name is resolved here and nowhere else, every address it leads to is judged, and the caller
connects to one of those judged: there is no second look-up that could answer otherwise. Public
addresses pass. Whatever else an address is, or wraps, must be allowed by the notifier's settings.

Source: IANA IPv4 and IPv6 special-purpose address registries; RFC 3056 (6to4), RFC 6052 (NAT64).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, TypeAlias

from semel.edges.notifiers.notifier import NotifyRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from semel.config import NotifierSettings
    from semel.config.notifiers import Network

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = "Callable[[str, int], Awaitable[Sequence[str]]]"

#: A name that leads to more is judged by all of them and connected to by these.
ADDRESSES_MAX = 4

_V4 = ipaddress.IPv4Network
_V6 = ipaddress.IPv6Network

#: What `allow_private = true` allows: machines of one's own.
_OWN: tuple[Network, ...] = (
    _V4("10.0.0.0/8"),
    _V4("172.16.0.0/12"),
    _V4("192.168.0.0/16"),
    _V4("100.64.0.0/10"),
    _V4("127.0.0.0/8"),
    _V6("fc00::/7"),
    _V6("::1/128"),
)
#: Here clouds hand out credentials, in networks of one's own or even in public ones.
_METADATA: tuple[Network, ...] = (
    _V4("169.254.169.254/32"),
    _V4("100.100.100.200/32"),
    _V4("168.63.129.16/32"),
    _V4("192.0.0.192/32"),
    _V6("fd00:ec2::254/128"),
    _V6("fd20:ce::254/128"),
)
#: Not public, and nobody's own. Written out, since what Python calls global changed in its patches.
_SPECIAL_V4 = tuple(
    _V4(network)
    for network in (
        "0.0.0.0/8",
        "169.254.0.0/16",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
#: Of IPv6 only this is public, less what follows.
_GLOBAL_V6 = _V6("2000::/3")
_SPECIAL_V6 = (_V6("2001::/23"), _V6("2001:db8::/32"), _V6("3fff::/20"))
_SIX_TO_FOUR = _V6("2002::/16")
_NAT64 = _V6("64:ff9b::/96")


async def resolved(host: str, port: int) -> list[str]:
    """The addresses of *host*, in the order in which the system would try them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Guard:
    """
    Judges addresses for one notifier.

    Args:
        allow: True for networks of one's own, metadata services excepted; or the networks that
            are allowed besides public ones.
    """

    def __init__(
        self, allow: bool | Sequence[Network] = False, resolve: Resolve = resolved
    ) -> None:
        self._allow = allow
        self._resolve = resolve

    @classmethod
    def of(cls, settings: NotifierSettings) -> Guard:
        """The one that a notifier's settings ask for."""
        private = settings.allow_private
        return cls(private if isinstance(private, bool) else settings.networks)

    async def addresses(self, host: str, port: int) -> list[str]:
        """
        Where to connect for *host*: judged, at most ADDRESSES_MAX of them.

        Raises:
            NotifyRefused: one of its addresses is not allowed; a name that leads to a forbidden
                place as well is not connected to at all.
            OSError: it has no address, or nobody could say.
        """
        found = list(await self._resolve(host, port))
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        for each in found:
            if not self.allows(each):
                raise NotifyRefused(
                    f"{host} leads to {each}, which is not public. If that is right, add"
                    f' allow_private = ["{_plain(ipaddress.ip_address(each))}"] to the notifier'
                )
        return found[:ADDRESSES_MAX]

    def allows(self, address: str) -> bool:
        """Whether *address* may be connected to."""
        found = _plain(ipaddress.ip_address(address))
        if isinstance(self._allow, bool):
            own = self._allow and _in(found, _OWN) and not _in(found, _METADATA)
            return own or _is_public(found)
        return _in(found, self._allow) or _is_public(found)


def _plain(address: Address) -> Address:
    """The address that is reached in the end: what a mapped, 6to4 or NAT64 address wraps."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _SIX_TO_FOUR:
        return ipaddress.IPv4Address((int(address) >> 80) & 0xFFFFFFFF)
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_public(address: Address) -> bool:
    if _in(address, _METADATA):
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return not _in(address, _SPECIAL_V4) and not _in(address, _OWN)
    return address.scope_id is None and address in _GLOBAL_V6 and not _in(address, _SPECIAL_V6)


def _in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == each.version and address in each for each in networks)
