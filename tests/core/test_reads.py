"""Reads answer what the views hold, as JSON; a page costs the same however long the history."""

from datetime import timedelta
from typing import Any

import psycopg

from semel.core import reads, runs
from semel.core.inbox import event_accept
from semel.db.execute import run
from semel.model import Offer


def offer(provider_id: str | None, **changes: Any) -> Offer:
    return Offer(source="bot", channel="telegram", id=provider_id, agent="a", **changes)


def test_explain_tells_every_delivery_of_an_id_and_why(conn: psycopg.Connection[Any]) -> None:
    for _ in range(3):
        run(conn, event_accept("p", [offer("7")]))
    run(conn, event_accept("p", [offer("8")]))
    told = run(conn, reads.explain_event("p", "bot", "7"))
    assert [each["verdict"] for each in told] == ["new", "duplicate", "duplicate"]
    assert told[0]["reason"] == "first sighting of this id"
    assert len({each["run_id"] for each in told}) == 1


def test_an_event_is_shown_with_its_deliveries(conn: psycopg.Connection[Any]) -> None:
    event_id = run(conn, event_accept("p", [offer("7", body=b"raw")]))[0].event_id
    assert event_id is not None
    run(conn, event_accept("p", [offer("7", body=b"raw")]))
    shown = run(conn, reads.show_event("p", event_id))
    assert shown is not None
    deliveries = shown["deliveries"]
    assert isinstance(deliveries, list)
    assert [each["body_bytes"] for each in deliveries if isinstance(each, dict)] == [3, 3]
    assert run(conn, reads.show_event("other", event_id)) is None


def test_quarantined_deliveries_are_found_by_their_verdict(
    conn: psycopg.Connection[Any],
) -> None:
    run(conn, event_accept("p", [offer("7"), offer(None, verdict="quarantined", reason="bad")]))
    (found,) = run(conn, reads.list_deliveries("p", verdict="quarantined"))
    assert found["reason"] == "bad"
    assert len(run(conn, reads.list_deliveries("p"))) == 2
    assert run(conn, reads.list_deliveries("p", source="other")) == []


def test_runs_are_counted_by_agent_and_state(conn: psycopg.Connection[Any]) -> None:
    for agent in ("a", "a", "b"):
        run(conn, runs.run_start("p", agent, {}))
    claim = run(conn, runs.run_claim("p", "b", "w", limit=1, lease=timedelta(minutes=5)))[0]
    run(conn, runs.run_complete("p", "w", [(claim.run_id, claim.fence, "1")]))
    assert run(conn, reads.count_runs("p")) == [
        {"agent": "a", "status": "PENDING", "runs": 2},
        {"agent": "b", "status": "COMPLETED", "runs": 1},
    ]
    assert run(conn, reads.live_runs()) == [("a", "PENDING", 2)]
    ((agent, seconds),) = run(conn, reads.oldest_ready())
    assert agent == "a"
    assert 0 <= seconds < 60


def test_times_are_utc_whatever_the_session_s_zone(conn: psycopg.Connection[Any]) -> None:
    conn.execute("set timezone to 'Asia/Taipei'")
    run_id = run(conn, runs.run_start("p", "a", {"at": "2026-01-01"})).run_id
    shown = run(conn, reads.show_run("p", run_id))
    assert shown is not None
    assert str(shown["created_at"]).endswith("Z")
    assert shown["input"] == {"at": "2026-01-01"}


def test_a_page_of_runs_reads_no_more_of_the_history_than_it_shows(
    conn: psycopg.Connection[Any],
) -> None:
    conn.execute(
        "insert into semel.run_history (project_id, run_id, agent, status, priority,"
        " attempt_count, release_count, fence, created_at, finished_at)"
        " select 'p', semel.uuid_at(now() - n * interval '1 s'), 'a', 'COMPLETED', 5, 1, 0, 1,"
        " now(), now() from generate_series(1, 20000) as n"
    )
    conn.execute("analyze semel.run_history")
    call = reads.list_runs("p", limit=51)
    plan = conn.execute(
        f"explain (analyze, buffers, format json) {call.sql}", call.args
    ).fetchone()
    assert plan is not None
    top = plan[0][0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 1000
    counted = conn.execute("explain (format json) " + reads.live_runs().sql).fetchone()
    assert "run_history" not in str(counted)
