"""
Routing: which agent an event is for, and that no agent is for it.

The settings decide, and say why; see `semel.config.routing`. What no agent is for is `ignored`:
kept with its id and its bytes, so that a replay under other settings still finds it, and no
dedupe row.

Alerts are each routed by themselves: a notification's common labels change while its group
grows, an alert's never do. What only the type of an alert keeps from an agent is folded without a
run, or the end of an episode would never be known; what its labels keep from every agent never
was one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from semel.config.routing import pattern
from semel.edges.channel import Reply, reason_of
from semel.edges.pointer import find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.config import Source
    from semel.config.routing import Condition, Route
    from semel.edges.channel import Notification
    from semel.model import Alert, Json, Offer

#: Of so many routes it is said why they do not take an event.
TOLD_MAX = 5
_VALUE_CHARS_MAX = 60


@dataclass(frozen=True, slots=True)
class Chosen:
    """The agent of an event, None for no agent, and why."""

    agent: str | None
    why: str
    by_type: bool = False  # some agent would be for it, were it of another type


def choose(source: Source, kind: str | None, told: Json) -> Chosen:
    """Whose an event of type *kind* is that says *told*; the first route that takes it wins."""
    if not _takes(source, kind, told):
        fault, by_type = _fault(source, kind, told)
        return Chosen(None, f"the source does not take it: {fault}", by_type)
    for nth, route in enumerate(source.route, 1):
        if _takes(route, kind, told):
            return Chosen(route.agent, f"route {nth} leads to {route.agent}")
    if source.agent is not None:
        no_route = "no route takes it, so it is for" if source.route else "it is for"
        return Chosen(source.agent, f"{no_route} the source's agent {source.agent}")
    faults = [_fault(route, kind, told) for route in source.route]
    said = [f"route {nth}: {fault}" for nth, (fault, _) in enumerate(faults[:TOLD_MAX], 1)]
    more = f"; and {len(faults) - TOLD_MAX} more" if len(faults) > TOLD_MAX else ""
    by_type = any(only_type for _, only_type in faults)
    return Chosen(None, f"no route takes it: {'; '.join(said)}{more}", by_type)


def routed(offers: Sequence[Offer], source: Source) -> list[Offer]:
    """*offers* of *source*, each with its agent, or ignored."""
    if not source.is_routed:
        return list(offers)
    return [offer if offer.verdict else _routed(offer, source) for offer in offers]


def _routed(offer: Offer, source: Source) -> Offer:
    chosen = choose(source, offer.kind, offer.input)
    if chosen.agent is None:
        return replace(offer, agent=None, verdict="ignored", reason=reason_of(chosen.why))
    before = "no identity was given" if offer.id is None else "first sighting of this id"
    return replace(offer, agent=chosen.agent, reason=reason_of(f"{before}; {chosen.why}"))


def reply_routed(reply: Reply, source: Source) -> Reply:
    """*reply* with its offers routed."""
    if not source.is_routed:
        return reply
    return replace(reply, offers=tuple(routed(reply.offers, source)))


def parted(
    notification: Notification, source: Source
) -> tuple[list[tuple[Source, Notification]], str | None]:
    """
    *notification* of *source* in parts, each with the source as it is for one agent.

    Besides, why some of its alerts are for none and in no part; None where there are none. What is
    unusable stays with the first part.
    """
    if not source.is_routed:
        return [(source, notification)], None
    parts: dict[str | None, list[Alert]] = {}
    left: list[str] = []
    for alert in notification.alerts:
        chosen = choose(source, alert.status, {**notification.envelope, **alert.alert})
        if chosen.agent is None and not chosen.by_type:
            left.append(f"alert {alert.fingerprint}: {chosen.why}")
        else:
            parts.setdefault(chosen.agent, []).append(alert)
    found = [
        (
            _of_agent(source, agent),
            replace(notification, alerts=alerts, unusable=None if n else notification.unusable),
        )
        for n, (agent, alerts) in enumerate(parts.items())
    ]
    more = f"; and {len(left) - TOLD_MAX} more alerts" if len(left) > TOLD_MAX else ""
    return found, reason_of(f"{'; '.join(left[:TOLD_MAX])}{more}") if left else None


@lru_cache(maxsize=256)
def _of_agent(source: Source, agent: str | None) -> Source:
    return replace(source, agent=agent)


def _takes(filters: Source | Route, kind: str | None, told: Json) -> bool:
    if filters.events and not any(
        pattern(each).fullmatch(kind or "") for each in filters.events
    ):
        return False
    return all(_is_met(one, find(told, one.path)) for one in filters.when)


def _is_met(condition: Condition, value: Json) -> bool:
    if condition.prefix is not None:
        return isinstance(value, str) and value.startswith(condition.prefix)
    # True is 1 to Python, and not to whoever wrote the setting.
    is_truth = isinstance(value, bool)
    return any(
        value == each and isinstance(each, bool) == is_truth for each in condition.values
    )


def _fault(filters: Source | Route, kind: str | None, told: Json) -> tuple[str, bool]:
    """Why *filters* do not take an event, and whether its type is all that is wrong."""
    for condition in filters.when:
        value = find(told, condition.path)
        if not _is_met(condition, value):
            said = f"{condition.path} is {_said(value)}"
            if condition.prefix is not None:
                return f"{said} and does not begin with {condition.prefix!r}", False
            wanted = " or ".join(map(_said, condition.values[:TOLD_MAX]))
            return f"{said}, not {wanted}", False
    named = f"its type {kind[:_VALUE_CHARS_MAX]!r}" if kind else "it tells no type, which"
    return f"{named} is none of {', '.join(filters.events[:TOLD_MAX])}", True


def _said(value: Json) -> str:
    match value:
        case None:
            return "nothing"
        case dict() | list():
            return "no plain value"
        case bool():
            return str(value).lower()
        case _:
            return repr(value)[:_VALUE_CHARS_MAX]
