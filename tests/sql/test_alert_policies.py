"""What a source may ask of its alerts: a reminder that is an event, and a word on what was cut off."""

from datetime import datetime, timedelta
from typing import Any, Literal

import pytest

from fix_world import NOW, Conn, one, row
from semel.core import inbox, runs, upkeep
from semel.core.claims import run_claim
from semel.db.execute import run
from semel.model import Accepted, Alert

START = 1_000_000 * 1_000_000_000
DAY = timedelta(days=1)


def tell(
    conn: Conn,
    at: datetime,
    *names: str,
    status: Literal["firing", "resolved"] = "firing",
    reminder: timedelta | None = DAY,
    source: str = "am",
    starts: int = START,
    **envelope: Any,
) -> Accepted:
    alerts = [
        Alert(
            fingerprint=name,
            status=status,
            starts_ns=starts,
            ends_ns=0 if status == "firing" else START + 1,
            alert={"name": name},
        )
        for name in names or ("f",)
    ]
    call = inbox.alert_accept(
        "p",
        source,
        "a",
        envelope,
        alerts,
        body=f"{at}".encode(),
        headers={},
        reminder=reminder,
        now=at,
    )
    [accepted] = run(conn, call)
    return accepted


def finish(conn: Conn) -> None:
    """Complete whatever is ready."""
    for claim in run(conn, run_claim("p", "a", "w", limit=9, lease=DAY)):
        run(conn, runs.run_complete("p", "w", [(claim.run_id, claim.fence, "null")]))


def after(**span: float) -> datetime:
    return NOW + timedelta(**span)


def test_a_reminder_is_an_event_and_a_run_once_the_time_since_the_last_has_passed(
    conn: Conn,
) -> None:
    fired = tell(conn, NOW)
    finish(conn)
    told = [tell(conn, after(hours=h)) for h in (4, 23.9, 24, 28, 47.9)]
    finish(conn)
    told.append(tell(conn, after(hours=48)))

    assert ["reminder", "reminder", "new", "reminder", "reminder", "new"] == [
        each.verdict for each in told
    ]
    assert "alert f still fires" == told[2].reason
    assert 3 == len({fired.run_id, told[2].run_id, told[5].run_id})
    assert 3 == one(conn, "select count(*) from semel.runs")
    assert 3 == one(conn, "select count(distinct provider_event_id) from semel.events")
    assert "reminded" == one(
        conn,
        "select relation from semel.run_events where run_id = %s and relation <> 'made'",
        fired.run_id,
    )


def test_a_reminder_is_counted_while_the_run_of_its_episode_lives(conn: Conn) -> None:
    fired = tell(conn, NOW)

    assert "reminder" == tell(conn, after(days=3)).verdict
    finish(conn)
    assert "new" == tell(conn, after(days=3, hours=1)).verdict
    assert row(conn, fired.run_id)["status"] == "COMPLETED" if fired.run_id else False


def test_reminders_are_counted_where_the_source_does_not_ask_for_more(conn: Conn) -> None:
    tell(conn, NOW, reminder=None)
    finish(conn)

    assert "reminder" == tell(conn, after(days=300), reminder=None).verdict


def test_a_retry_of_a_reminder_makes_no_second_event(conn: Conn) -> None:
    tell(conn, NOW)
    finish(conn)
    new = tell(conn, after(days=1))

    again = tell(conn, after(days=1))

    assert ("new", "duplicate") == (new.verdict, again.verdict)
    assert (new.run_id, new.event_id) == (again.run_id, again.event_id)


def test_a_reminder_is_of_the_same_episode_whichever_peer_tells_it(conn: Conn) -> None:
    tell(conn, NOW)
    finish(conn)
    before = conn.execute("select episode, starts_ns from semel.fold").fetchall()

    assert "new" == tell(conn, after(days=1), starts=START + 2_000_000_000).verdict

    assert before == conn.execute("select episode, starts_ns from semel.fold").fetchall()


def test_a_resolution_is_told_to_the_run_of_the_last_reminder(conn: Conn) -> None:
    tell(conn, NOW)
    finish(conn)
    reminded = tell(conn, after(days=1))

    resolved = tell(conn, after(days=1, minutes=1), status="resolved")

    assert ("new", reminded.run_id) == (resolved.verdict, resolved.run_id)
    assert 2 == one(conn, "select count(*) from semel.runs")


def test_what_joins_a_reminded_group_is_in_the_same_event(conn: Conn) -> None:
    tell(conn, NOW)
    finish(conn)

    both = tell(conn, after(days=1), "f", "g")

    assert "alert f still fires, alert g fires" == both.reason
    assert 2 == one(
        conn,
        "select jsonb_array_length(input -> 'alerts') from semel.runs where run_id = %s",
        both.run_id,
    )


@pytest.mark.parametrize(
    ("told", "said"),
    [(3, "cut 3 alerts off"), (0, ""), (None, ""), ("3", ""), (-1, ""), (True, ""), ([3], "")],
)
def test_a_list_that_was_cut_is_said_to_be(conn: Conn, told: Any, said: str) -> None:
    first = tell(conn, NOW, truncatedAlerts=told)
    second_time = tell(conn, after(hours=4), truncatedAlerts=told)

    for each in (first, second_time):
        assert ("Alertmanager cut" in each.reason) == bool(said)
        assert said in each.reason
    kept = conn.execute("select reason from semel.deliveries order by received_at").fetchall()
    assert kept == [(first.reason,), (second_time.reason,)]


def test_an_episode_goes_stale_as_its_own_source_says(conn: Conn) -> None:
    tell(conn, NOW)
    tell(conn, NOW, source="slow")
    later = after(days=2)

    assert 1 == run(conn, upkeep.fold_stale("p", DAY, but=["slow"], now=later))
    assert 0 == run(conn, upkeep.fold_stale("p", DAY, only=["other"], now=later))
    assert 1 == run(conn, upkeep.fold_stale("p", DAY, only=["slow"], now=later))
    assert [(True, 1)] * 2 == conn.execute(
        "select stale, stale_count from semel.alerts"
    ).fetchall()
