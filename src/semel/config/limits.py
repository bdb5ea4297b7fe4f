"""
Limits of a source: from where it may be reached, how often, and how long it may be silent.

All are off unless they are set. An address is one of a network in CIDR form, v4 or v6.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from semel.config import values
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.config.settings import Source

Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"

NETWORKS_MAX = 1000
RATE_COUNT_MAX = 1_000_000
RATE_PER_MAX = timedelta(days=1)
#: Ingresses write down every ten seconds which sources they heard of.
SILENT_MIN = timedelta(minutes=1)
SILENT_MAX = timedelta(days=366)

_RATE = re.compile(r"([0-9]{1,9}) */ *(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many requests at once, and as many again within each *per*."""

    count: int
    per: timedelta

    def shown(self) -> str:
        """As it is written in the file."""
        return f"{self.count}/{values.shown(self.per)}"


@lru_cache(maxsize=1024)
def networks(told: tuple[str, ...]) -> tuple[Network, ...]:
    """The networks that *told* names; each was checked."""
    return tuple(ipaddress.ip_network(each) for each in told)


def check_limits(at: str, source: Source) -> None:
    """
    Refuse limits that are none, or that nothing of the source would heed.

    Raises:
        BadConfig: naming the setting and the mend.
    """
    check_networks(f"{at} allow", source.allow)
    if source.channel == "telegram-poll" and (source.allow or source.rate):
        raise BadConfig(f"{at} allow and rate: nobody sends to it, it asks; leave them out")
    if source.silent_after is not None:
        values.within(f"{at} silent_after", source.silent_after, SILENT_MIN, SILENT_MAX)


def check_networks(name: str, told: Sequence[str]) -> None:
    """
    Refuse what is no network.

    Raises:
        BadConfig: naming the setting *name* and the mend.
    """
    if len(told) > NETWORKS_MAX:
        raise BadConfig(f"{name} has {len(told)} networks: {NETWORKS_MAX} at most")
    for each in told:
        try:
            network = ipaddress.ip_network(each)
        except ValueError as bad:
            try:
                meant = f": write {ipaddress.ip_network(each, strict=False)}"
            except ValueError:
                meant = f" ({bad}): write one as in 203.0.113.0/24 or 2001:db8::/32"
            raise BadConfig(f"{name}: {each[:80]!r} is no network{meant}") from None
        mapped = getattr(network.network_address, "ipv4_mapped", None)
        if mapped is not None:
            raise BadConfig(
                f"{name}: {each[:80]!r} is a mapped IPv4 address: write it as IPv4, as in"
                f" {mapped}/{max(0, network.prefixlen - 96)}"
            )


def read_rate(at: str, settings: dict[str, Any]) -> dict[str, Rate]:
    """
    The setting `rate`, such as "100/1m", taken out of *settings*, as a Source has it.

    Raises:
        BadConfig: naming the setting and what it may be.
    """
    if "rate" not in settings:
        return {}
    name, told = f"{at} rate", settings.pop("rate")
    found = _RATE.fullmatch(told) if isinstance(told, str) else None
    if found is None:
        raise BadConfig(f'{name} is {told!r}: write requests and a time, as in "100/1m"')
    rate = Rate(count=int(found[1]), per=values.read(name, "timedelta", found[2]))
    values.within(f"{name} (requests)", rate.count, 1, RATE_COUNT_MAX)
    values.within(f"{name} (time)", rate.per, timedelta(seconds=1), RATE_PER_MAX)
    return {"rate": rate}
