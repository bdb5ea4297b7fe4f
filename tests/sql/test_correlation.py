"""Correlation: events of one key are signals to the live run of a joining agent, each once."""

from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

import pytest

from durable import cancel, claim, complete, fail, hear, journal, park
from fix_world import Conn, one, row, status
from semel.core import inbox, transitions, workers
from semel.core.story import show_run
from semel.db.execute import run
from semel.model import Accepted, Alert, Notice, Offer

START = 1_000_000_000_000_000_000


def announce(conn: Conn, agent: str = "a", *, joins: bool = True) -> None:
    served = [(agent, 3, None, "async")]
    run(
        conn,
        workers.worker_register(
            "p", "w", host="h", pid=1, slots=4, agents=served, joins=[joins]
        ),
    )


@pytest.fixture
def joining(conn: Conn) -> None:
    """Agent a joins."""
    announce(conn)


def offer(key: str, correlation: str | None = "c", **more: Any) -> Offer:
    told: dict[str, Any] = {"source": "s", "channel": "api", "agent": "a", "input": {"n": key}}
    return Offer(id=key, correlation=correlation, **(told | more))


def accept(conn: Conn, *offers: Offer) -> list[Accepted]:
    return run(conn, inbox.event_accept("p", offers))


def signals(conn: Conn, run_id: Any = None) -> list[tuple[str, Any]]:
    """(name, content) of what was said, oldest first; to one run, or all."""
    return conn.execute(
        "select name, content from semel.signals where %s::uuid is null or run_id = %s"
        " order by sent_at, signal_id",
        (run_id, run_id),
    ).fetchall()


def at(accepted: Accepted) -> UUID:
    """The run that it is in."""
    assert accepted.run_id
    return accepted.run_id


def links(conn: Conn, run_id: Any) -> list[tuple[str, UUID]]:
    return conn.execute(
        "select relation, event_id from semel.run_events where run_id = %s and relation <> 'made'"
        " order by first_seen_at, event_id",
        (run_id,),
    ).fetchall()


def count(conn: Conn) -> tuple[int, int]:
    return (
        one(conn, "select count(*) from semel.runs"),
        one(conn, "select count(*) from semel.events"),
    )


# -- joining ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("joining")
def test_the_first_event_of_a_key_makes_a_run_and_the_next_is_told_to_it(conn: Conn) -> None:
    [first] = accept(conn, offer("1"))
    [second] = accept(conn, offer("2"))

    assert ("new", "new") == (first.verdict, second.verdict)
    assert first.run_id == second.run_id
    assert first.event_id != second.event_id
    assert "joins the live run" in second.reason
    assert "joins" not in first.reason
    assert [("event", {"n": "2"})] == signals(conn, first.run_id)
    [(sender, event_id)] = conn.execute("select sender, event_id from semel.signals").fetchall()
    assert ("s", second.event_id) == (sender, event_id)
    assert [("joined", second.event_id)] == links(conn, first.run_id)
    assert (1, 2) == count(conn)
    assert first.run_id == one(
        conn, "select run_id from semel.events where event_id = %s", second.event_id
    )
    verdicts = conn.execute("select verdict, run_id from semel.deliveries").fetchall()
    assert [("new", first.run_id)] * 2 == verdicts
    assert "correlation:s:c" == row(conn, at(first))["unique_key"]


@pytest.mark.usefixtures("joining")
def test_a_run_that_waits_for_it_goes_on_with_what_the_event_says(conn: Conn) -> None:
    accept(conn, offer("1"))
    held = claim(conn)
    park(conn, held, hear(name="event"))
    accept(conn, offer("2"))

    assert "RESUMED" == status(conn, held.run_id)
    [(_, _, heard)] = journal(conn, held.run_id)
    assert ({"n": "2"}, "s") == (heard["content"], heard["sender"])


@pytest.mark.usefixtures("joining")
def test_a_redelivery_of_what_joined_is_a_duplicate_and_says_nothing(conn: Conn) -> None:
    [first] = accept(conn, offer("1"))
    accept(conn, offer("2"))
    again, one_more, new = accept(conn, offer("2"), offer("2"), offer("3"))

    assert ["duplicate", "duplicate", "new"] == [a.verdict for a in (again, one_more, new)]
    assert {first.run_id} == {a.run_id for a in (again, one_more, new)}
    assert [("event", {"n": "2"}), ("event", {"n": "3"})] == signals(conn)
    [hits] = conn.execute(
        "select hits from semel.events where provider_event_id = '2'"
    ).fetchall()
    assert (3,) == hits


@pytest.mark.usefixtures("joining")
def test_of_one_batch_the_first_makes_the_run_and_the_others_join_it_in_their_order(
    conn: Conn,
) -> None:
    told = accept(conn, offer("1"), offer("9", "other"), offer("2"), offer("2"), offer("0"))

    assert ["new", "new", "new", "duplicate", "new"] == [a.verdict for a in told]
    first, other, *rest = [a.run_id for a in told]
    assert {first} == set(rest) != {other}
    assert [("event", {"n": "2"}), ("event", {"n": "0"})] == signals(conn, first)
    assert [] == signals(conn, other)


@pytest.mark.usefixtures("joining")
@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_when_the_holder_has_ended_the_next_event_has_a_run_again(conn: Conn, end: str) -> None:
    [first] = accept(conn, offer("1"))
    held = claim(conn)
    match end:
        case "complete":
            complete(conn, held)
        case "fail":
            fail(conn, held)
        case _:
            cancel(conn, held.run_id)

    [second] = accept(conn, offer("2"))

    assert first.run_id != second.run_id
    assert [] == signals(conn)
    assert (2, 2) == count(conn)
    [again] = accept(conn, offer("1"))
    assert ("duplicate", first.run_id) == (again.verdict, again.run_id)


@pytest.mark.usefixtures("joining")
def test_a_retried_run_holds_its_key_again_unless_another_has_it_now(conn: Conn) -> None:
    [first] = accept(conn, offer("1"))
    fail(conn, claim(conn))
    assert "won" == run(conn, transitions.run_retry("p", at(first)))[0]
    assert first.run_id == accept(conn, offer("2"))[0].run_id
    fail(conn, claim(conn))
    [third] = accept(conn, offer("3"))
    assert first.run_id != third.run_id
    assert "refused" == run(conn, transitions.run_retry("p", at(first)))[0]


@pytest.mark.usefixtures("joining")
def test_keys_are_of_one_source_one_agent_and_one_project(conn: Conn) -> None:
    announce(conn, "b")
    told = accept(
        conn, offer("1"), offer("2", source="t"), offer("3", agent="b"), offer("4", "C"), offer("5", None),
        offer("6", ""), offer("7", verdict="quarantined", reason="x"), offer("8", agent=None),
    )  # fmt: skip

    made = [a.run_id for a in told if a.run_id]
    assert 6 == len(made) == len(set(made))
    assert [] == signals(conn)
    run(conn, inbox.event_accept("q", [offer("1")]))
    assert 7 == count(conn)[0]


@pytest.mark.usefixtures("joining")
def test_a_key_may_be_long(conn: Conn) -> None:
    long = "k" * 10_000
    [first] = accept(conn, offer("1", long))
    [second], [other] = accept(conn, offer("2", long)), accept(conn, offer("3", long + "x"))

    assert first.run_id == second.run_id != other.run_id
    assert len(row(conn, at(first))["unique_key"]) < 100


def test_an_agent_that_does_not_join_has_a_run_for_each_event(conn: Conn) -> None:
    accept(conn, offer("0"))
    announce(conn, joins=False)
    accept(conn, offer("1"), offer("2"))
    assert (3, []) == (count(conn)[0], signals(conn))
    assert {None} == {u for [u] in conn.execute("select unique_key from semel.runs")}

    announce(conn)
    accept(conn, offer("3"), offer("4"))
    assert (4, 1) == (count(conn)[0], len(signals(conn)))


@pytest.mark.usefixtures("joining")
def test_what_asks_for_a_unique_key_itself_is_not_told_to_anyone(conn: Conn) -> None:
    told = accept(conn, offer("1"), offer("2", unique="u"), offer("3", unique="u"))
    assert ["new", "new", "duplicate"] == [a.verdict for a in told]
    assert told[0].run_id != told[1].run_id == told[2].run_id
    assert [] == signals(conn)


@pytest.mark.usefixtures("joining")
def test_delays_and_deadlines_are_of_the_run_that_is_made(conn: Conn) -> None:
    hour = timedelta(hours=1)
    [first] = accept(conn, offer("1", delay=hour, deadline=2 * hour))
    [second] = accept(conn, offer("2", delay=3 * hour, deadline=4 * hour))

    assert first.run_id == second.run_id
    made = row(conn, at(first))
    assert hour == made["deadline_at"] - made["due_at"]
    assert made["due_at"] - made["created_at"] < 2 * hour
    assert [("event", {"n": "2"})] == signals(conn)


@pytest.mark.usefixtures("joining")
def test_what_is_rolled_back_was_said_to_nobody(conn: Conn) -> None:
    accept(conn, offer("1"))
    with conn.transaction(force_rollback=True):
        accept(conn, offer("2"))
    assert ([], (1, 1)) == (signals(conn), count(conn))
    assert "new" == accept(conn, offer("2"))[0].verdict


@pytest.mark.usefixtures("joining")
def test_an_id_past_its_memory_joins_as_a_new_event(conn: Conn) -> None:
    [first] = accept(conn, offer("1"))
    accept(conn, offer("2"))
    later = one(conn, "select clock_timestamp() + interval '8 days'")

    [again] = run(conn, inbox.event_accept("p", [offer("2")], now=later))

    assert ("new", first.run_id) == (again.verdict, again.run_id)
    assert [("event", {"n": "2"})] * 2 == signals(conn)


@pytest.mark.usefixtures("joining")
def test_the_story_of_a_run_has_what_joined_it(conn: Conn) -> None:
    [first] = accept(conn, offer("1"))
    [second] = accept(conn, offer("2"))

    story: Any = run(conn, show_run("p", at(first)))

    assert ["made", "joined"] == [event["relation"] for event in story["events"]]
    assert {"key": "correlation:s:c"} == story["events"][1]["content"]
    assert [str(second.event_id)] == [signal["event_id"] for signal in story["signals"]]
    assert 2 == len(story["deliveries"])


# -- alerts ----------------------------------------------------------------------------------


def alert(
    name: str, status: Literal["firing", "resolved"] = "firing", starts: int = START
) -> Alert:
    return Alert(
        fingerprint=name, status=status, starts_ns=starts,
        ends_ns=0 if status == "firing" else starts + 1, alert={"name": name, "status": status},
    )  # fmt: skip


def notice(
    body: str, *alerts: Alert, group: str | None = "{}:{job='x'}", **more: Any
) -> Notice:
    told: dict[str, Any] = {"source": "am", "agent": "a", "headers": {}, "grace": inbox.GRACE}
    envelope: dict[str, Any] = {"groupKey": group} if group else {}
    return Notice(envelope=envelope, alerts=list(alerts), body=body.encode(), **(told | more))


def tell(conn: Conn, *notices: Notice) -> list[list[Accepted]]:
    return run(conn, inbox.notification_fold("p", notices))


@pytest.mark.usefixtures("joining")
def test_an_alert_that_joins_a_group_is_told_to_the_groups_run(conn: Conn) -> None:
    [[first]] = tell(conn, notice("1", alert("f")))
    [[second]] = tell(conn, notice("2", alert("f"), alert("g")))

    assert ("new", first.run_id) == (second.verdict, second.run_id)
    assert "alert g fires; it joins" in second.reason
    [(name, content)] = signals(conn, first.run_id)
    assert ("event", [{"name": "g", "status": "firing"}]) == (name, content["alerts"])
    assert [("joined", second.event_id)] == links(conn, first.run_id)
    assert (1, 2) == count(conn)
    assert {first.run_id} == {r for [r] in conn.execute("select run_id from semel.fold")}
    assert "duplicate" == tell(conn, notice("2", alert("f"), alert("g")))[0][0].verdict
    assert 1 == len(signals(conn))


@pytest.mark.usefixtures("joining")
def test_a_resolution_reaches_the_run_that_its_alert_joined(conn: Conn) -> None:
    [[first]] = tell(conn, notice("1", alert("f")))
    tell(conn, notice("2", alert("f"), alert("g")))
    held = claim(conn)
    park(conn, held, hear(name="resolved"))

    [[over]] = tell(conn, notice("3", alert("g", "resolved"), alert("f")))

    assert ("new", first.run_id) == (over.verdict, over.run_id)
    assert ("resolved", over.event_id) in links(conn, first.run_id)
    assert [("resolved", [{"name": "g", "status": "resolved"}])] == signals(conn)[1:]
    assert "RESUMED" == status(conn, held.run_id)


@pytest.mark.usefixtures("joining")
def test_one_batch_of_groups_joins_each_its_own(conn: Conn) -> None:
    told = tell(
        conn,
        notice("1", alert("a"), group="A"), notice("2", alert("b"), group="B"),
        notice("3", alert("c"), group="A"), notice("4", alert("d"), group=None),
        notice("5", alert("e"), alert("f"), group="B", unit="alert"),
    )  # fmt: skip

    runs = [[accepted.run_id for accepted in each] for each in told]
    [[a], [b], [c], [d], [e, f]] = runs
    assert (a, b, b) == (c, e, f)
    assert 3 == len({a, b, d}) == count(conn)[0]
    assert (1, 2) == (len(signals(conn, a)), len(signals(conn, b)))


@pytest.mark.usefixtures("joining")
def test_where_resolutions_are_work_they_join_too_and_are_told_as_resolved(conn: Conn) -> None:
    both: Any = {"run_on": "firing+resolved"}
    [[first]] = tell(conn, notice("1", alert("f"), **both))
    [[over]] = tell(conn, notice("2", alert("f", "resolved"), **both))

    assert first.run_id == over.run_id
    assert {"event", "resolved"} == {name for name, _ in signals(conn, first.run_id)}
    assert [("resolved", over.event_id)] == links(conn, first.run_id)
    assert (1, 2) == count(conn)


@pytest.mark.parametrize("run_on", ["firing", "firing+resolved"])
def test_a_resolution_is_told_to_a_live_run_whether_or_not_its_agent_joins(
    conn: Conn, run_on: Any
) -> None:
    [[first]] = tell(conn, notice("1", alert("f"), alert("g"), run_on=run_on))
    held = claim(conn)
    park(conn, held, hear(name="resolved"))
    [[over]] = tell(conn, notice("2", alert("f", "resolved"), alert("g"), run_on=run_on))

    assert [("resolved", [{"name": "f", "status": "resolved"}])] == signals(conn, first.run_id)
    assert "RESUMED" == status(conn, held.run_id)
    assert ("resolved", over.event_id) in links(conn, held.run_id)
    assert (1 if run_on == "firing" else 2) == count(conn)[0]
    tell(conn, notice("2", alert("f", "resolved"), alert("g"), run_on=run_on))
    assert 1 == len(signals(conn))


def test_a_resolution_of_a_run_that_has_ended_is_linked_and_told_to_nobody(conn: Conn) -> None:
    [[first]] = tell(conn, notice("1", alert("f")))
    complete(conn, claim(conn))
    [[over]] = tell(conn, notice("2", alert("f", "resolved")))

    assert ("new", first.run_id) == (over.verdict, over.run_id)
    assert ([], [("resolved", over.event_id)]) == (signals(conn), links(conn, first.run_id))


def test_a_superseded_episode_is_linked_and_not_resolved(conn: Conn) -> None:
    [[first]] = tell(conn, notice("1", alert("f"), alert("g")))
    later = START + 3600 * 10**9
    [[over]] = tell(conn, notice("2", alert("f", starts=later), alert("g", "resolved")))

    assert first.run_id != over.run_id
    assert [("resolved", [{"name": "g", "status": "resolved"}])] == signals(conn, first.run_id)


def test_a_resolution_of_two_runs_is_told_to_both(conn: Conn) -> None:
    tell(conn, notice("1", alert("f")))
    tell(conn, notice("2", alert("g")))
    [[over]] = tell(conn, notice("3", alert("f", "resolved"), alert("g", "resolved")))

    told = conn.execute("select run_id, content, event_id from semel.signals").fetchall()
    assert 2 == len({run_id for run_id, _, _ in told})
    assert {("f", over.event_id), ("g", over.event_id)} == {
        (c[0]["name"], e) for _, c, e in told
    }
