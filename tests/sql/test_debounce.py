"""Calls that come soon after one another become one run, with the last one's input."""

import threading
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

import semel
from fix_world import LEASE, Conn, one, row, second, until_blocked
from semel.core import claims, debounce, runs, transitions
from semel.db.execute import run
from semel.errors import BadRequest
from semel.model import Started

TEN = timedelta(seconds=10)


def call(conn: Conn, value: Any, at: float, **more: Any) -> Started:
    told = {"key": "k", "quiet": TEN, "now": second(at), **more}
    return run(conn, debounce.run_debounce("p", "a", value, **told))


def due(conn: Conn, at: float) -> int:
    return run(conn, claims.run_due("p", now=second(at)))


def claimed(conn: Conn) -> list[str]:
    return [c.text for c in run(conn, claims.run_claim("p", "a", "w", limit=9, lease=LEASE))]


def test_calls_collapse_until_there_was_none_for_the_quiet_time(conn: Conn) -> None:
    first = call(conn, 1, 0)
    assert ("replaced", first.run_id) == (call(conn, 2, 9).outcome, call(conn, 3, 9).run_id)
    other = call(conn, "other", 5, key="another")

    assert 1 == due(conn, 15)
    assert 0 == due(conn, 18.9)
    assert 1 == due(conn, 19)
    assert {"3", '"other"'} == set(claimed(conn))
    assert other.run_id != first.run_id
    assert 2 == one(conn, "select count(*) from semel.runs")


def test_it_waits_no_longer_than_its_longest_wait_from_the_first_call(conn: Conn) -> None:
    for at in (0, 8, 16, 24):
        call(conn, at, at, longest=timedelta(seconds=25))
    assert 0 == due(conn, 24.9)
    assert 1 == due(conn, 25)
    assert ["24"] == claimed(conn)


def test_a_run_that_is_ready_takes_an_input_and_keeps_its_place(conn: Conn) -> None:
    first = call(conn, 1, 0)
    due(conn, 10)
    ready = row(conn, first.run_id)["ready_at"]

    assert "replaced" == call(conn, 2, 11).outcome

    assert (ready, None) == tuple(row(conn, first.run_id)[c] for c in ("ready_at", "due_at"))
    assert ["2"] == claimed(conn)


@pytest.mark.parametrize("touched", ["claimed", "ended", "cancelled", "hurried", "given back"])
def test_a_call_starts_another_run_once_the_first_was_touched(conn: Conn, touched: str) -> None:
    first = call(conn, 1, 0)
    if touched == "cancelled":
        run(conn, transitions.run_cancel("p", first.run_id))
    elif touched == "hurried":
        run(conn, transitions.run_retry("p", first.run_id))
    else:
        due(conn, 10)
        [held] = run(conn, claims.run_claim("p", "a", "w", limit=9, lease=LEASE))
        if touched == "ended":
            run(conn, runs.run_complete("p", "w", [(held.run_id, 1, "1")]))
        elif touched == "given back":
            run(conn, runs.run_release("p", "w", [(held.run_id, 1)]))

    again = call(conn, 2, 11)

    assert "new" == again.outcome
    assert first.run_id != again.run_id
    assert [1, 2] == [row(conn, each.run_id)["input"] for each in (first, again)]
    assert ("replaced", again.run_id) == (call(conn, 3, 12).outcome, call(conn, 3, 12).run_id)


def test_the_first_call_is_that_of_the_run_and_not_of_the_key(conn: Conn) -> None:
    longest = timedelta(seconds=15)
    call(conn, 1, 0, longest=longest)
    due(conn, 10)
    claimed(conn)
    call(conn, 2, 20, longest=longest)
    assert 0 == due(conn, 29)
    call(conn, 3, 29, longest=longest)
    assert 0 == due(conn, 34)
    assert 1 == due(conn, 35)


def test_large_and_small_inputs_replace_each_other(conn: Conn) -> None:
    large = "x" * 5000
    first = call(conn, large, 0)
    for value in (1, large, large + "y", None):
        call(conn, value, 1)
        assert value == row(conn, first.run_id)["input"]
    assert 0 == one(conn, "select count(*) from semel.run_input")


def test_a_call_waits_for_a_claim_and_its_input_is_not_lost(conn: Conn, other: Conn) -> None:
    """The race: the run is being claimed while the call comes."""
    first = call(conn, 1, 0)
    due(conn, 10)
    with conn.transaction():
        assert ["1"] == claimed(conn)
        answers: list[Started] = []
        thread = threading.Thread(target=lambda: answers.append(call(other, 2, 11)))
        thread.start()
        until_blocked(conn, other.info.backend_pid)
    thread.join()

    assert ("new", True) == (answers[0].outcome, answers[0].run_id != first.run_id)
    assert 2 == row(conn, answers[0].run_id)["input"]


def test_a_call_that_has_not_committed_is_passed_over_by_a_claim(
    conn: Conn, other: Conn
) -> None:
    call(conn, 1, 0)
    due(conn, 10)
    with other.transaction():
        call(other, 2, 11)
        assert [] == claimed(conn)
    assert ["2"] == claimed(conn)


def test_keys_of_runs_that_are_gone_are_forgotten(conn: Conn) -> None:
    old, alive = call(conn, 1, 0), call(conn, 1, 0, key="alive")
    now: datetime = one(conn, "select clock_timestamp()")
    run(conn, transitions.run_cancel("p", old.run_id))
    assert 0 == run(conn, debounce.debounce_expire("p", now=now))
    assert 1 == run(conn, debounce.debounce_expire("p", now=now + timedelta(days=1, seconds=9)))
    assert alive.run_id == one(conn, "select run_id from semel.debounce")


def test_start_debounces_on_the_callers_connection(conn: Conn) -> None:
    def begin(value: Any, **more: Any) -> Started:
        told: Any = {"debounce": "30s", "debounce_key": "k", "priority": 7, **more}
        began: Started = semel.start(conn, project="p", agent="a", input=value, **told)
        return began

    assert ["new", "replaced"] == [begin(1).outcome, begin({"n": 2}).outcome]
    assert ({"n": 2}, 7) == tuple(
        conn.execute("select input, priority from semel.runs").fetchall()[0]
    )
    for more, said in (
        ({"debounce": None}, "go together"),
        ({"debounce_key": None}, "go together"),
        ({"debounce_key": ""}, "debounce_key is a text"),
        ({"debounce": "soon"}, "debounce"),
        ({"debounce": timedelta(0)}, "above 0"),
        ({"debounce_max": "1s"}, "shorter"),
        ({"key": "x"}, "key and debounce"),
        ({"unique": "x"}, "unique and debounce"),
    ):
        with pytest.raises(BadRequest, match=said):
            begin(3, **more)


@pytest.mark.parametrize(
    "told",
    [
        "'k', '0 s'",
        "'k', '-1 s'",
        "'k', null",
        "'', '1 s'",
        "null, '1 s'",
        "'k', '2 s', '1 s'",
    ],
)
def test_sql_refuses_what_is_no_debounce(conn: Conn, told: Any) -> None:
    with pytest.raises(psycopg.Error, match="a debounce without"):
        conn.execute(f"select semel.run_debounce('p', 'a', '1', {told})")
    assert 0 == one(conn, "select count(*) from semel.runs")
