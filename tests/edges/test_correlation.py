"""Over HTTP: the events of an alert group and of a chat join the live run of a joining agent."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from durable import claim, claim_all, hear, journal, park
from fix_world import Conn, one, status
from semel.config import Settings, Source
from semel.core import workers
from semel.db.execute import run
from semel.edges import start
from semel.edges.channel import Request
from semel.edges.channels import api, telegram
from semel.edges.replay import replay
from semel.errors import BadRequest
from semel.model import Offer
from web import Web, settings, verdict, web

CHAT = {"id": -100123, "type": "supergroup"}


@pytest.fixture
def told(dsn: str, conn: Conn) -> Settings:
    served = [("a", 3, None, "async")]
    call = workers.worker_register(
        "p", "w", host="h", pid=1, slots=4, agents=served, joins=[True]
    )
    run(conn, call)
    channels: list[tuple[str, Literal["alertmanager", "telegram", "api"]]] = [
        ("alerts", "alertmanager"), ("bot", "telegram"), ("bot2", "telegram"), ("hook", "api"),
    ]  # fmt: skip
    named = (Source(name=n, channel=channel, agent="a", project="p") for n, channel in channels)
    return settings(dsn, *named)


@pytest.fixture
def client(told: Settings) -> Iterator[Web]:
    with web(told) as client:
        yield client


def alert(name: str, state: str = "firing") -> dict[str, Any]:
    ends = "0001-01-01T00:00:00Z" if state == "firing" else "2026-11-30T10:50:00Z"
    return {
        "status": state, "labels": {"alertname": name}, "fingerprint": name,
        "startsAt": "2026-11-30T10:44:45Z", "endsAt": ends,
    }  # fmt: skip


def notify(client: Web, *alerts: dict[str, Any], group: str = "{}:{job='x'}") -> Any:
    body = {"version": "4", "groupKey": group, "alerts": alerts}
    return client.post("/in/p/alerts", body)


def signals(conn: Conn) -> list[str]:
    rows = conn.execute("select name from semel.signals order by sent_at, signal_id")
    return [name for [name] in rows]


def test_an_alert_that_joins_its_group_is_told_to_the_run_and_so_is_its_resolution(
    client: Web, conn: Conn
) -> None:
    first = notify(client, alert("f"))
    second = notify(client, alert("f"), alert("g"))
    elsewhere = notify(client, alert("h"), group="{}:{job='y'}")

    assert (201, 201) == (first.status_code, second.status_code)
    assert (verdict(second), first.json()["run_id"]) == ("new", second.json()["run_id"])
    assert elsewhere.json()["run_id"] != first.json()["run_id"]
    assert False is second.json()["duplicate"]
    [held] = [h for h in claim_all(conn) if str(h.run_id) == first.json()["run_id"]]
    park(conn, held, hear(name="resolved"))

    over = notify(client, alert("f"), alert("g", "resolved"))

    assert (201, first.json()["run_id"]) == (over.status_code, over.json()["run_id"])
    assert "RESUMED" == status(conn, held.run_id)
    [(_, _, heard)] = journal(conn, held.run_id)
    assert ["g"] == [each["fingerprint"] for each in heard["content"]]
    assert "duplicate" == verdict(notify(client, alert("f"), alert("g", "resolved")))
    assert ["event", "resolved"] == signals(conn)


def test_a_notification_that_cannot_be_gathered_joins_all_the_same(
    client: Web, conn: Conn
) -> None:
    """One with an unusable alert, and one whose alert fires and is resolved in it."""
    first = notify(client, alert("f"))
    mixed = notify(client, alert("g"), {"fingerprint": ""})
    both = notify(client, alert("h"), alert("h", "resolved"))

    runs = {
        each["run_id"]
        for answer in (mixed, both)
        for each in answer.json()["events"]
        if each.get("run_id")
    }
    assert {first.json()["run_id"]} == runs
    assert ["event", "event", "resolved"] == signals(conn)
    assert 1 == one(conn, "select count(*) from semel.runs")


def say(client: Web, update_id: int, source: str = "bot", **more: Any) -> Any:
    message = {"message_id": update_id, "chat": CHAT, "text": "hi", **more}
    return client.post(f"/in/p/{source}", {"update_id": update_id, "message": message})


def test_what_is_said_in_a_chat_is_told_to_the_run_that_is_at_it(
    client: Web, conn: Conn
) -> None:
    first = say(client, 1)
    held = claim(conn)
    park(conn, held, hear(name="event"))
    second, again = say(client, 2), say(client, 2)
    other_bot, other_chat = say(client, 2, "bot2"), say(client, 3, chat={"id": 5})
    topic = say(client, 4, message_thread_id=7, is_topic_message=True)
    reply = say(client, 5, message_thread_id=7)

    at = first.json()["run_id"]
    assert ["new", "new", "duplicate"] == [verdict(each) for each in (first, second, again)]
    assert {at} == {each.json()["run_id"] for each in (second, again, reply)}
    apart = [each.json()["run_id"] for each in (other_bot, other_chat, topic)]
    assert 4 == len({at, *apart})
    assert "RESUMED" == status(conn, held.run_id)
    [(_, _, heard)] = journal(conn, held.run_id)
    assert (2, "bot") == (heard["content"]["update_id"], heard["sender"])


def test_messages_that_arrive_together_join_one_run(client: Web, conn: Conn) -> None:
    async def many() -> list[Any]:
        bodies = [
            {"update_id": n, "message": {"message_id": n, "chat": CHAT}} for n in range(40)
        ]
        return await asyncio.gather(
            *(
                client.sending("POST", "/in/p/bot", each, {}, ("127.0.0.1", 1))
                for each in bodies
            )
        )

    answers = client.run(many())

    assert {(201, "new")} == {(each.status_code, verdict(each)) for each in answers}
    assert 1 == len({each.json()["run_id"] for each in answers})
    assert ["event"] * 39 == signals(conn)


def test_a_replay_of_what_joined_has_a_run_of_its_own(
    client: Web, conn: Conn, told: Settings
) -> None:
    first = say(client, 1)
    second = say(client, 2)
    event = one(conn, "select event_id from semel.events where provider_event_id = '2'")

    _, [replayed] = replay(conn, told, "p", event, force=True)

    assert ("new", True) == (replayed.accepted.verdict, replayed.started)
    assert str(replayed.accepted.run_id) not in {
        first.json()["run_id"],
        second.json()["run_id"],
    }
    assert ["event"] == signals(conn)


# -- which key an event has ------------------------------------------------------------------


def read(channel: Any, body: Any) -> Offer:
    sent = Request(method="POST", headers=[], body=json.dumps(body).encode(), local=True)
    name = channel.__name__.rpartition(".")[2]
    [offer] = channel.read(sent, Source(name="s", channel=name, agent="a"))
    return offer  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("update", "key"),
    [
        ({"message": {"chat": CHAT}}, "-100123"),
        ({"edited_message": {"chat": {"id": 7}}}, "7"),
        ({"channel_post": {"chat": CHAT}}, "-100123"),
        ({"my_chat_member": {"chat": CHAT}}, "-100123"),
        ({"callback_query": {"id": "1", "message": {"chat": CHAT}}}, "-100123"),
        (
            {"message": {"chat": CHAT, "message_thread_id": 3, "is_topic_message": True}},
            "-100123/3",
        ),
        ({"message": {"chat": CHAT, "message_thread_id": 3}}, "-100123"),
        ({"callback_query": {"id": "1"}}, None),
        ({"poll": {"id": "1"}}, None),
        ({"message": {"chat": {"id": "7"}}}, None),
        ({"message": {"chat": None}}, None),
        ({"message": None, "x": [1]}, None),
        ({"callback_query": {"message": 5}}, None),
        ({}, None),
    ],
)
def test_an_update_belongs_to_its_chat(update: dict[str, Any], key: str | None) -> None:
    assert key == read(telegram, {"update_id": 1, **update}).correlation


@pytest.mark.parametrize(
    ("body", "key"),
    [({"correlation": "c", "x": 1}, "c"), ({"correlation": 5}, None), ([1], None), ({}, None)],
)
def test_a_request_says_itself_what_it_belongs_to(body: Any, key: str | None) -> None:
    offer = read(api, body)
    assert (key, body) == (offer.correlation, offer.input)


def started(**told: Any) -> Offer:
    body = json.dumps({"agent": "a", **told}).encode()
    return start.read("p", "api", body, key=None, headers={})


def test_a_start_may_say_what_it_belongs_to() -> None:
    assert "c" == started(correlation="c").correlation
    assert None is started().correlation
    for bad in ("", 5, "c" * 256, "\n"):
        with pytest.raises(BadRequest, match="correlation is a text"):
            started(correlation=bad)
    with pytest.raises(BadRequest, match="write one of them"):
        started(correlation="c", unique="u")
