"""
A start: the body of POST /v1/{project}/runs, read whole or refused.

    {"agent": "triage", "input": {…}, "priority": 5, "delay": "30s", "deadline": "1h",
     "unique": "order-17", "concurrency_key": "customer-7"}

Instead of `unique`, which finds the run that is there, `correlation` tells it: where the agent
joins, the start is a signal to the live run of that key.

Durations are written as in semel.toml: a number and its unit. A start says its agent itself, so
reading it needs no configured source. The command line reads what it is told with the same words.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.config import values
from semel.config.settings import AGENT
from semel.core.runs import UNIQUE_CHARS_MAX
from semel.core.text import load_object
from semel.errors import BadConfig, BadRequest
from semel.model import Offer

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Kept with a delivery's headers, so that its body is known for a start when it is read again.
PATH_HEADER = ":path"
DELAY_MAX = timedelta(days=366)

_MEMBERS = (
    *("agent", "input", "priority", "delay", "deadline", "unique", "correlation"),
    "concurrency_key",
)


def read(
    project: str, source: str, body: bytes, *, key: str | None, headers: Mapping[str, str]
) -> Offer:
    """
    The start in *body* as an offer of *source*.

    Args:
        headers: As `channel.kept` leaves them.

    Raises:
        BadRequest: no JSON object, an unknown member, or a value that is none.
    """
    told = load_object(body)
    unknown = sorted(set(told) - set(_MEMBERS))
    if unknown:
        raise BadRequest(f"unknown member {unknown[0]!r}: there are {', '.join(_MEMBERS)}")
    agent, priority = told.get("agent"), told.get("priority", 5)
    if not isinstance(agent, str) or not AGENT.fullmatch(agent):
        raise BadRequest("agent is missing or no agent's name: 1 to 128 of A-Z, a-z, 0-9, _.-")
    if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= 9:  # noqa: PLR2004
        raise BadRequest("priority is a whole number from 0 (last) to 9 (first)")
    delay, deadline = times(told)
    unique = unique_key(told.get("unique"))
    correlation = unique_key(told.get("correlation"), name="correlation")
    if unique is not None and correlation is not None:
        raise BadRequest(
            "unique and correlation: a live run is either found or told; write one of them"
        )
    return Offer(
        source=source,
        channel="api",
        id=key,
        agent=agent,
        input=told.get("input"),
        priority=priority,
        delay=delay,
        deadline=deadline,
        unique=unique,
        correlation=correlation,
        concurrency_key=unique_key(told.get("concurrency_key"), name="concurrency_key"),
        compare=key is not None,
        body=body,
        headers={**headers, PATH_HEADER: f"/v1/{project}/runs"},
    )


def times(told: Mapping[str, Any]) -> tuple[timedelta | None, timedelta | None]:
    """
    The delay and the deadline in *told*, both from now.

    Raises:
        BadRequest: one is none, or nothing could be done between them.
    """
    delay, deadline = _span("delay", told), _span("deadline", told)
    if delay is not None and deadline is not None and deadline <= delay:
        raise BadRequest(
            f"deadline {values.shown(deadline)} is not after delay {values.shown(delay)}: both"
            " count from now, so the run would fail before it may start"
        )
    return delay, deadline


def unique_key(told: Any, *, name: str = "unique") -> str | None:
    """
    *told* as what one live run of an agent may have, or be called by.

    Raises:
        BadRequest: it is none.
    """
    if told is None:
        return None
    if not (isinstance(told, str) and told.isprintable() and 0 < len(told) <= UNIQUE_CHARS_MAX):
        raise BadRequest(f"{name} is a text of 1 to {UNIQUE_CHARS_MAX} printable characters")
    return told


def _span(name: str, told: Mapping[str, Any]) -> timedelta | None:
    if told.get(name) is None:
        return None
    try:
        span: timedelta = values.read(name, "timedelta", told[name])
    except BadConfig as bad:
        raise BadRequest(str(bad)) from None
    except OverflowError:
        span = timedelta.max
    if not timedelta(0) < span <= DELAY_MAX:
        raise BadRequest(f"{name} is more than 0 and at most {values.shown(DELAY_MAX)}")
    return span
