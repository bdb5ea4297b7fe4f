"""
Patience: how often, how long apart and until when a request is sent.

Pauses grow and are drawn from their whole range (full jitter), so that clients which failed
together do not come back together. What the server asks for in Retry-After comes first; the
drawn pause is added to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

#: Beyond this many digits of seconds nobody waits; int() of thousands would not be free.
DIGITS_MAX = 9


@dataclass(frozen=True, kw_only=True)
class Patience:
    """
    How long a client goes on.

    Args:
        tries: At most so many, the first one included.
        first: Seconds that the first pause is at most; each next one twice as much.
        longest: Seconds that a pause is at most, but for what Retry-After asks.
        deadline: Seconds for the whole action, with all its tries and pauses. A pause that would
            pass it is not begun: what the last try said is the answer.

    Raises:
        ValueError: a value that no client could follow.
    """

    tries: int = 8
    first: float = 0.2
    longest: float = 10.0
    deadline: float = 60.0

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ValueError(f"tries is {self.tries}: at least 1, the first one included")
        for name in ("first", "longest", "deadline"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"{name} is {getattr(self, name)}: a number of seconds above 0"
                )

    def pause(self, tries: int, asked: float | None, chance: float) -> float:
        """
        Seconds to wait after *tries* tries.

        Args:
            tries: Made so far, at least 1.
            asked: Seconds of Retry-After.
            chance: From 0 to 1, drawn for this pause.
        """
        doublings = min(tries - 1, 62)  # beyond, a float would overflow
        return (asked or 0.0) + chance * min(self.longest, self.first * 2.0**doublings)


def retry_after(value: str | None, date: str | None, now: float) -> float | None:
    """
    Seconds that a Retry-After asks for, at least 0; None where it is missing or unreadable.

    Args:
        value: The header: seconds, or an HTTP date.
        date: The answer's own Date, which a date is counted from: clocks differ.
        now: Unix seconds, where it has none.

    Source: RFC 9110, 10.2.3.
    """
    value = (value or "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:DIGITS_MAX]) if len(value) <= DIGITS_MAX else float("inf")
    then = _moment(value)
    if then is None:
        return None
    since = _moment(date or "")
    return max(0.0, then - (now if since is None else since))


def _moment(date: str) -> float | None:
    """Unix seconds of an HTTP date."""
    try:
        then = parsedate_to_datetime(date)
        return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
