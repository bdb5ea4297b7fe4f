"""Ids of a system before this one stay seen, and name the runs it made for them."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from fix_world import Conn, one
from semel.core import inbox, runs, upkeep
from semel.core.legacy import BATCH_MAX, Seen, event_import
from semel.db.execute import run
from semel.errors import BadRequest
from semel.model import Accepted, Offer

DAY = timedelta(days=1)
OLD = datetime(2020, 1, 1, tzinfo=UTC)


def clock(conn: Conn) -> datetime:
    now: datetime = one(conn, "select clock_timestamp()")
    return now


def take(conn: Conn, *seen: Seen, now: datetime | None = None) -> tuple[int, int]:
    return run(conn, event_import("p", "bot", "telegram", seen, now=now))


def arrive(conn: Conn, name: str, *, now: datetime | None = None) -> Accepted:
    offer = Offer(source="bot", channel="telegram", id=name, agent="a")
    return run(conn, inbox.event_accept("p", [offer], now=now))[0]


def seen(name: str, run_id: UUID | None = None, at: datetime = OLD) -> Seen:
    return Seen(id=name, run_id=run_id or uuid4(), at=at)


def test_an_imported_id_is_a_duplicate_and_names_the_old_run(conn: Conn) -> None:
    old = uuid4()

    assert (1, 0) == take(conn, seen("7", old))

    arrived = arrive(conn, "7")
    assert ("duplicate", old) == (arrived.verdict, arrived.run_id)
    assert 0 == one(conn, "select count(*) from semel.runs")
    assert OLD == one(conn, "select first_seen_at from semel.events")


def test_an_old_row_does_not_expire_on_arrival(conn: Conn) -> None:
    start = clock(conn)
    take(conn, seen("7"), now=start)

    assert 0 == run(conn, upkeep.dedupe_expire("p", 7 * DAY, now=start + 6 * DAY))
    assert "duplicate" == arrive(conn, "7", now=start + 6 * DAY).verdict
    assert 1 == run(conn, upkeep.dedupe_expire("p", 7 * DAY, now=start + 14 * DAY))


def test_an_import_may_be_run_again_and_leaves_what_is_known(conn: Conn) -> None:
    here = arrive(conn, "8")
    old = [seen("7"), seen("8")]

    assert (1, 1) == take(conn, *old)
    assert (0, 2) == take(conn, *old)

    assert here.run_id == arrive(conn, "8").run_id
    assert 2 == one(conn, "select count(*) from semel.events")


def test_an_import_moves_no_sighting_back(conn: Conn) -> None:
    start = clock(conn)
    take(conn, seen("7"), now=start)
    take(conn, seen("7"), now=start - DAY)

    assert start == one(conn, "select last_seen_at from semel.events")


def test_an_imported_key_is_a_duplicate_whatever_its_body(conn: Conn) -> None:
    """The old system kept no digest, so there is nothing to compare with."""
    old = uuid4()
    run(conn, event_import("p", "api", "api", [seen("k", old)]))

    compared = Offer(source="api", channel="api", id="k", agent="a", input=1, compare=True)
    over_http = run(conn, inbox.event_accept("p", [compared]))[0]
    by_program = run(conn, runs.run_start("p", "a", 1, key="k"))

    assert ("duplicate", old) == (over_http.verdict, over_http.run_id)
    assert ("duplicate", old) == (by_program.outcome, by_program.run_id)


def test_the_empty_id_is_none_and_the_first_of_two_counts(conn: Conn) -> None:
    first = uuid4()

    counted = take(conn, seen(""), seen("7", at=OLD + DAY), seen("7", first))

    assert (1, 0) == counted
    assert first == one(conn, "select run_id from semel.events")


def test_strange_times_are_no_obstacle(conn: Conn) -> None:
    for n, at in enumerate(("infinity", "-infinity", "1000-01-01", "2999-01-01")):
        conn.execute(
            "select * from semel.event_import('p', 'bot', 'telegram', %s, %s, array[%s::timestamptz])",
            ([str(n)], [uuid4()], at),
        )

    assert 4 == one(conn, "select count(*) from semel.events where first_seen_at <= now()")


def test_a_batch_has_its_limit(conn: Conn) -> None:
    with pytest.raises(BadRequest, match="1001 ids"):
        take(conn, *[seen(str(n)) for n in range(BATCH_MAX + 1)])
