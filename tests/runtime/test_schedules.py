"""What a program says of schedules, and what workers and upkeep make of it."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from counting import counted
from fix_world import Conn, Programs, one, until
from semel import App, Run
from semel.core import schedules, workers
from semel.core.call import Call
from semel.core.schedule_spec import of_told
from semel.db.execute import run
from semel.db.pool import connect
from semel.errors import BadSchedule
from semel.runtime.schedules import program_of, seed
from semel.runtime.ticker import LOOK_SECONDS, Ticker
from semel.testing import Clock, World

WITHIN = timedelta(seconds=30)


async def noop(run: Run) -> Any:
    return run.input


def ticker(conn: Conn) -> Ticker:
    return Ticker(lambda: conn, memory=timedelta(days=7), wake=True)


def asking(conn: Conn) -> Any:
    async def ask(call: Call[Any]) -> Any:
        return run(conn, call)

    return ask


def say(app: App, conn: Conn, program: str = "main") -> list[tuple[str, str]]:
    return asyncio.run(
        seed(app, asking(conn), project="default", program=program, within=WITHIN)
    )


# -- in a program ----------------------------------------------------------------------------


def test_a_schedule_stands_above_an_agent_or_names_it() -> None:
    app = App()

    @app.schedule("above", every="15m")
    @app.agent("report")
    async def report(run: Run) -> None: ...

    app.schedule("named", cron="0 3 * * *", timezone="Asia/Taipei", agent="report")

    @app.schedule("both", every="1h", agent="other")
    @app.compensation("undo")
    def undo() -> None: ...

    agents = {name: spec.agent for name, spec in app.schedules.items()}
    assert {"above": "report", "named": "report", "both": "other"} == agents


def test_a_schedule_of_a_function_that_is_no_agent_is_refused() -> None:
    with pytest.raises(BadSchedule, match="above the @app"):
        App().schedule("s", every="1m")(noop)


def test_a_bad_schedule_is_refused_by_its_name_where_it_is_said() -> None:
    app = App()
    app.schedule("s", every="1m", agent="a")
    with pytest.raises(BadSchedule, match="schedule s is said twice"):
        app.schedule("s", every="1m", agent="a")
    with pytest.raises(BadSchedule, match="schedule t: timezone is 'Nowhere'"):
        app.schedule("t", cron="0 3 * * *", timezone="Nowhere", agent="a")
    with pytest.raises(BadSchedule, match="is no schedule"):
        app.schedule("a b", every="1m", agent="a")
    with pytest.raises(BadSchedule, match="schedule t: agent is 5"):
        app.schedule("t", every="1m", agent=5)  # type: ignore[arg-type]
    assert ["s"] == list(app.schedules)


def test_a_program_is_called_as_its_app_or_its_file() -> None:
    assert ["jobs", "jobs:two", "pkg.jobs", "billing"] == [
        program_of(App(name), target)
        for name, target in (
            (None, "some/jobs.py"),
            (None, "jobs.py:two"),
            (None, "pkg.jobs"),
            ("billing", "jobs.py"),
        )
    ]


def test_an_agent_that_nobody_has_is_refused_before_anything_is_kept(conn: Conn) -> None:
    app = App()
    app.schedule("s", every="1m", agent="reprot")

    with pytest.raises(
        BadSchedule, match=r"reprot.*never announced|reprot.*has ever announced"
    ):
        say(app, conn)

    assert 0 == one(conn, "select count(*) from semel.schedules")
    known = [("reprot", 3, None, "async")]
    run(conn, workers.worker_register("default", "w", host="h", pid=1, slots=1, agents=known))
    assert [("s", "new")] == say(app, conn)


def test_a_program_without_the_cron_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cronsim", None)

    with pytest.raises(BadSchedule, match=r"pip install 'semel\[schedules\]'"):
        App().schedule("s", cron="* * * * *", agent="a")
    App().schedule("s", every="1m", agent="a")


# -- processes -------------------------------------------------------------------------------


def test_a_worker_says_its_schedules_and_upkeep_fires_them(
    conn: Conn, programs: Programs
) -> None:
    programs.worker("scheduled.py", worker_poll="50ms")
    programs.upkeep()

    done = "select count(*) from semel.runs where agent = 'report' and status = 'COMPLETED'"
    until(lambda: one(conn, done) >= 3)

    found = conn.execute(
        "select schedule, program, source, project_id from semel.schedules order by 1"
    ).fetchall()
    assert [
        ("nightly", "scheduled", "code", "default"),
        ("often", "scheduled", "code", "default"),
    ] == found
    assert one(
        conn,
        "select bool_and(to_jsonb(input -> 'schedule' ->> 'scheduled_at') = result)"
        " from semel.runs where status = 'COMPLETED'",
    )


def test_a_world_fires_schedules_by_its_clock(dsn: str) -> None:
    app = App()
    app.agent("report")(noop)
    app.schedule("nightly", cron="0 3 * * *", timezone="Asia/Taipei", agent="report")

    async def story() -> list[Any]:
        clock = Clock(datetime(2026, 1, 1, 9, tzinfo=UTC))
        async with World(app, dsn, clock=clock) as world:
            assert 0 == await world.drain()
            for _ in range(3):
                world.advance(days=1)
                await world.drain()
            return [one.result for one in await world.runs()]

    results = asyncio.run(story())
    assert ["2026-01-01T19:00:00Z", "2026-01-02T19:00:00Z", "2026-01-03T19:00:00Z"] == [
        each["schedule"]["scheduled_at"] for each in results
    ]


def test_upkeep_once_fires_by_the_moment_that_a_test_tells(conn: Conn, dsn: str) -> None:
    from semel.config import Settings
    from semel.runtime.upkeep import Upkeep

    run(conn, schedules.schedule_seed("p", "m", {"s": of_told({"every": "1h", "agent": "a"})}))
    at = one(conn, "select clock_timestamp() + interval '1 hour'")

    upkeep = Upkeep(Settings(dsn=dsn), dsn=dsn)

    assert [0, 1, 0] == [upkeep.once(now=now)["fired"] for now in (None, at, at)]


# -- many ------------------------------------------------------------------------------------


def test_ten_thousand_idle_schedules_are_one_statement_at_each_look(
    conn: Conn, dsn: str, tmp_path: Path
) -> None:
    nightly = of_told({"every": "30d", "agent": "a"})
    with counted(dsn) as counter, connect(counter.dsn) as near:
        before = counter.trips
        run(near, schedules.schedule_seed("p", "m", {f"s{n}": nightly for n in range(10_000)}))
        seeding = counter.trips - before
        ticker(near).look(near)
        before = counter.trips
        pause = ticker(near).look(near)
        looking = counter.trips - before

    assert (1, 1, LOOK_SECONDS) == (seeding, looking, pause)
    assert 10_000 == one(conn, "select count(*) from semel.schedules where next_at is not null")
    plan = "\n".join(
        line
        for [line] in conn.execute(
            "explain (analyze, costs off, timing off, summary off) select * from semel.schedule_due()"
        )
    )
    assert "rows=0" in plan.splitlines()[0]


def test_what_fails_in_a_batch_does_not_keep_the_others_from_theirs(conn: Conn) -> None:
    app = App()
    for name in ("a", "b", "c"):
        app.agent(f"agent-{name}")(noop)
        app.schedule(name, every="1h", agent=f"agent-{name}")
    say(app, conn)
    later = one(conn, "select clock_timestamp() + interval '61 minutes'")
    ticker(conn).fire(conn, rounds=1)
    conn.execute(
        "update semel.schedule set code = jsonb_set(code, '{agent}', '\"no agent\"')"
        " where schedule = 'b'"
    )

    done = ticker(conn).fire(conn, now=later, rounds=1000)

    assert 2 == done["fired"]
    assert 2 == one(conn, "select count(*) from semel.runs")
