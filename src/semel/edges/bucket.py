"""
Bucket: how often one address may do something that costs us and helps nobody.

In memory, per process, bounded: the addresses that were quiet longest are forgotten first. It
decides nothing but whether it was too often.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict

#: Addresses that are remembered; an IPv6 network of 64 bits counts as one.
ADDRESSES_MAX = 10_000


class Buckets:
    """Each address may do *burst* at once, and one more every *seconds*."""

    def __init__(self, *, burst: int, seconds: float) -> None:
        self._burst = burst
        self._seconds = seconds
        self._full_at: OrderedDict[str, float] = OrderedDict()  # when each has its burst again

    def spend(self, address: str | None) -> float:
        """Take one; answers 0.0, or the seconds to wait where nothing is left."""
        now = time.monotonic()
        who = _network(address)
        full_at = max(now, self._full_at.pop(who, now)) + self._seconds
        wait = full_at - now - self._burst * self._seconds
        self._full_at[who] = full_at if wait <= 0 else full_at - self._seconds
        while len(self._full_at) > ADDRESSES_MAX:
            self._full_at.popitem(last=False)
        return max(0.0, wait)


def _network(address: str | None) -> str:
    try:
        ip = ipaddress.ip_address(address or "")
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)
