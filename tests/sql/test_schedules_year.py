"""A year by the manual clock: one run for each tick, and at each change of the clocks what is written down."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from fix_world import Conn
from semel.core import schedules
from semel.core.schedule_spec import of_told
from semel.db.execute import run
from semel.runtime.ticker import Ticker

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
END = datetime(2027, 1, 1, tzinfo=UTC)
CHANGES = {
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "Asia/Taipei": (None, None),
    "America/New_York": ("2026-03-08", "2026-11-01"),
}
#: Fixed times are moved, and come the first time; six fields go by the clock on the wall.
FIXED = {
    "Europe/Berlin": "30 2 * * *",
    "Asia/Taipei": "30 2 * * *",
    "America/New_York": "30 1,2 * * *",
}
AUTUMN = {"Europe/Berlin": ["02:30+0200"], "America/New_York": ["01:30-0400", "02:30-0500"]}
SPRING = {"Europe/Berlin": ["03:00+0200"], "America/New_York": ["01:30-0500", "03:00-0400"]}
WALL = "0 30 {} * * *"


@pytest.mark.timeout(120)
def test_a_year_of_ticks_is_one_run_for_each_and_the_written_policy_at_each_change(
    conn: Conn,
) -> None:
    specs = {}
    for zone in CHANGES:
        name = zone.partition("/")[2]
        hour = 1 if "York" in zone else 2
        told = {"timezone": zone, "agent": "a", "catch_up": "none"}
        specs[f"fixed-{name}"] = of_told({**told, "cron": FIXED[zone]})
        specs[f"wall-{name}"] = of_told({**told, "cron": WALL.format(hour)})
    run(conn, schedules.schedule_seed("p", "main", specs, now=BEGIN))
    ticker = Ticker(lambda: conn, memory=timedelta(days=7), wake=False)

    now, made = BEGIN, 0
    while now < END:
        made += ticker.fire(conn, now=now, rounds=1)["fired"]
        until = run(conn, schedules.schedule_next(now=now))
        assert until is not None
        now += until

    ran: dict[str, list[datetime]] = {}
    for name, at in conn.execute(
        "select input -> 'schedule' ->> 'name', input -> 'schedule' ->> 'scheduled_at'"
        " from semel.runs order by 1, 2"
    ):
        ran.setdefault(name, []).append(datetime.fromisoformat(at))
    assert made == sum(len(ticks) for ticks in ran.values())
    for zone, (spring, autumn) in CHANGES.items():
        there, name = ZoneInfo(zone), zone.partition("/")[2]
        fixed = [tick.astimezone(there) for tick in ran[f"fixed-{name}"]]
        wall = [tick.astimezone(there) for tick in ran[f"wall-{name}"]]
        assert len(set(ran[f"fixed-{name}"])) == len(fixed)
        days = Counter(tick.date() for tick in fixed)
        assert {2 if "York" in zone else 1} == set(days.values())
        assert 365 == len(days)
        if spring is None or autumn is None:
            assert fixed == wall
            continue

        def of(ticks: list[datetime], day: str) -> list[str]:
            return [f"{tick:%H:%M%z}" for tick in ticks if f"{tick:%Y-%m-%d}" == day]

        assert SPRING[zone] == of(fixed, spring)
        assert AUTUMN[zone] == of(fixed, autumn)
        wall_autumn = of(wall, autumn)
        assert 2 == len(wall_autumn)
        assert 1 == len({at[:5] for at in wall_autumn})
        assert (0 if zone == "Europe/Berlin" else 1) == len(of(wall, spring))
        lost = 1 if zone == "Europe/Berlin" else 0
        assert 365 - lost + 1 == len(wall)
