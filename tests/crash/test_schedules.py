"""Upkeep is killed at a tick, or many upkeeps come to it at once: one run for each tick."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from fix_world import Conn, Programs, one, until
from semel.core import schedules
from semel.core.schedule_spec import of_told
from semel.db.execute import run

pytestmark = pytest.mark.crash


def every_second(conn: Conn, count: int, *, ago: timedelta = timedelta(0)) -> datetime:
    """*count* schedules that have ticked every second since *ago*; answers when they began."""
    now: datetime = one(conn, "select clock_timestamp()")
    spec = of_told({"every": "1s", "agent": "a", "catch_up": "all", "catch_up_max": 1000})
    specs = {f"s{n}": spec for n in range(count)}
    run(conn, schedules.schedule_seed("p", "main", specs, now=now - ago))
    return now - ago


def ticks_by_run(conn: Conn) -> list[tuple[Any, ...]]:
    return conn.execute(
        "select input -> 'schedule' ->> 'name', input -> 'schedule' ->> 'scheduled_at', count(*)"
        " from semel.runs group by 1, 2 order by 1, 2"
    ).fetchall()


def require_one_for_each(conn: Conn, began: datetime) -> None:
    """No tick is missing between the first and the last of each schedule, and none is twice."""
    found = ticks_by_run(conn)
    assert {1} == {count for _, _, count in found}
    for name in {name for name, _, _ in found}:
        ticks = [datetime.fromisoformat(at) for each, at, _ in found if each == name]
        assert ticks[0] - began <= timedelta(seconds=1)
        assert len(ticks) == (ticks[-1] - ticks[0]).total_seconds() + 1


@pytest.mark.parametrize("stop", ["upkeep.fire.before#2", "upkeep.fire.after#2"])
def test_a_tick_has_one_run_wherever_upkeep_is_killed(
    conn: Conn, programs: Programs, stop: str
) -> None:
    began = every_second(conn, 3, ago=timedelta(seconds=20))
    killed = programs.upkeep(testing="1", stop_at=stop)
    assert -9 == killed.wait(30)

    programs.upkeep()
    until(lambda: one(conn, "select min(fired_count) from semel.schedules") > 22)

    require_one_for_each(conn, began)


def test_many_upkeeps_at_once_fire_each_tick_once(conn: Conn, programs: Programs) -> None:
    began = every_second(conn, 60, ago=timedelta(seconds=5))
    for _ in range(3):
        programs.upkeep()

    until(lambda: one(conn, "select min(fired_count) from semel.schedules") > 8)

    require_one_for_each(conn, began)
