"""
Schedule spec: when a schedule comes, and what it starts then.

    cron or every, in a timezone ──> ticks ──at tick + jitter──> a run of agent with input

A spec that was made is possible: whoever makes one, in code or at the command line, is told here
what is wrong, before anything is kept. Nothing here reads a clock or the database.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

from semel.config import values
from semel.core import ticks
from semel.core.text import dump
from semel.errors import BadConfig, BadSchedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semel.model import Json

CatchUp = Literal["none", "last", "all"]
Overlap = Literal["allow", "skip"]

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_AGENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

EVERY_MIN = timedelta(seconds=1)
EVERY_MAX = timedelta(days=3660)
INPUT_BYTES_MAX = 64 * 1024
#: How many missed ticks `catch_up="all"` makes up for, unless it says so, and at most.
CATCH_UP_MAX = 100
CATCH_UP_LIMIT = 1000
#: The member of a run's input that says which tick it is.
TICK_MEMBER = "schedule"
#: A schedule's jitter is shorter than the shortest distance of so many of its ticks.
_TICKS_LOOKED_AT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a schedule says. `of_told` makes one that is possible."""

    cron: str | None = None  # five fields, or six that begin with seconds
    every: timedelta | None = None  # whole seconds, counted from 1970-01-01 00:00 UTC
    timezone: str = "UTC"  # IANA's name; only cron minds it
    agent: str = ""
    input: Mapping[str, Json] = field(default_factory=dict)  # without a member `schedule`
    priority: int = 5  # 0 (last) to 9 (first)
    catch_up: CatchUp = "last"  # which missed ticks still start a run
    catch_up_max: int = CATCH_UP_MAX  # all: the newest so many
    overlap: Overlap = "allow"  # skip: no run while the last one is live
    jitter: timedelta = timedelta(0)  # a tick's run starts up to this much later

    def stored(self) -> dict[str, Json]:
        """As the database has it: durations are seconds."""
        return {
            "cron": self.cron,
            "every": None if self.every is None else int(self.every.total_seconds()),
            "timezone": self.timezone,
            "agent": self.agent,
            "input": dict(self.input),
            "priority": self.priority,
            "catch_up": self.catch_up,
            "catch_up_max": self.catch_up_max,
            "overlap": self.overlap,
            "jitter": self.jitter.total_seconds(),
        }

    def text(self) -> str:
        """As the SQL takes it."""
        return dump(self.stored())


def of_stored(stored: Mapping[str, Any]) -> Spec:
    """The spec that `Spec.stored` wrote; it was checked then."""
    every = stored["every"]
    told: dict[str, Any] = {
        **stored,
        "every": None if every is None else timedelta(seconds=every),
        "jitter": timedelta(seconds=stored["jitter"]),
    }
    return Spec(**told)


def of_told(told: Mapping[str, Any]) -> Spec:
    """
    The spec that a program or a person tells: durations also as text, as in "15m".

    Args:
        told: Members of Spec by name; None is what is not told.

    Raises:
        BadSchedule: something of it cannot be; the message names it.
    """
    read = {name: value for name, value in told.items() if value is not None}
    for name in ("every", "jitter"):
        if isinstance(read.get(name), str):
            try:
                read[name] = values.read(name, "timedelta", read[name])
            except (BadConfig, OverflowError) as bad:
                raise BadSchedule(f"{name} is {read[name]!r}: {bad}") from None
    spec = Spec(**read)
    _check_words(spec)
    _check_input(spec.input)
    _check_ticks(spec)
    return spec


def check_name(name: Any) -> str:
    """
    *name*, if it can be a schedule's.

    Raises:
        BadSchedule: it cannot.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadSchedule(
            f"{str(name)[:150]!r} is no schedule: 1 to 128 of A-Z, a-z, 0-9, _, . and -"
        )
    return name


def _check_words(spec: Spec) -> None:
    """Each member is of its kind: a program that nobody type-checks may say anything."""
    for name, kind in (("every", timedelta), ("cron", str), ("agent", str)):
        value = getattr(spec, name)
        if value is not None and not isinstance(value, kind):
            raise BadSchedule(f"{name} is {value!r}: write it in quotes")
    if not isinstance(spec.jitter, timedelta):
        raise BadSchedule(f'jitter is {spec.jitter!r}: write how long, as in "30s"')
    if not _AGENT.fullmatch(spec.agent):
        raise BadSchedule(
            f"agent is {str(spec.agent)[:150]!r}: 1 to 128 of A-Z, a-z, 0-9, _, . and -"
        )
    if spec.agent.startswith("semel."):
        raise BadSchedule(f"agent {spec.agent}: those that begin with semel. are Semel's own")
    for name, words in (("catch_up", CatchUp), ("overlap", Overlap)):
        if getattr(spec, name) not in get_args(words):
            raise BadSchedule(
                f"{name} is {getattr(spec, name)!r}: one of {', '.join(get_args(words))}"
            )
    for name, low, high in (("priority", 0, 9), ("catch_up_max", 1, CATCH_UP_LIMIT)):
        value = getattr(spec, name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise BadSchedule(f"{name} is {value!r}: write a whole number, {low} to {high}")


def _check_ticks(spec: Spec) -> None:
    """They come, and keep their order when each is put off by its jitter."""
    zone = ticks.zone_of(spec.timezone)
    if (spec.cron is None) == (spec.every is None):
        raise BadSchedule('say either cron="0 3 * * *" or every="15m", and not both')
    if spec.every is not None:
        if not EVERY_MIN <= spec.every <= EVERY_MAX or spec.every % EVERY_MIN:
            raise BadSchedule(
                f"every is {_said(spec.every)}: write whole seconds, 1s to {EVERY_MAX.days}d"
            )
        apart = spec.every
    else:
        apart = ticks.shortest(str(spec.cron), zone, of=_TICKS_LOOKED_AT if spec.jitter else 2)
    if not timedelta(0) <= spec.jitter < apart:
        raise BadSchedule(
            f"jitter is {_said(spec.jitter)} and two ticks may be {_said(apart)} apart:"
            " write less than that, so that ticks keep their order"
        )


def _check_input(told: Any) -> None:
    if type(told) is not dict:
        raise BadSchedule(f"input is {type(told).__name__}: a schedule's input is an object")
    if TICK_MEMBER in told:
        raise BadSchedule(
            f"input has a member {TICK_MEMBER!r}: that is where a run finds its tick"
        )
    try:
        text = dump(told)
    except (TypeError, ValueError, RecursionError) as bad:
        raise BadSchedule(f"the input is no JSON: {bad}") from None
    if len(text.encode()) > INPUT_BYTES_MAX:
        raise BadSchedule(f"the input is larger than {INPUT_BYTES_MAX // 1024} KiB")


def _said(span: timedelta) -> str:
    return values.shown(span) if span >= timedelta(0) else f"{span.total_seconds():g}s"
