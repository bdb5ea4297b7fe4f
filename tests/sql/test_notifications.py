"""Notifications that are judged together are judged as one after the other."""

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from fix_world import NOW, Conn
from semel.core import inbox
from semel.db.execute import run
from semel.errors import BadRequest
from semel.model import Alert, Notice

SECOND_NS = 1_000_000_000
STATE = """
select f.source, f.fingerprint, f.status, f.starts_ns, f.ends_ns, f.changed_at, f.seen_at, f.seen_digest, f.late_at,
    d.hits, d.last_seen_at, f.run_id is null
from semel.fold as f join semel.dedupe as d on d.project_id = f.project_id and d.event_id = f.event_id
where f.project_id = %s order by 1, 2
"""


def notice(name: str, *alerts: Alert, **told: Any) -> Notice:
    told = {"source": "am", "grace": timedelta(seconds=120), **told}
    return Notice(
        agent="triage",
        envelope={"receiver": "r"},
        alerts=list(alerts),
        body=name.encode(),
        headers={},
        **told,
    )


def firing(name: str) -> Alert:
    return Alert(fingerprint=name, status="firing", starts_ns=1, ends_ns=0, alert={})


def stories(dice: random.Random) -> Iterator[list[Notice]]:
    """Batches of a few alerts' lives; no alert is in two notifications of one."""
    for step in range(25):
        names = [f"f{n}" for n in range(6)]
        dice.shuffle(names)
        batch: list[Notice] = []
        while names and len(batch) < 3:
            alerts = []
            for _ in range(dice.randint(1, 3)):
                starts = dice.choice([0, 2, -2, 60, 61, 600, 1261]) * SECOND_NS
                ends = starts + dice.choice([10, 600, 601]) * SECOND_NS
                is_firing = dice.random() < 0.5
                if names:
                    alerts.append(
                        Alert(
                            fingerprint=names.pop(),
                            status="firing" if is_firing else "resolved",
                            starts_ns=10**15 + starts,
                            ends_ns=0 if is_firing else 10**15 + ends,
                            alert={"step": step},
                        )
                    )
            batch.append(
                notice(
                    f"{step % 3}",
                    *alerts,
                    source=dice.choice(["am", "other"]),
                    run_on=dice.choice(["firing", "firing+resolved"]),
                    unit=dice.choice(["notification", "alert"]),
                )
            )
        yield batch


@pytest.mark.parametrize("seed", range(4))
def test_together_they_come_to_what_they_come_to_alone(conn: Conn, seed: int) -> None:
    dice = random.Random(seed)
    now = NOW
    for batch in stories(dice):
        now += timedelta(seconds=dice.choice([1, 60, 119, 121, 600]))
        together = run(conn, inbox.notification_fold("p", batch, now=now))
        alone = [run(conn, inbox.notification_fold("q", [each], now=now))[0] for each in batch]
        assert [[(a.verdict, a.reason) for a in each] for each in together] == [
            [(a.verdict, a.reason) for a in each] for each in alone
        ]
    assert conn.execute(STATE, ("p",)).fetchall() == conn.execute(STATE, ("q",)).fetchall()


def test_an_alert_in_two_notifications_of_a_call_is_refused(conn: Conn) -> None:
    twice = [notice("1", firing("f"), firing("g")), notice("2", firing("g"))]
    with pytest.raises(BadRequest, match="an alert stands in two notifications"):
        run(conn, inbox.notification_fold("p", twice))
    apart = [twice[0], notice("2", firing("g"), source="other")]
    assert len(run(conn, inbox.notification_fold("p", apart))) == 2


def test_no_call_has_more_than_256(conn: Conn) -> None:
    many = [notice(str(n), firing(str(n))) for n in range(257)]
    with pytest.raises(BadRequest, match="257 notifications in one call"):
        run(conn, inbox.notification_fold("p", many))
    assert len(run(conn, inbox.notification_fold("p", many[1:]))) == 256


def test_two_reminders_of_one_event_are_two_sightings_of_it(conn: Conn) -> None:
    run(conn, inbox.notification_fold("p", [notice("1", firing("f"), firing("g"))], now=NOW))
    reminders = [notice("2", firing("f")), notice("3", firing("g"))]
    told = run(conn, inbox.notification_fold("p", reminders, now=NOW))
    assert [each.verdict for [each] in told] == ["reminder", "reminder"]
    assert conn.execute("select hits from semel.events").fetchall() == [(3,)]
