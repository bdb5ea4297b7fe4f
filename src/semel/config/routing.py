"""
Routing settings: which events a source takes, and which agent each is for.

    events = ["push", "pull_request*"]               # event types; * is any characters
    when = { "/payload/ref" = "refs/heads/main" }    # a JSON pointer, and what must stand there

A condition is a value, a list of which one must stand there, or { prefix = "..." }; all
conditions of a table must hold. There is nothing to compute in them, so each is decided by one look
and a wrong one is refused at the start. A route that says neither takes everything.

Source: RFC 6901 for pointers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from semel.config.values import known, table
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semel.config.settings import Source

#: What may be written for a condition; a number is a whole one, true and
#: false are int to Python.
Plain: TypeAlias = str | int

#: Channels whose events have no type.
TYPELESS = frozenset({"api"})

ROUTES_MAX = 100
EVENTS_MAX = 100
CONDITIONS_MAX = 20
VALUES_MAX = 100
PATTERN_CHARS_MAX = 200

_POINTER = re.compile(r"(/([^~/]|~[01])*)+")
_KEYS = ("agent", "events", "when")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must stand at one place of an event."""

    path: str  # a JSON pointer into what a run would get as its input
    values: tuple[Plain, ...] = ()  # one of these
    prefix: str | None = None  # or text that begins so

    @property
    def wanted(self) -> Any:
        """What must stand there, as it is written in the file."""
        if self.prefix is not None:
            return {"prefix": self.prefix}
        return list(self.values) if len(self.values) > 1 else self.values[0]

    def shown(self) -> dict[str, Any]:
        """For `semel config`."""
        return {"path": self.path, "is": self.wanted}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """An agent, and the events that are for it."""

    agent: str
    events: tuple[str, ...] = ()  # patterns; none: of every type
    when: tuple[Condition, ...] = ()  # all of them

    def shown(self) -> dict[str, Any]:
        """As it is written in the file."""
        told: dict[str, Any] = {"agent": self.agent}
        if self.events:
            told["events"] = list(self.events)
        if self.when:
            told["when"] = {one.path: one.wanted for one in self.when}
        return told


@lru_cache(maxsize=1024)
def pattern(text: str) -> re.Pattern[str]:
    """
    What the event type pattern *text* covers.

    What stands between two stars is looked for once, from the left, and never again: a type may be
    as long as a body, and to try all places of each would take its square or worse.
    """
    first, *rest = (re.escape(part) for part in text.split("*"))
    if not rest:
        return re.compile(first)
    *between, last = rest
    found = "".join(f"(?>.*?{part})" for part in between if part)
    return re.compile(f"{first}{found}.*{last}", re.DOTALL)


def read_routing(at: str, told: dict[str, Any]) -> dict[str, Any]:
    """
    The settings `events`, `when` and `route`, taken out of *told*, as a Source has them.

    Raises:
        BadConfig: naming the setting and what it may be.
    """
    found: dict[str, Any] = _filter(at, told)
    routes = told.pop("route", None)
    if routes is not None:
        if not isinstance(routes, list) or not 0 < len(routes) <= ROUTES_MAX:
            raise BadConfig(
                f"{at} route is {str(routes)[:80]!r}: write 1 to {ROUTES_MAX} tables, each as"
                f" [[{at.strip('[]')}.route]]"
            )
        found["route"] = tuple(
            _route(f"{at} route {n}", one) for n, one in enumerate(routes, 1)
        )
    elif "agent" not in told:
        raise BadConfig(f"{at} has no agent: add agent = ..., or routes that have one")
    return found


def check_routing(at: str, source: Source) -> None:
    """
    Refuse routes that no event, or no event any more, could take.

    Raises:
        BadConfig: naming the route and the mend.
    """
    told = [*source.events, *(each for route in source.route for each in route.events)]
    if told and source.channel in TYPELESS:
        raise BadConfig(
            f"{at} events: {source.channel} tells no event types; say with when = {{...}} what"
            " must stand in the event"
        )
    if told and source.hmac is not None and source.hmac.event is None:
        raise BadConfig(
            f"{at} events: nothing says where the type of an event is; add event = to its"
            ' hmac = {...}, as in event = "header:X-Event"'
        )
    for n, route in enumerate(source.route, 1):
        if not route.events and not route.when and n < len(source.route):
            raise BadConfig(
                f"{at} route {n} takes everything, so no event reaches route {n + 1}: move it to"
                " the end, or say events or when"
            )


def _route(at: str, told: Any) -> Route:
    values = dict(table(at, told))
    known(at, values, _KEYS)
    agent = values.get("agent")
    if not isinstance(agent, str):
        raise BadConfig(f"{at} has no agent: add agent = ...")
    return Route(agent=agent, **_filter(at, values))


def _filter(at: str, told: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "events" in told:
        found["events"] = _events(at, told.pop("events"))
    if "when" in told:
        conditions = table(f"{at} when", told.pop("when"))
        if not 0 < len(conditions) <= CONDITIONS_MAX:
            raise BadConfig(f"{at} when: 1 to {CONDITIONS_MAX} conditions, or leave it out")
        found["when"] = tuple(_condition(at, *each) for each in conditions.items())
    return found


def _events(at: str, told: Any) -> tuple[str, ...]:
    is_list = isinstance(told, list) and 0 < len(told) <= EVENTS_MAX
    if not is_list or not all(_is_pattern(each) for each in told):
        raise BadConfig(
            f"{at} events is {str(told)[:80]!r}: write 1 to {EVENTS_MAX} event types, as in"
            ' ["push", "issue*"], or leave it out'
        )
    return tuple(told)


def _is_pattern(told: Any) -> bool:
    return isinstance(told, str) and told.isprintable() and 0 < len(told) <= PATTERN_CHARS_MAX


def _condition(at: str, path: str, told: Any) -> Condition:
    where = f"{at} when {path[:80]!r}"
    if not _POINTER.fullmatch(path):
        raise BadConfig(
            f'{where}: write a JSON pointer, as in "/payload/action", of what a run gets as input'
        )
    if isinstance(told, dict):
        prefix = _prefix(where, told)
        return Condition(path=path, prefix=prefix)
    values = told if isinstance(told, list) else [told]
    is_few = 0 < len(values) <= VALUES_MAX
    if not is_few or not all(isinstance(each, str | int) for each in values):
        raise BadConfig(
            f"{where} is {str(told)[:80]!r}: write a text, a whole number, true or false, a list"
            f' of 1 to {VALUES_MAX} of these, or {{ prefix = "..." }}'
        )
    return Condition(path=path, values=tuple(values))


def _prefix(where: str, told: Mapping[str, Any]) -> str:
    known(where, told, ("prefix",))
    prefix = told.get("prefix")
    if not isinstance(prefix, str) or not prefix:
        raise BadConfig(f"{where}: prefix is a text, and not an empty one")
    return prefix
