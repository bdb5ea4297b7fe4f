"""What became of a source's requests is added up by five minutes and forgotten after a day."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fix_world import Conn
from semel.core.inbox import event_accept
from semel.db.execute import run
from semel.db.pool import connect
from semel.model import Offer

NOW = datetime(2026, 11, 30, 12, 3, tzinfo=UTC)


def observe(conn: Conn, *told: tuple[str, str, int], at: datetime = NOW) -> None:
    conn.execute(
        "select semel.source_observe('p', %s, %s, %s, %s)",
        ([s for s, _, _ in told], [o for _, o, _ in told], [n for _, _, n in told], at),
    )


def announce(conn: Conn, *names: str) -> None:
    conn.execute(
        "select semel.source_register('p', %s::text[], %s::text[], %s::text[])",
        (list(names), ["api"] * len(names), [None] * len(names)),
    )


def outcomes(conn: Conn) -> list[Any]:
    return conn.execute(
        "select source, outcome, extract(minute from slot_at)::int, count"
        " from semel.source_outcomes order by slot_at, source, outcome"
    ).fetchall()


def test_counts_add_up_within_five_minutes(conn: Conn) -> None:
    observe(conn, ("a", "new", 2), ("b", "refused", 1), ("a", "new", 3))
    observe(conn, ("a", "new", 1), at=NOW + timedelta(seconds=119))
    observe(conn, ("a", "new", 1), at=NOW + timedelta(seconds=120))
    assert outcomes(conn) == [("a", "new", 0, 6), ("b", "refused", 0, 1), ("a", "new", 5, 1)]


def test_what_is_older_than_a_day_goes(conn: Conn) -> None:
    observe(conn, ("a", "new", 1))
    later = NOW + timedelta(days=1)
    observe(conn, ("a", "new", 1), at=later - timedelta(minutes=3))
    assert len(outcomes(conn)) == 2
    observe(conn, ("a", "new", 1), at=later)
    assert [row[3] for row in outcomes(conn)] == [2]


def test_nobody_waits_for_who_forgets_at_the_same_time(dsn: str, conn: Conn) -> None:
    observe(conn, ("a", "new", 1))
    with connect(dsn) as other, other.transaction():
        other.execute("select from semel.source_tally for update")
        conn.execute("set lock_timeout = '200ms'")
        observe(conn, ("b", "new", 1), at=NOW + timedelta(days=2))


def test_an_event_that_was_ignored_is_found_by_its_id(conn: Conn) -> None:
    ignored = Offer(source="a", channel="api", id="7", verdict="ignored", reason="no route")
    nameless = Offer(source="a", channel="api", verdict="ignored", reason="no id")
    run(conn, event_accept("p", [ignored, nameless]))
    told = conn.execute(
        "select provider_event_id, reason from semel.deliveries order by 1"
    ).fetchall()
    assert told == [("7", "no route"), (None, "no id")]
    assert conn.execute("select count(*) from semel.events").fetchone() == (0,)


def test_only_an_authentic_request_ends_a_silence_and_none_goes_back(conn: Conn) -> None:
    announce(conn, "a", "b")
    for outcome in ("refused", "forbidden", "limited", "malformed", "failed"):
        observe(conn, ("a", outcome, 1))
    observe(conn, ("b", "ignored", 1), ("gone", "new", 1))
    observe(conn, ("b", "new", 1), at=NOW - timedelta(hours=1))
    told = conn.execute("select source, last_event_at from semel.sources order by 1").fetchall()
    assert told == [("a", None), ("b", NOW)]


def test_a_source_that_is_announced_again_keeps_its_beginning(conn: Conn) -> None:
    announce(conn, "a")
    first = conn.execute("select since from semel.sources").fetchone()
    announce(conn, "a")
    assert conn.execute("select since from semel.sources").fetchone() == first
