"""Signals: what is said to a live run is heard once, in order, by whoever asks for it."""

import json
from typing import Any

import pytest

from durable import (
    asking,
    begin,
    cancel,
    claim,
    complete,
    due,
    everything,
    fail,
    hear,
    journal,
    park,
    say,
    sleep,
)
from fix_world import Conn, one, row, second, start_run, status
from semel.core import transitions
from semel.core.waits import SIGNAL_BYTES_MAX, signal_send
from semel.db.execute import run
from semel.errors import BadRequest
from semel.model import Claim


def heard(conn: Conn, held: Claim, key: str, *, at: float = 0) -> Any:
    """What the step *key* takes at once; None when there is nothing."""
    [(_, outcome, content)] = park(conn, held, hear(key), at=at)
    return json.loads(content or "")["content"] if outcome == "ready" else None


def test_a_signal_that_comes_first_is_found_by_the_wait(conn: Conn) -> None:
    held = begin(conn)
    assert "won" == say(conn, held.run_id, "go", {"n": 1}, sender="ann", at=5)

    [answer] = park(conn, held, hear())

    told = {"content": {"n": 1}, "sender": "ann"}
    content = json.loads(answer[2] or "")
    assert ("go", "ready", told) == (*answer[:2], {k: content[k] for k in told})
    assert "RUNNING" == status(conn, held.run_id)
    assert [("go", "result", content)] == journal(conn, held.run_id)


def test_a_wait_that_comes_first_is_answered_by_the_signal(conn: Conn) -> None:
    held = begin(conn)
    park(conn, held, hear())

    assert ["won", "won"] == [say(conn, held.run_id, "go", n) for n in (1, 2)]

    assert "RESUMED" == status(conn, held.run_id)
    [(key, _, content)] = journal(conn, held.run_id)
    assert ("go", 1) == (key, content["content"])
    again = claim(conn)
    assert 2 == heard(conn, again, "go#2")
    assert [("go#3", "parked", None)] == park(conn, again, hear("go#3"))


def test_signals_are_taken_one_by_one_in_the_order_they_came_whatever_the_clock_does(
    conn: Conn,
) -> None:
    held = begin(conn)
    for n, at in enumerate((0.0, 0.0, -3600.0, 5.0, -7200.0)):
        say(conn, held.run_id, "go", n, at=at)

    assert [0, 1, 2, 3, 4] == [heard(conn, held, f"go#{n}") for n in range(5)]


def test_two_steps_that_wait_for_one_name_take_one_signal_each(conn: Conn) -> None:
    held = begin(conn)
    park(conn, held, hear("first"), at=0)
    conn.execute("update semel.wait set created_at = %s", (second(-1),))
    fence = row(conn, held.run_id)["fence"]
    say(conn, held.run_id, "go", 1)
    say(conn, held.run_id, "go", 2)

    assert fence + 1 == row(conn, held.run_id)["fence"]
    again = claim(conn)
    assert 2 == heard(conn, again, "second")
    assert [1, 2] == [content["content"] for _, _, content in journal(conn, held.run_id)]


def test_a_signal_of_another_name_wakes_nobody_and_is_kept(conn: Conn) -> None:
    held = begin(conn)
    park(conn, held, hear("go"), sleep(due=60))

    assert "won" == say(conn, held.run_id, "stop", 1)

    assert "WAITING_TOOL" == status(conn, held.run_id)
    due(conn, 60)
    [answer] = park(conn, claim(conn, at=60), hear("halt", "stop"))
    assert "ready" == answer[1]


def test_a_signal_of_another_name_that_came_first_is_not_taken(conn: Conn) -> None:
    held = begin(conn)
    say(conn, held.run_id, "stop", 1)

    assert [("go", "parked", None)] == park(conn, held, hear("go"))


def test_of_waits_for_several_names_the_one_that_is_said_is_answered(conn: Conn) -> None:
    held = begin(conn)
    park(conn, held, hear("a", "go"), hear("b", "stop"))

    say(conn, held.run_id, "stop", 1)

    assert "RESUMED" == status(conn, held.run_id)
    assert ["b"] == [key for key, _, _ in journal(conn, held.run_id)]


def test_a_signal_wins_over_the_end_of_its_wait(conn: Conn) -> None:
    held = begin(conn)
    say(conn, held.run_id, "go", 1)
    [answer] = park(conn, held, hear(due=-1))
    assert 1 == json.loads(answer[2] or "")["content"]


def test_a_signal_after_the_end_of_its_wait_is_kept_for_the_next(conn: Conn) -> None:
    held = begin(conn)
    park(conn, held, hear(due=10))
    due(conn, 10)
    say(conn, held.run_id, "go", 1, at=11)

    assert [("go", "result", {"timed_out": True})] == journal(conn, held.run_id)
    assert 1 == heard(conn, claim(conn, at=11), "go#2", at=11)


def test_a_key_makes_a_signal_heard_once_also_after_it_was_taken(conn: Conn) -> None:
    held = begin(conn)

    def send(name: str = "go", key: str = "k") -> str:
        return say(conn, held.run_id, name, 1, key=key)

    assert ["won", "duplicate"] == [send(), send()]
    assert 1 == heard(conn, held, "go")
    assert "duplicate" == send()
    assert ["won", "won"] == [send(key="l"), send(name="stop")]
    assert 3 == one(conn, "select count(*) from semel.signals")


def test_the_same_key_is_another_signal_for_another_run(conn: Conn) -> None:
    runs = [start_run(conn), start_run(conn)]
    assert ["won", "won"] == [say(conn, run_id, key="k") for run_id in runs]


# -- in every state --------------------------------------------------------------------------


def test_a_run_keeps_what_it_hears_in_every_live_state(conn: Conn) -> None:
    run_id = start_run(conn)
    said = [say(conn, run_id, "go", "PENDING")]
    held = claim(conn)
    said.append(say(conn, run_id, "go", "RUNNING"))
    park(conn, held, sleep(due=10))
    said.append(say(conn, run_id, "go", "WAITING_TOOL"))
    assert "WAITING_TOOL" == status(conn, run_id)
    due(conn, 10)
    said.append(say(conn, run_id, "go", "RESUMED"))
    held = claim(conn, at=10)
    park(conn, held, asking(), sleep("b", due=10), at=10)
    said.append(say(conn, run_id, "go", "WAITING_APPROVAL"))
    assert "WAITING_APPROVAL" == status(conn, run_id)
    due(conn, 20)
    held = claim(conn, at=20)

    assert ["won"] * 5 == said
    words = ["PENDING", "RUNNING", "WAITING_TOOL", "RESUMED", "WAITING_APPROVAL"]
    assert words == [heard(conn, held, f"go#{n}", at=20) for n in range(5)]


def test_what_was_said_outlives_a_failed_attempt_and_an_operators_retry(conn: Conn) -> None:
    held = begin(conn)
    say(conn, held.run_id, "go", 1)
    fail(conn, held)
    assert "won" == run(conn, transitions.run_retry("p", held.run_id))[0]

    assert 1 == heard(conn, claim(conn), "go")


@pytest.mark.parametrize("end", ["COMPLETED", "FAILED", "CANCELLED"])
def test_a_finished_run_hears_nothing(conn: Conn, end: str) -> None:
    held = begin(conn)
    match end:
        case "COMPLETED":
            complete(conn, held)
        case "FAILED":
            fail(conn, held)
        case _:
            cancel(conn, held.run_id)
    before = everything(conn)

    assert ("refused", end) == run(conn, signal_send("p", held.run_id, "go"))
    assert before == everything(conn)


def test_a_run_nobody_knows_is_unknown_and_so_is_one_of_another_project(conn: Conn) -> None:
    elsewhere = start_run(conn, project="q")
    for run_id in (one(conn, "select gen_random_uuid()"), elsewhere):
        assert ("unknown", None) == run(conn, signal_send("p", run_id, "go"))
    assert 0 == one(conn, "select count(*) from semel.signals")


def test_a_signal_is_part_of_the_callers_transaction(conn: Conn) -> None:
    held = begin(conn)
    park(conn, held, hear())
    before = everything(conn)
    with conn.transaction(force_rollback=True):
        say(conn, held.run_id)
    assert before == everything(conn)


# -- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("", None),
        ("n" * 256, None),
        ("é" * 128, None),
        ("go", "x" * SIGNAL_BYTES_MAX),
        ("go", float("nan")),
        ("go", object()),
    ],
)
def test_a_signal_that_is_none_is_refused_before_it_is_sent(
    conn: Conn, name: str, content: Any
) -> None:
    with pytest.raises(BadRequest):
        say(conn, start_run(conn), name, content)


@pytest.mark.parametrize("name", [None, "", "n" * 256])
def test_the_sql_refuses_a_name_that_no_handler_could_wait_for(
    conn: Conn, name: str | None
) -> None:
    run_id = start_run(conn)
    with pytest.raises(Exception, match="a signal without a name") as caught:
        conn.execute("select * from semel.signal_send('p', %s, %s)", (run_id, name))
    assert "SMQ01" == caught.value.sqlstate  # type: ignore[attr-defined]
