"""Ticks are those of the clock on the wall, by rules that are written down; of what comes never, it is said."""

import re
from collections.abc import Collection
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.core import ticks
from semel.core.schedule_spec import check_name, of_stored, of_told
from semel.errors import BadSchedule

YEAR = datetime(2026, 1, 1, tzinfo=UTC)
ZONES = ["Europe/Berlin", "Asia/Taipei", "America/New_York"]
MINUTE = timedelta(minutes=1)


def come(cron: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    spec = of_told({"cron": cron, "timezone": zone, "agent": "a"})
    return list(takewhile(lambda tick: tick < until, ticks.ticks(spec, after)))


def local(cron: str, zone: str, day: str) -> list[str]:
    """The ticks of a local day, as hour, minute and distance to UTC."""
    there = ZoneInfo(zone)
    first = datetime.fromisoformat(day).replace(tzinfo=there)
    last = (first.replace(tzinfo=None) + timedelta(days=1)).replace(tzinfo=there)
    found = come(cron, zone, first.astimezone(UTC) - MINUTE, last.astimezone(UTC))
    return [tick.astimezone(there).strftime("%H:%M%z")[:8] for tick in found]


# -- a year, beside another reckoning --------------------------------------------------------


def as_time_goes_by(
    minutes: Collection[int], hours: Collection[int], zone: ZoneInfo
) -> list[datetime]:
    """Each minute of the year, and what the clock on the wall shows then."""
    found = []
    for n in range(365 * 1440):
        moment = YEAR + n * MINUTE
        shown = moment.astimezone(zone)
        if shown.minute in minutes and shown.hour in hours:
            found.append(moment)
    return found


def by_the_calendar(
    minutes: Collection[int], hours: Collection[int], zone: ZoneInfo
) -> list[datetime]:
    """Each time of each day: the first moment that shows it, or the first after what is leapt over."""
    found = set()
    for n in range(-1, 367):
        day = date(2026, 1, 1) + timedelta(days=n)
        for hour in hours:
            for minute in minutes:
                shown = datetime.combine(day, time(hour, minute))
                while shown.replace(tzinfo=zone).astimezone(UTC).astimezone(
                    zone
                ) != shown.replace(tzinfo=zone) or not _is_shown(shown, zone):
                    shown += MINUTE
                found.add(shown.replace(tzinfo=zone, fold=0).astimezone(UTC))
    return sorted(at for at in found if YEAR <= at < YEAR + timedelta(days=365))


def _is_shown(shown: datetime, zone: ZoneInfo) -> bool:
    back = shown.replace(tzinfo=zone).astimezone(UTC).astimezone(zone)
    return back.replace(tzinfo=None) == shown


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    ("cron", "minutes", "hours"),
    [("30 * * * *", {30}, range(24)), ("*/20 2 * * *", {0, 20, 40}, {2})],
)
def test_a_year_of_wildcards_goes_by_the_clock_on_the_wall(
    zone: str, cron: str, minutes: Any, hours: Any
) -> None:
    there = ZoneInfo(zone)
    found = come(cron, zone, YEAR - timedelta(seconds=1), YEAR + timedelta(days=365))

    assert as_time_goes_by(minutes, hours, there) == found


@pytest.mark.parametrize("zone", [*ZONES, "Africa/Cairo", "America/Santiago"])
@pytest.mark.parametrize(
    ("cron", "minutes", "hours"),
    [
        ("30 2 * * *", {30}, {2}),
        ("0 2,3 * * *", {0}, {2, 3}),
        ("30 0 * * *", {30}, {0}),
        ("15,45 1-3 * * *", {15, 45}, {1, 2, 3}),
    ],
)
def test_a_year_of_fixed_times_goes_by_the_calendar(
    zone: str, cron: str, minutes: Any, hours: Any
) -> None:
    found = come(cron, zone, YEAR - timedelta(seconds=1), YEAR + timedelta(days=365))

    assert by_the_calendar(minutes, hours, ZoneInfo(zone)) == found


@pytest.mark.parametrize(
    ("cron", "spring", "autumn"),
    [
        ("30 2 * * *", ["03:00+02"], ["02:30+02"]),
        ("0 2,3 * * *", ["03:00+02"], ["02:00+02", "03:00+01"]),
        ("30 * * * *", ["01:30+01", "03:30+02"], ["01:30+02", "02:30+02", "02:30+01"]),
        ("*/30 2 * * *", [], ["02:00+02", "02:30+02", "02:00+01", "02:30+01"]),
        ("0 30 2 * * *", [], ["02:30+02", "02:30+01"]),
    ],
)
def test_the_days_of_change_are_as_the_page_says(
    cron: str, spring: list[str], autumn: list[str]
) -> None:
    def about_two(day: str) -> list[str]:
        return [at for at in local(cron, "Europe/Berlin", day) if "01:30" <= at[:5] <= "03:30"][
            : max(len(spring), len(autumn))
        ]

    assert spring == about_two("2026-03-29")[: len(spring)]
    assert autumn == about_two("2026-10-25")[: len(autumn)]
    if not spring:
        assert [] == local(cron, "Europe/Berlin", "2026-03-29")


@given(
    st.sampled_from(
        ["30 2 * * *", "*/7 * * * *", "0 2,3 * * *", "15 1-3 * * 0", "0 30 2 * * *"]
    ),
    st.sampled_from([*ZONES, "Australia/Lord_Howe", "America/Santiago"]),
    st.integers(0, 365 * 86_400 - 1),
)
@settings(max_examples=60, deadline=None)
def test_ticks_grow_and_are_the_same_wherever_one_begins(
    cron: str, zone: str, seconds: int
) -> None:
    after = YEAR + timedelta(seconds=seconds)
    spec = of_told({"cron": cron, "timezone": zone, "agent": "a"})

    some = list(islice(ticks.ticks(spec, after), 20))

    assert all(one < other for one, other in pairwise([after, *some]))
    assert some[1:] == list(islice(ticks.ticks(spec, some[0]), 19))


# -- intervals and jitter --------------------------------------------------------------------


def test_an_interval_is_counted_from_one_moment_for_all() -> None:
    spec = of_told({"every": "7m", "agent": "a"})

    tick = next(ticks.ticks(spec, YEAR))

    assert tick > YEAR
    assert timedelta(0) == (tick - ticks.EPOCH) % timedelta(minutes=7)
    assert tick + timedelta(minutes=7) == next(ticks.ticks(spec, tick))


def test_jitter_is_the_same_everywhere_and_keeps_the_order() -> None:
    spec = of_told({"every": "1m", "agent": "a", "jitter": "59s"})
    some = list(islice(ticks.ticks(spec, YEAR), 200))

    put_off = [ticks.delay(spec, "p/s", tick) for tick in some]

    assert put_off == [ticks.delay(spec, "p/s", tick) for tick in some]
    assert put_off != [ticks.delay(spec, "p/other", tick) for tick in some]
    assert all(timedelta(0) <= each < timedelta(seconds=59) for each in put_off)
    assert timedelta(seconds=40) < max(put_off) - min(put_off)
    moments = [tick + later for tick, later in zip(some, put_off, strict=True)]
    assert moments == sorted(moments)


def test_a_spec_comes_back_from_the_database_as_it_went() -> None:
    for told in ({"cron": "0 3 * * 1-5", "timezone": "Asia/Taipei"}, {"every": "90s"}):
        spec = of_told({**told, "agent": "a", "jitter": "1.5s", "input": {"a": [1]}})
        assert spec == of_stored(spec.stored())


# -- what cannot be --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"cron": "61 * * * *"}, "Bad minute"),
        ({"cron": "* * * *"}, "Wrong number of fields"),
        ({"cron": ""}, "Wrong number of fields"),
        ({"cron": "@daily"}, 'write "0 0 * * *"'),
        ({"cron": "@reboot"}, "five fields"),
        ({"cron": "0 0 30 2 *"}, "Bad day-of-month"),
        ({"cron": "0 0 30 2 *,*"}, "Bad day-of-month"),
        ({"cron": "0 0 */31 * MON#5"}, "never comes"),
        ({"cron": "*/0 * * * *"}, "Bad minute"),
        ({"cron": "²/2 * * * *"}, "ASCII"),
        ({"cron": "9" * 300 + " * * * *"}, "longer"),
        ({"cron": 5}, "in quotes"),
        ({"cron": "0 3 * * *", "timezone": "Mars/Olympus"}, "timezone is 'Mars/Olympus'"),
        ({"cron": "0 3 * * *", "timezone": "../etc/passwd"}, "timezone"),
        ({"cron": "0 3 * * *", "timezone": "Europe"}, "timezone"),
        ({"cron": "0 3 * * *", "timezone": "right/UTC"}, "timezone"),
        ({"cron": "0 3 * * *", "timezone": ""}, "timezone"),
        ({"cron": "0 3 * * *", "timezone": 8}, "timezone"),
        ({"cron": "0 3 * * *", "every": "1h"}, "not both"),
        ({}, "not both"),
        ({"every": "0s"}, "every is 0s"),
        ({"every": "500ms"}, "whole seconds"),
        ({"every": "1.5s"}, "whole seconds"),
        ({"every": timedelta(seconds=-60)}, "every is -60s"),
        ({"every": "4000d"}, "3660d"),
        ({"every": "999999999d"}, "every"),
        ({"every": "15"}, "unit"),
        ({"every": 15}, "in quotes"),
        ({"every": "1m", "jitter": "1m"}, "two ticks may be 1m apart"),
        ({"cron": "0,1 0 * * *", "jitter": "2m"}, "two ticks may be 1m apart"),
        ({"every": "1m", "jitter": timedelta(seconds=-1)}, "jitter is -1s"),
        ({"every": "1m", "jitter": 3}, "how long"),
        ({"every": "1m", "agent": "a b"}, "agent"),
        ({"every": "1m", "agent": "semel.tool"}, "Semel's own"),
        ({"every": "1m", "priority": 10}, "priority"),
        ({"every": "1m", "priority": True}, "priority"),
        ({"every": "1m", "catch_up": "some"}, "one of none, last, all"),
        ({"every": "1m", "catch_up_max": 0}, "catch_up_max"),
        ({"every": "1m", "overlap": "queue"}, "one of allow, skip"),
        ({"every": "1m", "input": [1]}, "an object"),
        ({"every": "1m", "input": {"schedule": 1}}, "schedule"),
        ({"every": "1m", "input": {"a": float("nan")}}, "no JSON"),
        ({"every": "1m", "input": {"a": "x" * 70_000}}, "64 KiB"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(told: dict[str, Any], says: str) -> None:
    with pytest.raises(BadSchedule, match=re.escape(says)):
        of_told({"agent": "a", **told})


@pytest.mark.parametrize(
    "cron", ["0 0 29 2 *", "0 0 L * *", "0 0 * * 5L", "0 0 LW * *", "5 0 * JAN,jul mon#1"]
)
def test_what_comes_rarely_comes(cron: str) -> None:
    spec = of_told({"cron": cron, "agent": "a"})

    assert 5 == len(list(islice(ticks.ticks(spec, YEAR), 5)))


def test_a_name_is_one_that_a_command_line_takes() -> None:
    assert "nightly-2.x" == check_name("nightly-2.x")
    for bad in ("", "-x", "a b", "a/b", "x" * 129, None, 5):
        with pytest.raises(BadSchedule):
            check_name(bad)
