"""The doctor: a line for each check, and a remedy where one fails."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from asking import ask, claimed, link
from fix_world import Conn, one, start_run
from semel.config import NotifierSettings, Settings, Source, load
from semel.core import recovery, runs, steps, workers
from semel.core.operations import Identity, operation_begin
from semel.db.execute import run
from semel.ops.doctor import Check, examine


@pytest.fixture
def settings(dsn: str) -> Settings:
    return Settings(dsn=dsn)


def found(settings: Settings) -> dict[str, Check]:
    return {check.name: check for check in examine(settings)}


def test_a_fresh_database_is_well_but_has_no_worker(settings: Settings) -> None:
    checks = found(settings)

    for name in (
        "database",
        "schema",
        "clock",
        "owner",
        "upkeep",
        "queue",
        "agents",
        "sessions",
    ):
        assert checks[name].status == "ok", checks[name]
    assert checks["workers"].status == "FAIL"
    assert "semel worker" in checks["workers"].remedy


def test_every_failing_line_has_a_remedy(settings: Settings, conn: Conn) -> None:
    start_run(conn, "mail")

    failing = [check for check in examine(settings) if check.status == "FAIL"]

    assert {check.name for check in failing} >= {"workers", "agents"}
    assert all(check.remedy for check in failing)


def test_durability_that_is_off_is_told(settings: Settings) -> None:
    check = found(settings)["durability"]  # the tests' own server runs without

    assert (check.status, check.detail) == ("FAIL", "fsync off, synchronous_commit off")


def test_a_live_worker_that_knows_the_agent_is_enough(settings: Settings, conn: Conn) -> None:
    start_run(conn, "mail")
    known = [("mail", 3, None, "async")]
    run(conn, workers.worker_register("p", "w", host="h", pid=1, slots=1, agents=known))
    run(conn, recovery.run_reap("p", dead_after=timedelta(seconds=30)))

    checks = found(settings)

    assert checks["workers"].detail == "1 alive"
    assert checks["agents"].status == "ok"
    assert checks["upkeep"].detail == "came 0 s ago"


def test_upkeep_that_never_came_is_told(settings: Settings, conn: Conn) -> None:
    run(conn, workers.worker_register("p", "w", host="h", pid=1, slots=1, agents=[]))

    check = found(settings)["upkeep"]

    assert (check.status, check.detail) == ("FAIL", "never came")


def test_an_agent_that_no_worker_knows_is_named(settings: Settings, conn: Conn) -> None:
    start_run(conn, "mial")
    known = [("mail", 3, None, "async")]
    run(conn, workers.worker_register("p", "w", host="h", pid=1, slots=1, agents=known))

    assert found(settings)["agents"].detail == "runs that no live worker knows: mial (1)"


def test_a_database_away_is_one_line_and_the_settings_are_still_read() -> None:
    checks = found(Settings(dsn="host=/nowhere dbname=x", testing=True))

    assert list(checks) == ["database", "settings", "testing", "sources"]
    assert checks["database"].status == "FAIL"
    assert checks["testing"].status == "note"


def test_a_schema_that_is_missing_is_one_line(empty_dsn: str) -> None:
    check = found(Settings(dsn=empty_dsn))["schema"]

    assert (check.status, check.remedy.split(",")[0]) == ("FAIL", "Run `semel migrate`")


def test_sources_without_a_secret_are_named(settings: Settings) -> None:
    source = Source(name="alerts", channel="alertmanager", agent="a")

    check = found(replace(settings, sources={("default", "alerts"): source}))["sources"]

    assert (check.status, "no secret: alerts" in check.detail) == ("note", True)


def test_the_file_that_was_read_is_named_or_that_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "semel.toml").write_text('dsn = "host=/nowhere"')

    read = found(load({}, tmp_path))["settings"]
    none = found(load({"SEMEL_DSN": "host=/nowhere"}, tmp_path / "elsewhere"))["settings"]

    assert (read.status, str(tmp_path / "semel.toml") in read.detail) == ("ok", True)
    assert (none.status, "SEMEL_CONFIG" in none.remedy) == ("note", True)
    assert "here" in found(load({}, tmp_path))["testing"].detail


def test_a_notifier_is_looked_up_and_judged_and_nothing_is_sent(settings: Settings) -> None:
    def told(name: str, url: str, **more: Any) -> NotifierSettings:
        return NotifierSettings(name=name, kind="webhook", url=url, **more)

    there = [
        told("good", "https://127.0.0.1/x", allow_private=True),
        told("private", "https://127.0.0.1/x"),
        told("bare", "env:NO_SUCH_VARIABLE"),
    ]

    checks = found(replace(settings, notifiers={each.name: each for each in there}))

    good, private, bare = (checks[f"notifier {each.name}"] for each in there)
    assert (good.status, good.detail) == ("ok", "webhook, leads to https://127.0.0.1")
    assert (private.status, "not public" in private.detail) == ("FAIL", True)
    assert (bare.status, "set the variable NO_SUCH_VARIABLE" in bare.detail) == ("FAIL", True)
    assert bare.remedy == "mend [notifiers.bare]"
    assert (checks["links"].status, "public_url" in checks["links"].remedy) == ("note", True)


def test_an_approval_that_nobody_was_told_of_is_named(settings: Settings, conn: Conn) -> None:
    minutes = [
        one(conn, "select clock_timestamp() - make_interval(mins => %s)", n) for n in (2, 0)
    ]
    silent = ask(conn, agent="a", now=minutes[0])
    ask(conn, agent="b", now=minutes[1])  # asked a moment ago
    ask(conn, agent="c", now=minutes[0], notify=())  # decided by its id

    check = found(settings)["approvals"]
    link(conn, silent)

    assert check.status == "FAIL"
    assert check.detail == "open for 60 s without a link sent to anybody: p (1)"
    assert found(settings)["approvals"].status == "ok"


@pytest.mark.parametrize("code", ["E-STEP-001", "E-RUN-006"])
def test_a_compensation_that_is_held_or_failed_is_named(
    settings: Settings, conn: Conn, code: str
) -> None:
    run_id = start_run(conn)
    claim = claimed(conn)
    intent = steps.Entry("pay", "intent", content='{"undo": "refund"}')
    run(conn, steps.step_record("p", "w", [(run_id, claim.fence, intent)]))
    run(conn, runs.run_fail(claim, code, "boom", retryable=False))
    wanted = f"1 held, the last of run {run_id}"
    if code != "E-STEP-001":
        assert found(settings)["compensations"].status == "ok"
        undo = claimed(conn)
        run(conn, runs.run_fail(undo, "E-STEP-006", "down", retryable=False))
        wanted = f"1 failed, the last is run {undo.run_id}"

    check = found(settings)["compensations"]

    assert (check.status, check.detail) == ("FAIL", wanted)


def test_an_operation_that_nobody_executes_is_told(settings: Settings, conn: Conn) -> None:
    assert found(settings)["ledger"].detail == "no outcome is unknown; 0 recorded go on"
    identity = Identity(
        project="p",
        request_id="r",
        event_type="pay",
        actor=None,
        envelopes=[{"version": 2, "digest": f"sha256:{'0' * 64}"}],
    )
    run(conn, operation_begin(identity))

    check = found(settings)["ledger"]

    assert (check.status, check.remedy) == ("FAIL", "judge them: semel reconcile list")
    assert check.detail.endswith("p (1)")


def test_results_that_every_program_may_read_are_told(settings: Settings, conn: Conn) -> None:
    assert found(settings)["results"].status == "ok"

    conn.execute("grant select (reply_body) on semel.operation to semel_client")

    assert found(settings)["results"].status == "note"
