"""
Flow: how often runs of an agent are claimed, and how many of one key run at once.

What a program or an operator writes is read here, whole or refused; the SQL counts
(sql/functions/rates.sql and keys.sql). Nothing here opens a connection or reads a clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from semel.errors import BadRequest

CLAIMS_MAX = 1_000_000
SPAN_MIN = timedelta(milliseconds=1)
SPAN_MAX = timedelta(hours=24)

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_RATE = re.compile(r"([0-9]{1,9})/([0-9]{1,9})(ms|s|m|h|d)")
_PATH = re.compile(r"[^.\s]{1,128}(\.[^.\s]{1,128}){0,7}")


@dataclass(frozen=True, slots=True)
class Rate:
    """So many *claims* in each *span*; as many may come at once after a quiet span."""

    claims: int  # 1 to CLAIMS_MAX
    span: timedelta  # SPAN_MIN to SPAN_MAX

    def __str__(self) -> str:
        """As one writes it."""
        return rate_text(self.claims, self.span.total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What an agent declares beside its concurrency."""

    rate: Rate | None = None  # None: no limit
    per: str | None = None  # where in the input a run's key is; None: only a start says one
    per_limit: int | None = None  # runs of one key at once; None: one


def rate(written: Any) -> Rate:
    """
    The rate that "100/1m" says.

    Raises:
        BadRequest: it says none; the message says how one is written.
    """
    found = _RATE.fullmatch(written) if isinstance(written, str) else None
    if found is None:
        raise BadRequest(
            f"rate {str(written)[:80]!r}: write how many in which time, as 100/1m;"
            " the units are ms, s, m, h and d"
        )
    claims, span = int(found[1]), timedelta(seconds=int(found[2]) * _UNITS[found[3]])
    if not 1 <= claims <= CLAIMS_MAX:
        raise BadRequest(
            f"rate {written!r}: write 1 to {CLAIMS_MAX} in a time;"
            " to have no run claimed, pause the agent (`semel agent pause`)"
        )
    if not SPAN_MIN <= span <= SPAN_MAX:
        raise BadRequest(f"rate {written!r}: the time is 1ms to 24h")
    return Rate(claims, span)


def rate_text(claims: int, seconds: float) -> str:
    """A rate as one writes it, in the largest unit that is whole."""
    milliseconds = round(seconds * 1000)
    for unit in ("d", "h", "m", "s"):
        each = int(_UNITS[unit] * 1000)
        if milliseconds % each == 0:
            return f"{claims}/{milliseconds // each}{unit}"
    return f"{claims}/{milliseconds}ms"


def path(written: Any) -> str:
    """
    A path into an input: members, with dots between them.

    Raises:
        BadRequest: it is none.
    """
    if not isinstance(written, str) or not _PATH.fullmatch(written):
        raise BadRequest(
            f"per={str(written)[:80]!r}: write the members that lead to a text, number or truth of"
            " the input, as customer.id"
        )
    return written
