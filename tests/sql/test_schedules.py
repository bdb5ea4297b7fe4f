"""Schedules in the database: whose word is in force, and one run for a tick."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from fix_world import NOW, Conn, one, second
from semel.core import schedules
from semel.core.schedule_spec import Spec, of_told
from semel.db.execute import run
from semel.errors import BadSchedule
from semel.runtime.ticker import Ticker

DAY = timedelta(days=1)


def spec(**told: Any) -> Spec:
    return of_told({"agent": "a", **({} if "cron" in told else {"every": "1h"}), **told})


def said(
    conn: Conn, at: datetime = NOW, *, program: str = "main", **specs: Spec
) -> dict[str, str]:
    return dict(run(conn, schedules.schedule_seed("p", program, specs, now=at)))


def put(conn: Conn, name: str, to: Spec, *, at: datetime = NOW) -> str:
    before = row(conn, name)
    return run(
        conn,
        schedules.schedule_set(
            "p", name, to, revision=before["revision"] if before else None, now=at
        ),
    )


def row(conn: Conn, name: str) -> dict[str, Any]:
    found = conn.execute(
        "select to_jsonb(s) from semel.schedules as s where schedule = %s", (name,)
    ).fetchall()
    return found[0][0] if found else {}


def fire(conn: Conn, at: datetime, *, rounds: int = 1000) -> int:
    """What upkeep does at that moment; answers how many runs it started."""
    ticker = Ticker(lambda: conn, memory=timedelta(days=7), wake=False)
    return ticker.fire(conn, now=at, rounds=rounds)["fired"]


def ticks(conn: Conn, name: str = "s") -> list[str]:
    """The ticks that have a run, in order."""
    return [
        at
        for [at] in conn.execute(
            "select input -> 'schedule' ->> 'scheduled_at' from semel.runs"
            " where input -> 'schedule' ->> 'name' = %s order by 1",
            (name,),
        )
    ]


# -- one run for a tick ----------------------------------------------------------------------


def test_the_first_tick_is_later_than_its_making(conn: Conn) -> None:
    said(conn, s=spec())

    assert [0, 0, 1, 0] == [fire(conn, second(s)) for s in (0, 3599, 3600, 3600)]
    assert ["2026-11-30T13:00:00Z"] == ticks(conn)


def test_a_run_is_told_its_tick_and_the_one_before_beside_its_input(conn: Conn) -> None:
    said(conn, s=spec(input={"region": "eu"}, timezone="Asia/Taipei", priority=7))
    fire(conn, second(3600))
    fire(conn, second(7210))

    [(first, _, _), (last, priority, source)] = conn.execute(
        "select input, priority, source from semel.runs order by run_id"
    ).fetchall()
    assert last == {
        "region": "eu",
        "schedule": {
            "name": "s",
            "scheduled_at": "2026-11-30T14:00:00Z",
            "previous_at": "2026-11-30T13:00:00Z",
            "timezone": "Asia/Taipei",
        },
    }
    assert first["schedule"]["previous_at"] is None
    assert (7, "semel.schedule") == (priority, source)


def test_a_clock_that_steps_back_fires_nothing_twice(conn: Conn) -> None:
    said(conn, s=spec())

    assert [1, 0, 0, 1] == [fire(conn, second(s)) for s in (3601, 3481, 3601, 7200)]


def test_whoever_is_second_at_a_tick_is_told_that_it_lost(conn: Conn) -> None:
    said(conn, s=spec())
    fire(conn, NOW)
    due = run(conn, schedules.schedule_due(now=second(3600)))
    plans = [schedules.look(each) for each in due]

    outcomes = [
        [each.outcome for each in run(conn, schedules.schedule_fire("p", plans))]
        for _ in range(2)
    ]
    assert [["fired"], ["lost"]] == outcomes


def test_a_plan_of_what_was_edited_since_is_lost(conn: Conn) -> None:
    said(conn, s=spec())
    fire(conn, NOW)
    plans = [schedules.look(d) for d in run(conn, schedules.schedule_due(now=second(3600)))]

    put(conn, "s", spec(input={"new": 1}), at=second(3600))

    assert "lost" == run(conn, schedules.schedule_fire("p", plans))[0].outcome
    assert 1 == fire(conn, second(3600))
    assert {"new"} < set(one(conn, "select input from semel.runs"))


def test_a_plan_of_what_was_paused_since_is_lost(conn: Conn) -> None:
    said(conn, s=spec())
    plans = [schedules.look(d) for d in run(conn, schedules.schedule_due(now=NOW))]

    run(conn, schedules.schedule_pause("p", "s", now=NOW))

    assert "lost" == run(conn, schedules.schedule_fire("p", plans))[0].outcome
    assert "paused" == row(conn, "s")["state"]


def test_a_schedule_that_another_holds_is_not_waited_for(conn: Conn, other: Conn) -> None:
    said(conn, s=spec(), t=spec())
    fire(conn, NOW)
    plans = [schedules.look(d) for d in run(conn, schedules.schedule_due(now=second(3600)))]
    with other.transaction():
        other.execute("select from semel.schedule where schedule = 's' for update")
        fired = run(conn, schedules.schedule_fire("p", plans))

    assert [("s", "lost"), ("t", "fired")] == [(each.schedule, each.outcome) for each in fired]


def test_made_again_it_fires_no_tick_twice(conn: Conn) -> None:
    put(conn, "s", spec())
    fire(conn, second(3600))
    assert "won" == run(conn, schedules.schedule_delete("p", "s"))

    put(conn, "s", spec(input={"other": 1}), at=second(0))

    assert 0 == fire(conn, second(3600))
    assert 1 == len(ticks(conn))


def test_while_its_last_run_is_live_a_tick_is_skipped_if_it_says_so(conn: Conn) -> None:
    said(conn, s=spec(overlap="skip"), t=spec())

    assert [2, 1] == [fire(conn, second(s)) for s in (3600, 7200)]
    assert (1, 1) == (row(conn, "s")["fired_count"], row(conn, "s")["skipped_count"])
    assert "2026-11-30T14:00:00+00:00" == row(conn, "s")["last_tick_at"]

    conn.execute("delete from semel.run where agent = 'a'")
    assert 2 == fire(conn, second(10800))
    told = "select input -> 'schedule' ->> 'previous_at' from semel.runs where input -> 'schedule' ->> 'name' = %s"
    assert "2026-11-30T13:00:00Z" == one(
        conn, told, "s"
    )  # the one that was skipped reported nothing
    assert "2026-11-30T14:00:00Z" == one(conn, told, "t")


# -- what nobody fired -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "fired"),
    [
        ({"catch_up": "none"}, []),
        ({"catch_up": "last"}, ["17"]),
        ({"catch_up": "all"}, ["13", "14", "15", "16", "17"]),
        ({"catch_up": "all", "catch_up_max": 2}, ["16", "17"]),
    ],
)
def test_of_missed_ticks_those_of_its_policy_come(
    conn: Conn, policy: Any, fired: list[str]
) -> None:
    said(conn, s=spec(**policy))
    fire(conn, NOW)

    fire(conn, second(5 * 3600 + 61))

    assert fired == [at[11:13] for at in ticks(conn)]
    assert 5 - len(fired) == row(conn, "s")["missed_count"]
    assert "2026-11-30T18:00:00+00:00" == row(conn, "s")["next_at"]


@pytest.mark.parametrize("policy", ["none", "last", "all"])
def test_a_tick_within_the_minute_is_not_missed(conn: Conn, policy: str) -> None:
    said(conn, s=spec(catch_up=policy))
    fire(conn, NOW)

    assert 1 == fire(conn, second(3660))


def test_one_on_time_stands_for_the_missed_ones_before_it(conn: Conn) -> None:
    said(conn, s=spec())
    fire(conn, NOW)

    assert 1 == fire(conn, second(3 * 3600))
    assert ["2026-11-30T15:00:00Z"] == ticks(conn)


def test_an_outage_of_a_million_ticks_is_walked_through_and_its_policy_kept(conn: Conn) -> None:
    said(conn, s=spec(every="1s", catch_up="last"))
    fire(conn, NOW)

    assert 61 == fire(conn, second(30_000))
    assert 30_000 - 61 == row(conn, "s")["missed_count"]


def test_many_that_are_made_up_for_come_a_hundred_at_a_time(conn: Conn) -> None:
    said(conn, s=spec(every="1m", catch_up="all", catch_up_max=250))
    fire(conn, NOW)

    assert [100, 100, 52] == [fire(conn, second(72_000), rounds=1) for _ in range(3)]
    assert 1200 - 252 == row(conn, "s")["missed_count"]


# -- code and operators ----------------------------------------------------------------------


def test_code_that_says_the_same_again_changes_nothing(conn: Conn) -> None:
    assert {"s": "new"} == said(conn, s=spec())
    fire(conn, NOW)
    before = row(conn, "s")

    assert {} == said(conn, at=second(9999), s=spec())
    assert before == row(conn, "s")


def test_a_deploy_at_its_tick_does_not_keep_it_from_coming(conn: Conn) -> None:
    said(conn, s=spec())
    fire(conn, NOW)

    assert {"s": "changed"} == said(conn, at=second(3601), s=spec(input={"v": 2}))

    assert 1 == fire(conn, second(3602))


def test_other_ticks_begin_when_they_are_said(conn: Conn) -> None:
    said(conn, s=spec())
    fire(conn, NOW)

    said(conn, at=second(3601), s=spec(every="30m"))

    assert [0, 1] == [fire(conn, second(s)) for s in (3602, 5400)]


def test_an_edit_wins_over_code_until_it_is_cleared(conn: Conn) -> None:
    said(conn, s=spec())
    put(conn, "s", spec(every="10m"))
    fire(conn, NOW)
    before = row(conn, "s")["next_at"]
    assert {"s": "edited"} == said(conn, s=spec(every="2h"))
    assert before == row(conn, "s")["next_at"] is not None
    assert ("operator", 600) == (row(conn, "s")["source"], row(conn, "s")["every_seconds"])
    assert 7200 == row(conn, "s")["code"]["every"]
    assert 1 == fire(conn, second(600))

    assert "won" == run(conn, schedules.schedule_clear("p", "s", now=second(700)))

    assert ("code", 7200) == (row(conn, "s")["source"], row(conn, "s")["every_seconds"])
    assert [0, 1] == [fire(conn, second(s)) for s in (1200, 7200)]
    assert "already" == run(conn, schedules.schedule_clear("p", "s"))


def test_an_edit_of_a_schedule_that_changed_since_is_lost(conn: Conn) -> None:
    said(conn, s=spec())
    said(conn, s=spec(every="2h"))

    call = schedules.schedule_set("p", "s", spec(every="5m"), revision=1)
    assert "lost" == run(conn, call)
    assert "lost" == run(conn, schedules.schedule_set("p", "s", spec(), revision=None))
    assert "code" == row(conn, "s")["source"]


@pytest.mark.parametrize("who", ["code", "operator"])
def test_no_change_brings_back_a_tick_that_was_fired(conn: Conn, who: str) -> None:
    said(conn, s=spec())
    fire(conn, second(3600))
    before = second(3500)  # by a clock that stepped back

    if who == "code":
        said(conn, at=before, s=spec(every="30m"))
    else:
        put(conn, "s", spec(every="30m"), at=before)
    fire(conn, before)

    assert "2026-11-30T13:30:00+00:00" == row(conn, "s")["next_at"]
    assert [0, 1] == [fire(conn, second(s)) for s in (3600, 5400)]


def test_a_clock_that_was_a_year_ahead_is_not_waited_for_once_it_is_resumed(
    conn: Conn,
) -> None:
    said(conn, s=spec())
    assert 1 == fire(conn, NOW + 365 * DAY)
    assert 0 == fire(conn, second(7200))

    run(conn, schedules.schedule_pause("p", "s", now=second(7200)))
    run(conn, schedules.schedule_resume("p", "s", now=second(7200)))

    assert [0, 1] == [fire(conn, second(s)) for s in (7201, 10_800)]


def test_what_a_pause_holds_back_does_not_come(conn: Conn) -> None:
    said(conn, s=spec(catch_up="all"))
    fire(conn, NOW)
    assert ["won", "already"] == [
        run(conn, schedules.schedule_pause("p", "s", now=second(10))) for _ in range(2)
    ]
    assert 0 == fire(conn, second(8000))

    assert ["won", "already"] == [
        run(conn, schedules.schedule_resume("p", "s", now=second(8000))) for _ in range(2)
    ]

    assert [0, 1] == [fire(conn, second(s)) for s in (8001, 10_800)]


def test_code_does_not_resume_what_is_paused(conn: Conn) -> None:
    said(conn, s=spec())
    run(conn, schedules.schedule_pause("p", "s"))

    said(conn, s=spec(every="2h"))
    put(conn, "s", spec(every="3h"))

    assert "paused" == row(conn, "s")["state"]
    assert 0 == fire(conn, NOW + DAY)


def test_what_code_says_no_more_rests_until_it_is_said_again(conn: Conn) -> None:
    said(conn, s=spec(), t=spec())
    assert {"s": "withdrawn"} == said(conn, t=spec())
    assert {} == said(conn, t=spec())
    assert "withdrawn" == row(conn, "s")["state"]
    assert 1 == fire(conn, second(3600))

    assert {"s": "changed"} == said(conn, at=second(4000), s=spec(), t=spec())

    assert [0, 2] == [fire(conn, second(s)) for s in (4001, 7200)]


def test_an_edit_of_what_code_says_no_more_stays_in_force(conn: Conn) -> None:
    said(conn, s=spec())
    put(conn, "s", spec(every="10m"))
    said(conn)

    assert "active" == row(conn, "s")["state"]
    assert 1 == fire(conn, second(600))

    run(conn, schedules.schedule_clear("p", "s", now=second(700)))
    assert "withdrawn" == row(conn, "s")["state"]
    assert 0 == fire(conn, NOW + DAY)


def test_two_programs_of_one_project_do_not_take_each_others(conn: Conn) -> None:
    said(conn, program="one", s=spec())
    said(conn, program="two", t=spec())
    said(conn, program="one", s=spec())

    assert ["active"] * 2 == [row(conn, name)["state"] for name in "st"]
    assert {"s": "taken", "t": "withdrawn"} == said(conn, program="two", s=spec())
    assert {} == said(conn, program="one")


def test_only_what_no_code_says_is_deleted(conn: Conn) -> None:
    said(conn, s=spec())
    put(conn, "o", spec())

    assert ["refused", "won", "unknown"] == [
        run(conn, schedules.schedule_delete("p", name)) for name in ("s", "o", "o")
    ]
    assert (
        "refused" == (put(conn, "o", spec()), run(conn, schedules.schedule_clear("p", "o")))[1]
    )
    said(conn)
    assert "won" == run(conn, schedules.schedule_delete("p", "s"))
    assert ["unknown"] * 3 == [
        run(conn, call("p", "s"))
        for call in (
            schedules.schedule_clear,
            schedules.schedule_pause,
            schedules.schedule_resume,
        )
    ]


# -- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        '{"agent": "a", "cron": "* * * * *", "input": [], "priority": 5}',
        '{"agent": "a", "cron": "* * * * *", "input": {"schedule": 1}, "priority": 5}',
        '{"agent": "a", "cron": "* * * * *", "input": {}, "priority": 10}',
        '{"agent": "semel.tool", "cron": "* * * * *", "input": {}, "priority": 5}',
        '{"agent": "a", "input": {}, "priority": 5}',
        '{"agent": "a", "cron": "* * * * *", "every": 60, "input": {}, "priority": 5}',
    ],
)
def test_a_spec_that_could_start_nothing_is_refused(conn: Conn, bad: str) -> None:
    for sql in (
        "select * from semel.schedule_set('p', 's', %s)",
        "select * from semel.schedule_seed('p', 'main', array['s'], array[%s])",
    ):
        with pytest.raises(Exception, match="a schedule that says what it cannot"):
            conn.execute(sql, (bad,))


@pytest.mark.parametrize("name", ["", "a b", "-a", "x" * 129])
def test_a_name_that_is_none_is_refused(conn: Conn, name: str) -> None:
    with pytest.raises(BadSchedule):
        run(conn, schedules.schedule_seed("p", "main", {name: spec()}))
    with pytest.raises(BadSchedule):
        run(conn, schedules.schedule_set("p", name, spec(), revision=None))


def test_one_whose_ticks_cannot_be_worked_out_says_why_and_is_looked_at_again(
    conn: Conn,
) -> None:
    said(conn, s=Spec(cron="61 * * * *", agent="a"), t=Spec(cron="0 0 30 2 *", agent="a"))
    said(conn, program="z", u=Spec(cron="* * * * *", timezone="No/Where", agent="a"), v=spec())
    conn.execute("update semel.schedule set error = 'it was down' where schedule = 'v'")

    assert 1 == fire(conn, second(3600), rounds=2)

    assert "Bad minute" in row(conn, "s")["error"]
    assert "Bad day-of-month" in row(conn, "t")["error"]
    assert "No/Where" in row(conn, "u")["error"]
    assert row(conn, "v")["error"] is None
    assert timedelta(minutes=1) == run(conn, schedules.schedule_next(now=second(3600)))
    put(conn, "s", spec())
    assert row(conn, "s")["error"] is None


# -- many ------------------------------------------------------------------------------------


def test_looks_of_many_projects_are_one(conn: Conn) -> None:
    assert run(conn, schedules.schedule_next(now=NOW)) is None
    for project, every in (("a", "1h"), ("b", "1h"), ("c", "30m")):
        told = {"s": spec(every=every)}
        run(conn, schedules.schedule_seed(project, "main", told, now=NOW))
    fire(conn, NOW)

    assert timedelta(minutes=30) == run(conn, schedules.schedule_next(now=NOW))
    assert [] == run(conn, schedules.schedule_due(now=NOW))
    due = run(conn, schedules.schedule_due(now=second(3600)))
    assert ["a", "b", "c"] == [each.project for each in due]
    assert 3 == fire(conn, second(3600))
