"""Runs that no live worker will claim, for their version or their agent, are shown to operators."""

from typing import Any

import pytest

from fix_cli import Semel
from fix_world import LEASE, Conn, one, start_run
from semel.config import Settings
from semel.core import claims, runs, tokens, workers
from semel.db.execute import run
from semel.ops.doctor import Check, examine
from web import web


def work(conn: Conn, worker: str, version: str, *agents: str) -> None:
    """A live worker of this version of its agents."""
    served = [(agent, 3, None, "async") for agent in agents]
    call = workers.worker_register(
        "p", worker, host="h", pid=1, slots=4, agents=served, versions=[version] * len(served)
    )
    run(conn, call)


def begun(conn: Conn, version: str) -> None:
    """A run of agent roll that this version began, and that waits for it."""
    start_run(conn, "roll")
    claim = claims.run_claim("p", "roll", "w", limit=1, lease=LEASE, version=version)
    [held] = run(conn, claim)
    run(conn, runs.run_release("p", "w", [(held.run_id, held.fence)]))


@pytest.fixture
def rolled(conn: Conn) -> None:
    """Version 2 is at work, 1 has left two runs behind, and nobody knows the agent gone."""
    work(conn, "old", "1", "roll")
    begun(conn, "1")
    begun(conn, "1")
    run(conn, workers.worker_stop("p", "old"))
    work(conn, "new", "2", "roll", "other")
    begun(conn, "2")
    start_run(conn, "roll")
    start_run(conn, "gone")


def agents_check(dsn: str) -> Check:
    [check] = [check for check in examine(Settings(dsn=dsn)) if check.name == "agents"]
    return check


def test_the_doctor_names_agents_and_versions_that_no_live_worker_serves(
    dsn: str, conn: Conn, rolled: None
) -> None:
    check = agents_check(dsn)
    said = "runs that no live worker knows: gone (1), roll version 1 (2)"
    assert ("FAIL", said) == (check.status, check.detail)
    assert "of the version named" in check.remedy

    work(conn, "old again", "1", "roll", "gone")
    assert "ok" == agents_check(dsn).status


def test_a_worker_of_one_run_alone_serves_nobody_else(dsn: str, conn: Conn) -> None:
    """The identity under which a suspect is executed claims nothing more."""
    start_run(conn, "roll")
    run(conn, claims.run_claim("p", "roll", "w~1", limit=1, lease=LEASE))
    start_run(conn, "roll")
    assert "FAIL" == agents_check(dsn).status


def test_agents_are_listed_with_the_versions_at_work_and_those_that_are_missed(
    here: Semel, conn: Conn, rolled: None
) -> None:
    def shown(line: Any) -> tuple[Any, ...]:
        return line["versions"], line["begun"], line["unserved"], line["joins"]

    listed = {line["agent"]: shown(line) for line in here("agent", "list", "--json").lines}
    assert {
        "gone": (None, None, {"": 1}, False),
        "other": (["2"], None, None, False),
        "roll": (["2"], {"1": 2, "2": 1}, {"1": 2}, False),
    } == listed
    said = here("agent", "list").out.splitlines()
    assert {"VERSIONS", "BEGUN", "UNSERVED"} <= set(said[0].split())
    assert '{"1": 2}' in said[3]


def test_the_api_and_the_metrics_tell_it_too(dsn: str, conn: Conn, rolled: None) -> None:
    token = tokens.mint()
    run(conn, tokens.token_create("p", token, "viewer"))
    with web(Settings(dsn=dsn)) as client:
        answer = client.get("/v1/p/agents", {"Authorization": f"Bearer {token}"})
        text = client.get("/metrics").text

    assert [{"": 1}, None, {"1": 2}] == [each["unserved"] for each in answer.json()["agents"]]
    lines = [line for line in text.splitlines() if line.startswith("semel_runs_unserved{")]
    assert [
        'semel_runs_unserved{agent="gone",version=""} 1.0',
        'semel_runs_unserved{agent="roll",version="1"} 2.0',
    ] == lines


def test_a_worker_that_fell_silent_serves_nothing(dsn: str, conn: Conn, rolled: None) -> None:
    conn.execute("update semel.worker set beat_at = now() - interval '31 seconds'")
    assert (
        "gone (1), roll (1), roll version 1 (2), roll version 2 (1)" in agents_check(dsn).detail
    )
    assert 4 == one(conn, "select count(*) from semel.runs where agent = 'roll'")


def test_the_story_of_a_run_names_the_version_that_began_it(
    here: Semel, conn: Conn, rolled: None
) -> None:
    def head(version: str) -> str:
        run_id = one(
            conn,
            "select run_id from semel.runs where agent = 'roll' and version = %s limit 1",
            version,
        )
        return here("run", "show", str(run_id), "--project", "p").out.splitlines()[1]

    assert "agent     roll version 1 in project p, priority 5" == head("1")
    assert "agent     roll in project p, priority 5" == head("")
