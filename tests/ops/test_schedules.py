"""Schedules at the command line, over HTTP, in the doctor and the metrics."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from fix_cli import Semel
from fix_world import Conn, one
from semel.config import Settings
from semel.core import schedules, tokens, workers
from semel.core.schedule_reads import Figures
from semel.core.schedule_spec import Spec, of_told
from semel.db.execute import run
from semel.ops.doctor import Check, examine
from web import settings, web


def seed(conn: Conn, *, program: str = "main", project: str = "default", **specs: Spec) -> None:
    run(conn, schedules.schedule_seed(project, program, specs))


def spec(**told: Any) -> Spec:
    return of_told({"agent": "report", **({} if "cron" in told else {"every": "1h"}), **told})


# -- the command line ------------------------------------------------------------------------


def test_the_list_shows_three_ticks_to_come_in_their_zone_and_in_utc(
    here: Semel, conn: Conn
) -> None:
    seed(conn, nightly=spec(cron="0 3 * * *", timezone="Asia/Taipei"), often=spec())

    said = here("schedule", "list")
    [nightly, often] = here("schedule", "list", "--json").lines

    assert 1 + 2 * 3 == len(said.out.splitlines())
    assert "every 3600s" in said.out
    assert ["T03:00:00+08:00"] * 3 == [tick["local"][10:] for tick in nightly["next"]]
    assert ["T19:00:00Z"] * 3 == [tick["at"][10:] for tick in nightly["next"]]
    now = one(conn, "select clock_timestamp()")
    first = datetime.fromisoformat(nightly["next"][0]["at"])
    assert timedelta(0) < first - now <= timedelta(days=1)
    assert ("code", "active", "report") == (often["source"], often["state"], often["agent"])


def test_no_schedule_is_said_in_a_sentence(here: Semel) -> None:
    assert "no schedules in" in here("schedule", "list").out


def test_an_operator_pauses_and_resumes(here: Semel, conn: Conn) -> None:
    seed(conn, s=spec())

    words = [here("schedule", verb, "s").out for verb in ("pause", "pause", "resume", "resume")]

    assert [
        f"{said} in project default\n"
        for said in ("paused", "was paused before", "resumed", "was not paused")
    ] == words
    here("schedule", "pause", "s")
    [paused] = here("schedule", "list", "--json").lines
    assert ("paused", []) == (paused["state"], paused["next"])


def test_an_operator_edits_what_he_names_and_gives_it_back(here: Semel, conn: Conn) -> None:
    seed(conn, s=spec(input={"a": 1}, jitter="10s"))

    assert (
        0
        == here("schedule", "set", "s", "--cron", "0 4 * * *", "--timezone", "Asia/Taipei").code
    )

    shown = here("schedule", "show", "s", "--json").json
    assert ("operator", "0 4 * * *", None) == (
        shown["source"],
        shown["cron"],
        shown["every_seconds"],
    )
    assert ({"a": 1}, 10.0, 3600) == (
        shown["input"],
        shown["jitter_seconds"],
        shown["code"]["every"],
    )
    assert "the code's again in project default\n" == here("schedule", "clear", "s").out
    assert 3600 == here("schedule", "show", "s", "--json").json["every_seconds"]
    assert "was the code's before" in here("schedule", "clear", "s").out


def test_an_operator_makes_one_of_his_own_and_deletes_it(here: Semel) -> None:
    made = here(
        *("schedule", "set", "mine", "--every", "15m", "--agent", "report"),
        *("--input", '{"b": 2}', "--priority", "7", "--catch-up", "all"),
        *("--catch-up-max", "9", "--overlap", "skip", "--jitter", "1m"),
    )
    assert (0, "made in project default\n") == (made.code, made.out)
    shown = here("schedule", "show", "mine", "--json").json
    assert [900, {"b": 2}, 7, "all", 9, "skip", 60.0] == [
        shown[name]
        for name in (
            *("every_seconds", "input", "priority", "catch_up"),
            *("catch_up_max", "overlap", "jitter_seconds"),
        )
    ]
    refused = here("schedule", "clear", "mine")
    assert (1, "E-SCHEDULE-003") == (refused.code, refused.err[:14])
    assert "deleted" in here("schedule", "delete", "mine").out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("set", "s", "--cron", "61 * * * *"), 2, "E-SCHEDULE-001"),
        (("set", "s", "--timezone", "Mars/Olympus"), 2, "E-SCHEDULE-001"),
        (("set", "s", "--every", "0s"), 2, "E-SCHEDULE-001"),
        (("set", "s", "--jitter", "2h"), 2, "E-SCHEDULE-001"),
        (("set", "s", "--input", "[1]"), 1, "E-REQUEST-001"),
        (("set", "s", "--catch-up", "some"), 2, "E-REQUEST-001"),
        (("set", "new", "--every", "1m"), 2, "--agent"),
        (("set", "-x-", "--every", "1m"), 2, "E-REQUEST-001"),
        (("set", "a b", "--every", "1m"), 2, "E-REQUEST-001"),
        (("delete", "s"), 1, "E-SCHEDULE-003"),
        (("pause", "none"), 1, "E-SCHEDULE-002"),
        (("resume", "none"), 1, "E-SCHEDULE-002"),
        (("clear", "none"), 1, "E-SCHEDULE-002"),
        (("delete", "none"), 1, "E-SCHEDULE-002"),
        (("show", "none"), 1, "E-SCHEDULE-002"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    here: Semel, conn: Conn, words: tuple[str, ...], code: int, says: str
) -> None:
    seed(conn, s=spec())
    before = here("schedule", "show", "s", "--json").json

    said = here("schedule", *words)

    assert (code, True) == (said.code, says in said.err), said
    after = here("schedule", "show", "s", "--json").json
    assert {**before, "next": 0} == {**after, "next": 0}


# -- HTTP ------------------------------------------------------------------------------------


def test_schedules_are_read_a_page_at_a_time(dsn: str, conn: Conn) -> None:
    for name in ("s0", "s1", "s2", "s3", "s4"):
        run(conn, schedules.schedule_set("default", name, spec(), revision=None))
    token = tokens.mint()
    run(conn, tokens.token_create("default", token, "viewer"))
    headers = {"Authorization": f"Bearer {token}"}
    with web(settings(dsn)) as client:
        first = client.get("/v1/default/schedules?limit=3", headers).json()
        last = client.get(f"/v1/default/schedules?cursor={first['next']}", headers).json()
        assert 401 == client.get("/v1/default/schedules").status_code

    assert ["s0", "s1", "s2"] == [each["schedule"] for each in first["schedules"]]
    assert ["s3", "s4"] == [each["schedule"] for each in last["schedules"]]
    assert last["next"] is None
    assert 3 == len(first["schedules"][0]["next"])


# -- doctor and metrics ----------------------------------------------------------------------


def checks(dsn: str) -> list[Check]:
    return [c for c in examine(Settings(dsn=dsn)) if c.name == "schedules"]


def test_the_doctor_names_schedules_in_trouble_with_a_remedy(dsn: str, conn: Conn) -> None:
    [none] = checks(dsn)
    assert ("ok", "none active") == (none.status, none.detail)
    known = [("report", 3, None, "async")]
    run(conn, workers.worker_register("default", "w", host="h", pid=1, slots=1, agents=known))
    seed(conn, well=spec())
    [well] = checks(dsn)
    assert ("ok", "1 active, each has its worker") == (well.status, well.detail)

    seed(conn, program="b", lone=spec(agent="nobody"), gone=spec(), late=spec(), bad=spec())
    seed(conn, program="b", lone=spec(agent="nobody"), late=spec(), bad=spec())
    conn.execute(
        "update semel.schedule set look_at = look_at - interval '2 minutes' where schedule = 'late'"
    )
    conn.execute("update semel.schedule set error = 'why' where schedule = 'bad'")

    found = {c.detail.rpartition("/")[2]: c for c in checks(dsn)}
    assert {"lone": "FAIL", "late": "FAIL", "bad": "FAIL", "gone": "note"} == {
        name: check.status for name, check in found.items()
    }
    assert all(check.remedy for check in found.values())


def test_the_metrics_tell_how_many_how_late_and_what_became_of_ticks(
    dsn: str, conn: Conn
) -> None:
    seed(conn, s=spec(), t=spec())
    run(conn, schedules.schedule_pause("default", "t"))
    conn.execute(
        "update semel.schedule set look_at = look_at - interval '1 hour' where schedule = 's'"
    )
    with web(settings(dsn)) as client:
        text = client.get("/metrics").text

    assert 'semel_schedules{state="active"} 1.0' in text
    assert 'semel_schedules{state="paused"} 1.0' in text
    assert 'semel_schedule_ticks_total{outcome="fired"} 0.0' in text
    [late] = [line for line in text.splitlines() if line.startswith("semel_schedule_late")]
    assert 3600 <= float(late.split()[1]) < 4000


def test_a_deleted_schedule_takes_nothing_from_the_count_of_ticks() -> None:
    from prometheus_client import CollectorRegistry

    from semel.ops.schedule_metrics import ScheduleMetrics

    registry = CollectorRegistry()
    metrics = ScheduleMetrics(registry)
    for fired in (10, 12, 5, 6):
        metrics.show(
            Figures(
                active=1,
                paused=0,
                withdrawn=0,
                failing=0,
                fired=fired,
                missed=0,
                skipped=0,
                late_seconds=0.0,
            )
        )

    assert 3 == registry.get_sample_value("semel_schedule_ticks_total", {"outcome": "fired"})
