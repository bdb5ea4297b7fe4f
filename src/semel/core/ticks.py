"""
Ticks: the moments of a cron expression or an interval, and which of them to fire now.

Pure: a spec and a moment in, moments out, so every process comes to the same ones. The cron
library is cronsim; one rule is added to it: a tick is later than the one before, so two times that
a changed clock makes one moment are one tick.

Local times follow Debian's cron. Of an expression of five fields whose minute and hour do not begin
with a star, a time that a spring change leaps over is moved to the first minute after the leap, and
one that an autumn change repeats comes the first time only. All other expressions are matched
against the clock on the wall as time goes by: what is leapt over does not come, what is repeated
comes twice.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from semel.errors import BadSchedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semel.core.schedule_spec import Spec

#: Intervals are counted from here, so that all processes agree.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: What is asked of an expression as such is asked from here on.
ANY_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
#: A tick that is later than this is missed.
MISSED_AFTER = timedelta(minutes=1)
#: Ticks that one plan looks at, and those that it fires: the rest follows at once.
LOOKED_MAX = 10_000
FIRED_MAX = 100
CRON_CHARS_MAX = 250

_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
#: Files beside the zones, and zones that count leap seconds.
_NO_ZONES = ("posix/", "right/", "localtime", "posixrules", "Factory", "leapseconds")
_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a look at a schedule comes to."""

    fire: tuple[datetime, ...]  # oldest first
    missed: int  # ticks that are passed over
    tick_at: datetime  # the next one
    look_at: datetime  # when to look again: its tick with its jitter, or at once


def zone_of(name: Any) -> ZoneInfo:
    """
    The time zone *name*.

    Raises:
        BadSchedule: there is none of this name on this machine.
    """
    fitting = isinstance(name, str) and len(name) < CRON_CHARS_MAX and _ZONE.fullmatch(name)
    if fitting and not name.startswith(_NO_ZONES):
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise BadSchedule(
        f"timezone is {str(name)[:80]!r}: write one of IANA's, as in Asia/Taipei; where this"
        " machine has none at all, pip install tzdata"
    )


def ticks(spec: Spec, after: datetime) -> Iterator[datetime]:
    """
    The ticks later than *after*, each later than the one before, in UTC; without end.

    Raises:
        BadSchedule: the expression never comes, or the cron library is not installed.
    """
    if spec.every is not None:
        return _every(spec.every, after)
    return _cron(spec.cron or "", zone_of(spec.timezone), after)


def shortest(cron: str, zone: ZoneInfo, *, of: int) -> timedelta:
    """
    The shortest distance between two of *of* ticks of *cron*, those since 2026.

    Raises:
        BadSchedule: it is no expression, or never comes.
    """
    some = islice(_cron(cron, zone, ANY_MOMENT), of)
    return min(second - first for first, second in pairwise(some))


def plan(
    spec: Spec,
    *,
    seed: str,
    now: datetime,
    tick_at: datetime | None,
    after: datetime,
) -> Plan:
    """
    Which ticks to fire at *now*, by the policy of *spec*, and which one comes next.

    Args:
        seed: What tells the jitter of this schedule from another's.
        tick_at: The next tick, as the last plan said; None: the first one later than *after*.
    """
    coming = chain([tick_at], ticks(spec, tick_at)) if tick_at else ticks(spec, after)
    came: list[datetime] = []
    for tick in coming:
        due = tick + delay(spec, seed, tick) <= now
        if not due or len(came) == LOOKED_MAX:
            break
        came.append(tick)
    kept = {"none": 0, "last": 1, "all": spec.catch_up_max}[spec.catch_up]
    if due:
        # All but the newest of these are passed over whatever follows: then look again. Ticks are
        # a second apart, so what is not missed yet is among those that stay.
        stay = max(kept, FIRED_MAX)
        return Plan(fire=(), missed=LOOKED_MAX - stay, tick_at=came[-stay], look_at=now)
    late = [t for t in came if t + delay(spec, seed, t) < now - MISSED_AFTER]
    timely = came[len(late) :]
    if spec.catch_up == "last" and timely:
        kept = 0  # a tick that is on time stands for those before it
    fire = (*late[len(late) - min(kept, len(late)) :], *timely)
    missed = len(came) - len(fire)
    if len(fire) > FIRED_MAX:
        return Plan(fire=fire[:FIRED_MAX], missed=missed, tick_at=fire[FIRED_MAX], look_at=now)
    look_at = tick + delay(spec, seed, tick)
    return Plan(fire=fire, missed=missed, tick_at=tick, look_at=look_at)


def delay(spec: Spec, seed: str, tick: datetime) -> timedelta:
    """How much later than *tick* its run starts: below the jitter, the same in every process."""
    if not spec.jitter:
        return timedelta(0)
    drawn = hashlib.sha256(f"{seed}@{tick.timestamp():.0f}".encode()).digest()
    return spec.jitter * (int.from_bytes(drawn[:6]) / 2**48)


def _every(every: timedelta, after: datetime) -> Iterator[datetime]:
    tick = EPOCH + ((after - EPOCH) // every + 1) * every
    while True:
        yield tick
        tick += every


def _cron(expression: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    try:
        from cronsim import CronSim, CronSimError  # noqa: PLC0415 - an extra
    except ImportError:
        raise BadSchedule(
            "a cron expression needs the library cronsim: pip install 'semel[schedules]'"
        ) from None
    if len(expression) > CRON_CHARS_MAX or not expression.isascii():
        raise BadSchedule(f"cron is longer than {CRON_CHARS_MAX} characters, or not ASCII")
    if word := _WORDS.get(expression.strip().lower()):
        raise BadSchedule(f'cron is {expression!r}: write "{word}"')
    # With UTC the library has no clock changes to mind.
    local = after.astimezone(UTC if zone.key == "UTC" else zone)
    last = after
    try:
        found = CronSim(expression, local)
        for tick in found:
            moment = tick.astimezone(UTC)
            if moment > last:
                yield moment
                last = moment
    except (CronSimError, AssertionError, ValueError) as bad:
        raise BadSchedule(
            f"cron is {expression!r}: {str(bad) or 'no expression'}; write five fields -"
            " minute, hour, day, month, weekday - or six that begin with seconds"
        ) from None
    raise BadSchedule(f"cron is {expression!r}, which never comes: no year has such a day")
