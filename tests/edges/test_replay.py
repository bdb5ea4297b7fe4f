"""A kept delivery is read again as configured today, and starts a run only when asked to."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from semel.config import Settings, Source
from semel.core import inbox
from semel.core.deliveries import delivery_read
from semel.db.execute import run
from semel.db.pool import connect
from semel.edges.channel import Request
from semel.edges.channels import READERS
from semel.edges.replay import Replayed, replay
from semel.errors import NoSuchEvent, NotReplayable, Quarantined, UnknownSource
from web import Web, count, secret, settings, verdict, web

TOKEN = {"X-Telegram-Bot-Api-Secret-Token": "s3cret"}
AUTH = {"Authorization": "Bearer s3cret"}
Conn = psycopg.Connection[Any]


@pytest.fixture
def told(dsn: str) -> Settings:
    return settings(
        dsn,
        Source(name="bot", channel="telegram", agent="chat", secrets=(secret("s3cret"),)),
        Source(name="jobs", channel="api", agent="job", secrets=(secret("s3cret"),)),
        Source(
            name="alerts", channel="alertmanager", agent="triage", secrets=(secret("s3cret"),)
        ),
    )


@pytest.fixture
def client(told: Settings) -> Iterator[Web]:
    with web(told) as client:
        yield client


def rerouted(told: Settings, name: str, **changes: Any) -> Settings:
    """The settings after an operator's edit of one source."""
    key = ("default", name)
    return replace(told, sources={**told.sources, key: replace(told.sources[key], **changes)})


def again(conn: Conn, told: Settings, name: UUID | str, *, dry_run: bool = False) -> Replayed:
    """A run on purpose."""
    _, [one] = replay(conn, told, "default", UUID(str(name)), dry_run=dry_run, force=True)
    return one


def quarantine(conn: Conn, source: str, channel: Any, body: bytes) -> UUID:
    """A delivery that a reader of yesterday found unusable."""
    offered = READERS[channel](
        Request(method="POST", headers=[], body=body, local=True),
        Source(name=source, channel=channel, agent="a"),
    )
    assert isinstance(offered, list)
    kept = replace(offered[0], verdict="quarantined", reason="not understood yet")
    run(conn, inbox.event_accept("default", [kept]))
    return latest(conn)


def latest(conn: Conn) -> UUID:
    row = conn.execute(
        "select delivery_id from semel.deliveries order by received_at desc, delivery_id desc limit 1"
    ).fetchone()
    assert row is not None
    return UUID(str(row[0]))


def alert(name: str, status: str = "firing") -> dict[str, Any]:
    ends = "0001-01-01T00:00:00Z" if status == "firing" else "2026-11-30T11:00:00Z"
    return {
        "status": status,
        "labels": {"alertname": name},
        "startsAt": "2026-11-30T10:44:45Z",
        "endsAt": ends,
        "fingerprint": name * 4,
    }


# -- an event that was accepted -------------------------------------------------------------


def test_a_replay_starts_a_run_of_its_own_linked_to_the_first_event(
    client: Web, conn: Conn, told: Settings
) -> None:
    first = client.post("/in/default/bot", {"update_id": 7}, TOKEN).json()

    one = again(conn, told, first["event_id"])

    assert (one.accepted.verdict, one.started, one.differs) == ("new", True, False)
    assert (one.agent, one.input) == ("chat", {"update_id": 7})
    assert str(one.accepted.run_id) != first["run_id"]
    assert count(conn, "runs") == 2
    [(name, reason)] = conn.execute(
        "select provider_event_id, reason from semel.deliveries where run_id = %s",
        (one.accepted.run_id,),
    ).fetchall()
    delivery = name.removeprefix("replay:").removesuffix(":1")
    assert reason == f"replay 1 of delivery {delivery}"
    linked = conn.execute(
        "select relation, event_id::text from semel.run_events where run_id = %s order by 1",
        (one.accepted.run_id,),
    ).fetchall()
    assert linked == [("made", str(one.accepted.event_id)), ("replayed", first["event_id"])]


def test_the_first_event_stays_what_it_was(client: Web, conn: Conn, told: Settings) -> None:
    first = client.post("/in/default/bot", {"update_id": 7}, TOKEN).json()
    again(conn, told, first["event_id"])

    repeated = client.post("/in/default/bot", {"update_id": 7}, TOKEN)

    assert (verdict(repeated), repeated.json()["run_id"]) == ("duplicate", first["run_id"])


def test_each_replay_makes_a_run_also_two_at_once(
    dsn: str, client: Web, conn: Conn, told: Settings
) -> None:
    first = client.post("/in/default/bot", {"update_id": 7}, TOKEN).json()
    made: list[Replayed] = []

    def one() -> None:
        with connect(dsn) as own:
            made.append(again(own, told, first["event_id"]))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({one.accepted.run_id for one in made}) == 4
    names = conn.execute(
        "select right(provider_event_id, 1) from semel.events where provider_event_id like 'replay:%' order by 1"
    ).fetchall()
    assert names == [("1",), ("2",), ("3",), ("4",)]


def test_a_replay_is_read_under_todays_configuration(
    client: Web, conn: Conn, told: Settings
) -> None:
    first = client.post("/in/default/bot", {"update_id": 7}, TOKEN).json()

    one = again(conn, rerouted(told, "bot", agent="other", priority=9), first["event_id"])

    assert (one.agent, one.differs) == ("other", True)
    assert count(conn, "runs", "agent = 'other' and priority = 9") == 1


def test_a_dry_run_says_the_same_and_leaves_nothing(
    client: Web, conn: Conn, told: Settings
) -> None:
    first = client.post("/in/default/bot", {"update_id": 7}, TOKEN).json()
    edited = rerouted(told, "bot", agent="other")

    one = again(conn, edited, first["event_id"], dry_run=True)

    assert (one.accepted.verdict, one.started, one.agent) == ("new", True, "other")
    assert (one.input, one.differs) == ({"update_id": 7}, True)
    assert [count(conn, view) for view in ("runs", "events", "deliveries")] == [1, 1, 1]


def test_the_secret_is_not_needed_again(client: Web, conn: Conn, told: Settings) -> None:
    first = client.post("/in/default/bot", {"update_id": 7}, TOKEN).json()
    rotated = rerouted(told, "bot", secrets=(secret("another"),))

    assert again(conn, rotated, first["event_id"]).started


def test_a_replay_of_a_replay_is_another_one(client: Web, conn: Conn, told: Settings) -> None:
    first = client.post("/in/default/bot", {"update_id": 7}, TOKEN).json()
    second = again(conn, told, first["event_id"])
    assert second.accepted.event_id

    third = again(conn, told, second.accepted.event_id)

    assert third.accepted.run_id not in {None, second.accepted.run_id}


def test_an_api_event_with_its_key_is_replayed(client: Web, conn: Conn, told: Settings) -> None:
    headers = {**AUTH, "Idempotency-Key": "order-1"}
    first = client.post("/in/default/jobs", {"n": 1}, headers).json()
    strict = rerouted(told, "jobs", require_key=True)

    assert again(conn, strict, first["event_id"]).input == {"n": 1}
    other = client.post("/in/default/jobs", {"n": 2}, headers)
    assert verdict(other) == "conflict"
    conflicting = again(conn, strict, latest(conn))
    assert (conflicting.input, conflicting.differs) == ({"n": 2}, True)


def test_a_test_clock_hides_no_delivery(client: Web, conn: Conn, told: Settings) -> None:
    headers = {**TOKEN, "X-Semel-Test-Clock": "1000000000"}
    first = client.post("/in/default/bot", {"update_id": 7}, headers).json()

    assert again(conn, told, first["event_id"]).started


# -- alerts ---------------------------------------------------------------------------------


def test_a_replayed_alert_is_about_what_its_run_was_about_and_leaves_the_fold(
    client: Web, conn: Conn, told: Settings
) -> None:
    envelope = {"version": "4", "groupKey": "{}", "status": "firing"}
    client.post("/in/default/alerts", {**envelope, "alerts": [alert("a")]}, AUTH)
    grown = {**envelope, "alerts": [alert("a"), alert("b")]}
    first = client.post("/in/default/alerts", grown, AUTH).json()

    one = again(conn, told, first["event_id"])

    assert (one.started, one.differs, one.agent) == (True, False, "triage")
    assert isinstance(one.input, dict)
    assert one.input["alerts"] == [alert("b")]
    assert verdict(client.post("/in/default/alerts", grown, AUTH)) == "duplicate"


def test_a_resolution_that_made_no_run_starts_one_when_replayed(
    client: Web, conn: Conn, told: Settings
) -> None:
    client.post("/in/default/alerts", {"alerts": [alert("a")]}, AUTH)
    ended = client.post("/in/default/alerts", {"alerts": [alert("a", "resolved")]}, AUTH).json()

    one = again(conn, told, ended["event_id"])

    assert one.started
    assert isinstance(one.input, dict)
    assert one.input["status"] == "resolved"


# -- quarantine -----------------------------------------------------------------------------


def test_a_quarantined_delivery_gets_its_true_identity_once_it_can_be_read(
    client: Web, conn: Conn, told: Settings
) -> None:
    delivery = quarantine(conn, "bot", "telegram", b'{"update_id": 7}')
    assert count(conn, "runs") == 0

    one = again(conn, told, delivery)

    assert (one.accepted.verdict, one.started) == ("new", True)
    repeated = client.post("/in/default/bot", {"update_id": 7}, TOKEN)
    assert verdict(repeated) == "duplicate"
    assert repeated.json()["run_id"] == str(one.accepted.run_id)
    assert conn.execute(
        "select verdict, event_id, run_id from semel.deliveries where delivery_id = %s",
        (delivery,),
    ).fetchall() == [("quarantined", one.accepted.event_id, one.accepted.run_id)]


def test_a_quarantined_delivery_replayed_twice_makes_one_run(
    client: Web, conn: Conn, told: Settings
) -> None:
    delivery = quarantine(conn, "bot", "telegram", b'{"update_id": 7}')
    first = again(conn, told, delivery)
    _, [second] = replay(conn, told, "default", delivery)

    assert (second.accepted.verdict, second.started) == ("duplicate", False)
    assert second.accepted.run_id == first.accepted.run_id
    assert count(conn, "runs") == 1


def test_a_quarantined_notification_is_folded_as_of_when_it_came(
    client: Web, conn: Conn, told: Settings
) -> None:
    body = b'{"alerts": [%s]}' % str(alert("a")).replace("'", '"').encode()
    with conn.transaction():
        quarantined = replace(
            _offer_of(body),
            source="alerts",
            channel="alertmanager",
            verdict="quarantined",
            reason="?",
        )
        run(conn, inbox.event_accept("default", [quarantined]))
    delivery = latest(conn)
    dry = again(conn, told, delivery, dry_run=True)
    assert (dry.accepted.verdict, count(conn, "runs")) == ("new", 0)

    one = again(conn, told, delivery)

    assert (one.accepted.verdict, one.started) == ("new", True)
    reminder = client.post("/in/default/alerts", {"alerts": [alert("a")]}, AUTH)
    assert verdict(reminder) in {"reminder", "duplicate"}
    assert count(conn, "runs") == 1


def test_a_firing_that_was_quarantined_does_not_undo_the_resolution_that_came_after(
    client: Web, conn: Conn, told: Settings
) -> None:
    body = b'{"alerts": [%s]}' % str(alert("a")).replace("'", '"').encode()
    offer = replace(
        _offer_of(body),
        source="alerts",
        channel="alertmanager",
        verdict="quarantined",
        reason="?",
    )
    run(conn, inbox.event_accept("default", [offer]))
    delivery = latest(conn)
    client.post("/in/default/alerts", {"alerts": [alert("a", "resolved")]}, AUTH)

    one = again(conn, told, delivery)

    assert (one.accepted.verdict, one.started) == ("late", False)
    assert count(conn, "runs") == 0


def test_what_is_still_unusable_is_refused_and_a_dry_run_says_so(
    client: Web, conn: Conn, told: Settings
) -> None:
    answer = client.post("/in/default/bot", {"update": 7}, TOKEN)
    assert verdict(answer) == "quarantined"
    delivery = latest(conn)

    dry = again(conn, told, delivery, dry_run=True)
    with pytest.raises(Quarantined, match="update_id is missing"):
        again(conn, told, delivery)

    assert (dry.accepted.verdict, dry.started) == ("quarantined", False)
    assert count(conn, "deliveries") == 1


# -- what cannot be replayed ----------------------------------------------------------------


def test_what_nobody_knows_is_refused(conn: Conn, told: Settings) -> None:
    with pytest.raises(NoSuchEvent, match="no delivery of project default"):
        again(conn, told, uuid4())


def test_a_purged_body_is_refused(client: Web, conn: Conn, told: Settings) -> None:
    first = client.post("/in/default/bot", {"update_id": 7}, TOKEN).json()
    conn.execute("update semel.delivery set body = null")

    with pytest.raises(NotReplayable, match="is purged"):
        again(conn, told, first["event_id"])


def test_a_source_that_is_gone_or_of_another_channel_is_refused(
    client: Web, conn: Conn, told: Settings
) -> None:
    first = client.post("/in/default/bot", {"update_id": 7}, TOKEN).json()

    with pytest.raises(UnknownSource, match="no source 'bot'"):
        again(conn, replace(told, sources={}), first["event_id"])
    with pytest.raises(NotReplayable, match="of channel api now"):
        again(conn, rerouted(told, "bot", channel="api"), first["event_id"])
    assert count(conn, "runs") == 1


def test_a_delivery_is_found_by_its_own_id_and_by_its_events(
    client: Web, conn: Conn, told: Settings
) -> None:
    first = client.post("/in/default/bot", {"update_id": 7}, TOKEN).json()
    client.post("/in/default/bot", {"update_id": 7}, TOKEN)
    duplicate = latest(conn)

    by_event = run(conn, delivery_read("default", UUID(first["event_id"])))
    by_id = run(conn, delivery_read("default", duplicate))

    assert by_event
    assert by_id
    assert (by_event.verdict, by_id.verdict) == ("new", "duplicate")
    assert (by_event.body, by_id.delivery_id) == (b'{"update_id": 7}', duplicate)
    assert run(conn, delivery_read("elsewhere", duplicate)) is None


def _offer_of(body: bytes) -> Any:
    source = Source(name="x", channel="api", agent="a")
    [offer] = READERS["api"](Request(method="POST", headers=[], body=body, local=True), source)  # type: ignore[misc]
    return offer
