"""An id that nobody signed makes no second event of what was already said."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from consistency import faults
from fix_world import Conn, until
from semel.core import inbox, upkeep
from semel.db.execute import run
from semel.model import Accepted, Offer

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
WAITING = """select count(*) from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'"""


def offer(name: str, content: str | None = "c", **changes: Any) -> Offer:
    told: dict[str, Any] = {
        "source": "s",
        "channel": "gitea",
        "agent": "a",
        "input": {"n": name},
    }
    return Offer(id=name, content=content, **(told | changes))


def accept(conn: Conn, *offers: Offer, now: datetime | None = None) -> list[Accepted]:
    return run(conn, inbox.event_accept("p", offers, now=now))


def count(conn: Conn, sql: str) -> int:
    row = conn.execute(sql).fetchone()
    assert row is not None
    return int(row[0])


def test_a_known_content_under_a_new_id_is_a_redelivery_of_the_first(conn: Conn) -> None:
    [first] = accept(conn, offer("1"))
    [again] = accept(conn, offer("2"))
    assert ("new", "redelivery") == (first.verdict, again.verdict)
    assert (first.run_id, first.event_id) == (again.run_id, again.event_id)
    assert "first as 1" in again.reason
    assert "redelivery" == accept(conn, offer("2"))[0].verdict
    assert "duplicate" == accept(conn, offer("1"))[0].verdict
    names = conn.execute("select provider_event_id from semel.deliveries order by delivery_id")
    assert ["1", "2", "2", "1"] == [name for [name] in names]
    assert 1 == count(conn, "select count(*) from semel.runs")
    assert 4 == count(conn, "select hits from semel.events")
    assert not faults(conn, arrivals=True)


def test_another_source_or_content_is_another_event(conn: Conn) -> None:
    told = accept(conn, offer("1"), offer("2", "d"), offer("1", source="t"), offer("3", None))
    assert ["new"] * 4 == [one.verdict for one in told]
    assert not faults(conn, arrivals=True)


def test_one_call_may_hold_a_content_twice(conn: Conn) -> None:
    told = accept(conn, offer("1"), offer("2"), offer("1"))
    assert ["new", "redelivery", "duplicate"] == [one.verdict for one in told]
    assert 1 == len({one.run_id for one in told})
    assert not faults(conn, arrivals=True)


def test_an_id_with_a_content_that_is_not_its_own_is_a_conflict_and_takes_nothing(
    conn: Conn,
) -> None:
    accept(conn, offer("1"))
    [forged] = accept(conn, offer("1", "d"))
    assert "conflict" == forged.verdict
    assert "another content" in forged.reason
    assert "new" == accept(conn, offer("2", "d"))[0].verdict
    assert 2 == count(conn, "select count(*) from semel.runs")
    assert not faults(conn, arrivals=True)


def test_past_its_window_a_content_is_new_under_a_new_id(conn: Conn) -> None:
    def at(day: float, name: str) -> str:
        [told] = accept(conn, offer(name, window=DAY), now=START + day * DAY)
        return told.verdict

    assert ["new", "redelivery", "redelivery", "new"] == [
        at(0, "1"),
        at(0.9, "2"),
        at(1.8, "3"),
        at(2.8, "4"),
    ]
    assert ["redelivery", "redelivery"] == [at(3, "1"), at(3.1, "2")]
    assert 2 == count(conn, "select count(*) from semel.runs")


def test_a_window_ends_with_the_memory_of_the_id(conn: Conn) -> None:
    accept(conn, offer("1", window=30 * DAY), now=START)
    assert "redelivery" == accept(conn, offer("2"), now=START + 6.9 * DAY)[0].verdict
    assert "new" == accept(conn, offer("3"), now=START + 13.9 * DAY)[0].verdict
    assert "duplicate" == accept(conn, offer("3"), now=START + 14 * DAY)[0].verdict


def test_contents_are_forgotten_in_batches_once_past_their_window(conn: Conn) -> None:
    accept(conn, *(offer(str(n), str(n), window=DAY) for n in range(5)), now=START)
    accept(conn, offer("6", "6"), now=START)
    assert 0 == run(conn, upkeep.content_expire("p", now=START + 0.9 * DAY))
    assert 0 == run(conn, upkeep.content_expire("q", now=START + DAY))
    assert 5 == run(conn, upkeep.content_expire("p", now=START + DAY))
    assert 1 == count(conn, "select count(*) from semel.content")


def test_expiry_takes_a_batch_and_leaves_what_is_locked(
    conn: Conn, other: psycopg.Connection[Any]
) -> None:
    accept(conn, *(offer(str(n), str(n), window=DAY) for n in range(5)), now=START)
    expire = "select semel.content_expire('p', 2, %s)"
    assert [(2,)] == conn.execute(expire, (START + DAY,)).fetchall()
    with other.transaction():
        other.execute(
            "select from semel.content order by kept_until, content_key limit 1 for update"
        )
        conn.execute("set statement_timeout = '5s'")
        assert 2 == run(conn, upkeep.content_expire("p", now=START + DAY))
    assert 1 == run(conn, upkeep.content_expire("p", now=START + DAY))


def test_contents_are_kept_in_the_order_of_their_keys_so_that_two_calls_cannot_cross(
    conn: Conn,
) -> None:
    accept(conn, *(offer(str(n), str(n)) for n in range(20)))
    keys = [
        key for [key] in conn.execute("select content_key from semel.content order by ctid")
    ]
    assert keys == sorted(keys)


def test_no_window_at_all_trusts_the_id_alone(conn: Conn) -> None:
    def at(day: int, name: str) -> str:
        return accept(conn, offer(name, window=timedelta(0)), now=START + day * DAY)[0].verdict

    assert ["new", "new", "duplicate"] == [at(0, "1"), at(0, "2"), at(1, "1")]


def test_two_ids_of_one_content_at_the_same_moment_make_one_run(
    conn: Conn, other: psycopg.Connection[Any]
) -> None:
    with conn.transaction():
        [first] = accept(conn, offer("1"))
        told: list[Accepted] = []
        waiter = threading.Thread(target=lambda: told.extend(accept(other, offer("2"))))
        waiter.start()
        until(lambda: count(conn, WAITING) == 1)
    waiter.join()
    assert [("redelivery", first.run_id)] == [(one.verdict, one.run_id) for one in told]


def test_what_rolled_back_leaves_no_content(conn: Conn) -> None:
    with conn.transaction(force_rollback=True):
        accept(conn, offer("1"))
    assert "new" == accept(conn, offer("2"))[0].verdict
