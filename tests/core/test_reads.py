"""Reads answer what the views hold, as JSON; a page costs the same however long the history."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import psycopg

from fix_world import one
from semel.core import claims, reads, runs, story, upkeep
from semel.core.inbox import alert_accept, event_accept
from semel.db.execute import run
from semel.model import Alert, Offer


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


def test_explain_finds_the_deliveries_of_an_earlier_life(
    conn: psycopg.Connection[Any],
) -> None:
    """The same id was seen, forgotten, seen again as a new event, and forgotten again."""
    arrived = datetime(2026, 11, 1, tzinfo=UTC)
    week = timedelta(days=7)
    lives = [
        run(conn, event_accept("p", [offer("7")], now=at))[0].run_id
        for at in (arrived, arrived + week - timedelta(days=1), arrived + 3 * week)
    ]
    run(conn, event_accept("p", [offer("8"), replace(offer("7"), source="pot")]))

    def told() -> list[tuple[Any, Any]]:
        found = run(conn, reads.explain_event("p", "bot", "7"))
        return [(each["verdict"], each["run_id"]) for each in found]

    first, again, second = (str(each) for each in lives)
    assert first == again != second
    every = [("new", first), ("duplicate", first), ("new", second)]
    assert told() == every
    assert run(conn, upkeep.dedupe_expire("p", week, now=arrived + 5 * week)) == 1
    assert told() == every


def test_explain_finds_what_speaks_of_an_alert_without_naming_it(
    conn: psycopg.Connection[Any],
) -> None:
    def tell(status: Literal["firing", "resolved"], body: bytes) -> None:
        ends = 2 if status == "resolved" else 0
        alert = Alert(fingerprint="f", status=status, starts_ns=1, ends_ns=ends, alert={})
        run(conn, alert_accept("p", "am", "a", {}, [alert], body=body, headers={}))

    tell("firing", b"1")
    tell("firing", b"2")
    [[name]] = conn.execute("select provider_event_id from semel.events").fetchall()
    tell("resolved", b"3")
    later = one(conn, "select clock_timestamp()") + timedelta(days=8)
    assert run(conn, upkeep.dedupe_expire("p", timedelta(days=7), now=later)) == 2

    told = run(conn, reads.explain_event("p", "am", name))

    assert [each["verdict"] for each in told] == ["new", "reminder"]


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


def test_an_event_has_the_same_deliveries_whichever_way_it_is_asked_for(
    conn: psycopg.Connection[Any],
) -> None:
    """The one that made it, its twin in the same call, later ones, under a test's clock too."""
    for days in (0, -3):
        start = one(conn, "select clock_timestamp()") + timedelta(days=days)
        name = f"e{days}"
        made, twin = run(conn, event_accept("p", [offer(name), offer(name)], now=start))
        for later in (timedelta(milliseconds=1), timedelta(hours=1)):
            run(conn, event_accept("p", [offer(name)], now=start + later))
        assert made.event_id is not None
        assert made.run_id is not None
        assert twin.event_id == made.event_id
        found = conn.execute(
            "select delivery_id::text from semel.deliveries where event_id = %s"
            " order by received_at, delivery_id",
            (made.event_id,),
        ).fetchall()
        names = [name for (name,) in found]
        of_event: Any = run(conn, reads.show_event("p", made.event_id))
        of_run: Any = run(conn, story.show_run("p", made.run_id))
        explained = run(conn, reads.explain_event("p", "bot", name))
        for told in (of_event["deliveries"], of_run["deliveries"], explained):
            assert names == [each["delivery_id"] for each in told]
        assert len(names) == 4


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
    claim = run(conn, claims.run_claim("p", "b", "w", limit=1, lease=timedelta(minutes=5)))[0]
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
    shown = run(conn, story.show_run("p", run_id))
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
