"""Starting a run: once for a key, in its caller's transaction, and not before its time."""

from datetime import timedelta
from typing import Any

import pytest

from fix_world import LEASE, Conn, one, row, second, start_run, status
from semel.core import claims, inbox, runs
from semel.db.execute import run
from semel.errors import BadKey, BadRequest
from semel.model import Accepted, Offer


def test_a_started_run_is_part_of_the_callers_transaction(conn: Conn) -> None:
    with pytest.raises(ZeroDivisionError), conn.transaction():
        gone = start_run(conn, key="k")
        assert "PENDING" == status(conn, gone)
        raise ZeroDivisionError
    assert 0 == one(conn, "select count(*) from semel.runs")
    assert 0 == one(conn, "select count(*) from semel.events")
    assert start_run(conn, key="k") != gone


def test_a_key_starts_one_run_while_it_is_remembered(conn: Conn) -> None:
    def start(value: Any, at: float) -> Any:
        return run(conn, runs.run_start("p", "a", value, key="k", now=second(at)))

    day = 86_400
    first, same, other = start(1, 0), start(1, 6 * day), start(2, 6 * day)
    assert ["new", "duplicate", "conflict"] == [s.outcome for s in (first, same, other)]
    assert first.run_id == same.run_id
    assert "duplicate" == start(1, 13 * day - 1).outcome
    forgotten = start(2, 20 * day)
    assert "new" == forgotten.outcome
    assert forgotten.run_id != first.run_id


def test_a_delayed_run_waits_for_its_time(conn: Conn) -> None:
    start_run(conn, delay=timedelta(hours=1))
    created = one(conn, "select created_at from semel.runs")
    claim = claims.run_claim("p", "a", "w", limit=1, lease=LEASE)

    assert [] == run(conn, claim)
    assert 0 == run(conn, claims.run_due("p", now=created + timedelta(minutes=59)))
    assert 1 == run(conn, claims.run_due("p", now=created + timedelta(minutes=61)))
    assert 1 == len(run(conn, claim))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"project": "Not A Slug"}, BadRequest),
        ({"project": ""}, BadRequest),
        ({"agent": ""}, BadRequest),
        ({"agent": "a b"}, BadRequest),
        ({"priority": 10}, BadRequest),
        ({"max_attempts": 0}, BadRequest),
        ({"unique": ""}, BadRequest),
        ({"unique": "u" * 256}, BadRequest),
        ({"unique": "a\0"}, BadRequest),
        ({"key": ""}, BadKey),
        ({"key": "k" * 256}, BadKey),
        ({"value": float("nan")}, BadRequest),
        ({"value": "\0"}, BadRequest),
        ({"value": object()}, BadRequest),
    ],
)
def test_a_bad_argument_is_refused_before_the_transaction_could_be_hurt(
    conn: Conn, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with conn.transaction():
        with pytest.raises(error):
            start_run(conn, **arguments)
        start_run(conn)
    assert 1 == one(conn, "select count(*) from semel.runs")


def test_agent_and_input_are_all_that_a_key_compares(conn: Conn) -> None:
    first = run(conn, runs.run_start("p", "a", {"x": 1, "y": [2]}, key="k"))
    others: list[dict[str, Any]] = [
        {"priority": 9},
        {"max_attempts": 1},
        {"delay": timedelta(hours=1)},
        {"deadline": timedelta(hours=1)},
        {"unique": "u"},
    ]

    for other in others:
        again = run(conn, runs.run_start("p", "a", {"y": [2], "x": 1}, key="k", **other))
        assert ("duplicate", first.run_id) == (again.outcome, again.run_id), other
    for agent, value in (("b", {"x": 1, "y": [2]}), ("a", {"x": 1.0, "y": [2]}), ("a", None)):
        again = run(conn, runs.run_start("p", agent, value, key="k"))
        assert ("conflict", first.run_id) == (again.outcome, again.run_id)
    shown = row(conn, first.run_id)
    assert (5, None, None) == (shown["priority"], shown["deadline_at"], shown["unique_key"])


# -- unique keys, of events that arrive together ---------------------------------------------


def accept(conn: Conn, *told: tuple[str, str]) -> list[Accepted]:
    offers = [
        Offer(source="s", channel="api", id=key, agent="a", unique=unique)
        for key, unique in told
    ]
    return run(conn, inbox.event_accept("p", offers))


def test_of_one_batch_the_first_has_the_unique_key(conn: Conn) -> None:
    accepted = accept(conn, ("1", "u"), ("2", "v"), ("3", "u"), ("3", "u"))

    assert [each.verdict for each in accepted] == ["new", "new", "duplicate", "duplicate"]
    assert accepted[0].run_id == accepted[2].run_id == accepted[3].run_id
    assert 2 == one(conn, "select count(*) from semel.runs")
    assert 2 == one(conn, "select count(*) from semel.events")


def test_the_holder_of_a_unique_key_may_have_no_event(conn: Conn) -> None:
    holder = start_run(conn, unique="u")

    [found] = accept(conn, ("1", "u"))

    assert (found.verdict, found.run_id, found.event_id) == ("duplicate", holder, None)
