"""What joined a run, and what was resolved, is seen in its story and in that of the event."""

from typing import Any

import pytest

from fix_cli import Semel
from fix_world import Conn
from semel.core import inbox, workers
from semel.db.execute import run
from semel.model import Accepted, Alert, Notice, Offer


@pytest.fixture(autouse=True)
def joining(conn: Conn) -> None:
    served = [("a", 3, None, "async")]
    call = workers.worker_register(
        "p", "w", host="h", pid=1, slots=4, agents=served, joins=[True]
    )
    run(conn, call)


def accept(conn: Conn, key: str) -> Accepted:
    offer = Offer(
        source="bot", channel="api", id=key, agent="a", input={"say": key}, correlation="c7"
    )
    return run(conn, inbox.event_accept("p", [offer]))[0]


def tell(conn: Conn, name: str, status: Any) -> Accepted:
    labels: Any = {"alertname": name}
    told = Alert(
        fingerprint=name, status=status, starts_ns=1, ends_ns=int(status != "firing"),
        alert={"labels": labels, "endsAt": "then"},
    )  # fmt: skip
    notice = Notice(
        source="am", agent="a", envelope={"groupKey": "g"}, alerts=[told],
        body=f"{name} {status}".encode(), headers={}, grace=inbox.GRACE,
    )  # fmt: skip
    return run(conn, inbox.notification_fold("p", [notice]))[0][0]


def test_a_run_s_story_tells_what_joined_it(here: Semel, conn: Conn) -> None:
    first = accept(conn, "1")
    accept(conn, "2")

    said = here("run", "show", str(first.run_id)).out

    assert "event     bot 1 made it" in said
    assert "event     bot 2 joined it, by correlation:bot:c7" in said
    assert 'signal    event from bot: {"say": "2"}; no step asked yet' in said
    assert "it joins the live run of its correlation key" in said


def test_a_run_s_story_tells_what_is_resolved(here: Semel, conn: Conn) -> None:
    first = tell(conn, "disk", "firing")
    tell(conn, "disk", "resolved")

    said = here("run", "show", str(first.run_id)).out

    assert ": resolved disk (ended then)" in said
    assert "signal    resolved from am:" in said


@pytest.mark.parametrize("way", ["joined", "tells of a resolution to"])
def test_an_event_that_made_no_run_is_not_said_to_have_made_one(
    here: Semel, conn: Conn, way: str
) -> None:
    if way == "joined":
        first, second = accept(conn, "1"), accept(conn, "2")
    else:
        first, second = tell(conn, "disk", "firing"), tell(conn, "disk", "resolved")
    named = conn.execute(
        "select source, provider_event_id from semel.events where event_id = any (%s)"
        " order by event_id = %s",
        ([first.event_id, second.event_id], second.event_id),
    ).fetchall()

    told = [
        here("event", "explain", "--source", source, "--id", name).out.splitlines()[0]
        for source, name in named
    ]

    assert told[0].endswith(f"came once and made run {first.run_id}")
    assert told[1].endswith(f"came once and {way} run {first.run_id}")
