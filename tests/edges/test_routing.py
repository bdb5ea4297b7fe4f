"""An event goes to the agent of the first route that takes it, and says why it goes to none."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest

import signing
from consistency import faults
from semel.config import Settings
from semel.config.hmac import HmacSettings
from semel.config.routing import read_routing
from semel.core import reads
from semel.db.execute import run
from semel.edges.channel import Notification, Reply, Request
from semel.edges.channels import READERS
from semel.edges.replay import replay
from semel.edges.routing import choose
from semel.errors import NotReplayable
from signing import source
from web import Web, count, settings, verdict, web

Conn = psycopg.Connection[Any]
KEY = "s3cret"
ROUTES = [
    {"events": ["pull_request*"], "when": {"/payload/action": "opened"}, "agent": "review"},
    {
        "events": ["push"],
        "when": {"/payload/ref": {"prefix": "refs/tags/"}},
        "agent": "release",
    },
]


def routing(**told: Any) -> dict[str, Any]:
    """The settings as they are in a Source."""
    return read_routing("[sources.x]", {"agent": "a", **told})


@pytest.fixture
def told(dsn: str) -> Settings:
    return settings(dsn, source("github", KEY, agent=None, **routing(route=ROUTES)))


@pytest.fixture
def client(told: Settings) -> Iterator[Web]:
    with web(told) as client:
        yield client


def sent(client: Web, event: str, payload: Any, guid: str = "g-1") -> Any:
    body = json.dumps(payload).encode()
    headers = signing.github(KEY, body, guid, event)
    return client.post("/in/default/github", body, headers)


def agents(conn: Conn) -> list[str]:
    return [
        agent for [agent] in conn.execute("select agent from semel.runs order by created_at")
    ]


def reason(conn: Conn, guid: str) -> str:
    [told] = run(conn, reads.explain_event("default", "github", guid))
    return str(told["reason"])


def test_the_first_route_that_takes_an_event_says_its_agent(client: Web, conn: Conn) -> None:
    assert verdict(sent(client, "pull_request", {"action": "opened"}, "1")) == "new"
    assert verdict(sent(client, "push", {"ref": "refs/tags/v1"}, "2")) == "new"
    assert agents(conn) == ["review", "release"]
    assert reason(conn, "2") == "first sighting of this id; route 2 leads to release"


def test_what_no_route_takes_is_ignored_kept_and_explained(client: Web, conn: Conn) -> None:
    answer = sent(client, "pull_request", {"action": "closed"})
    assert (answer.status_code, verdict(answer)) == (200, "ignored")
    assert answer.json() == {"run_id": None, "event_id": None, "duplicate": False}
    assert reason(conn, "g-1") == (
        "no route takes it: route 1: /payload/action is 'closed', not 'opened';"
        " route 2: /payload/ref is nothing and does not begin with 'refs/tags/'"
    )
    assert count(conn, "events") == count(conn, "runs") == 0
    assert not faults(conn, arrivals=True)


def test_what_was_ignored_is_judged_by_the_routes_of_today(
    client: Web, told: Settings, conn: Conn
) -> None:
    sent(client, "issues", {"action": "opened"})
    [[name]] = conn.execute("select delivery_id from semel.deliveries").fetchall()
    with pytest.raises(NotReplayable, match="ignores it: no route takes it"):
        replay(conn, told, "default", name)
    _, [dry] = replay(conn, told, "default", name, dry_run=True)
    assert dry.accepted.verdict == "ignored"

    hook = told.sources["default", "github"]
    wider = replace(told, sources={("default", "github"): replace(hook, agent="rest")})
    _, [one] = replay(conn, wider, "default", name)
    assert (one.accepted.verdict, one.agent, one.started) == ("new", "rest", True)
    assert verdict(sent(client, "issues", {"action": "opened"})) == "ignored"
    with web(wider) as other:
        assert verdict(sent(other, "issues", {"action": "opened"})) == "duplicate"


def test_a_source_that_takes_less_than_its_channel_tells_ignores_the_rest(
    dsn: str, conn: Conn
) -> None:
    hook = source("github", KEY, **routing(events=["push"], when={"/payload/ref": ["a", "b"]}))
    with web(settings(dsn, hook)) as client:
        for n, (event, ref) in enumerate([("push", "a"), ("push", "c"), ("create", "a")]):
            sent(client, event, {"ref": ref}, str(n))
    assert agents(conn) == ["a"]
    assert (
        reason(conn, "1") == "the source does not take it: /payload/ref is 'c', not 'a' or 'b'"
    )
    assert reason(conn, "2") == "the source does not take it: its type 'create' is none of push"


def test_of_one_request_each_event_has_its_own_route(dsn: str, conn: Conn) -> None:
    line = source(
        "line", KEY, agent=None, **routing(route=[{"events": ["m*"], "agent": "talk"}])
    )
    kinds = ("message", "follow", "message")
    events = [{"webhookEventId": str(n), "type": kind} for n, kind in enumerate(kinds)]
    body = json.dumps({"events": events}).encode()
    with web(settings(dsn, line)) as client:
        answer = client.post("/in/default/line", body, signing.line(KEY, body))
    assert verdict(answer) == "new, ignored, new"
    [[name]] = conn.execute(
        "select provider_event_id from semel.deliveries where verdict = 'ignored'"
    ).fetchall()
    assert name == "1"


def test_a_condition_is_met_by_what_it_says_and_no_more() -> None:
    cases: list[tuple[Any, Any, bool]] = [
        (1, 1, True),
        (1, True, False),
        (True, 1, False),
        (False, False, True),
        ("1", 1, False),
        (["a", 2], 2, True),
        ("a", ["a"], False),
        ("a", None, False),
        ({"prefix": "a"}, "ab", True),
        ({"prefix": "a"}, 5, False),
    ]
    for written, value, is_met in cases:
        one = source("api", KEY, **routing(when={"/x": written}))
        assert (choose(one, None, {"x": value}).agent == "a") is is_met, (written, value)
    deep = source("api", KEY, **routing(when={"/a~1b/0/~0": "x"}))
    assert choose(deep, None, {"a/b": [{"~": "x"}]}).agent == "a"
    assert choose(deep, None, {"a/b": []}).agent is None


@pytest.mark.parametrize("text", ["push", "p*", "*h", "*", "p*s*h"])
def test_a_star_is_any_characters(text: str) -> None:
    hook = source("github", KEY, **routing(events=[text]))
    assert choose(hook, "push", {}).agent == "a"
    assert choose(hook, "PUSH", {}).agent == ("a" if text == "*" else None)
    assert choose(source("github", KEY, **routing(events=["p.sh"])), "push", {}).agent is None


HOW = HmacSettings(source="hmac", header="S", event="header:X-Event")
KINDS = [
    ("github", [("x-github-event", "push")], {}, "push"),
    (
        "gitea",
        [("x-gitea-event", "issues"), ("x-gitea-event-type", "issue_assign")],
        {},
        "issues",
    ),
    ("telegram", [], {"update_id": 1, "callback_query": {}}, "callback_query"),
    ("line", [], {"events": [{"webhookEventId": "1", "type": "follow"}]}, "follow"),
    ("stripe", [], {"id": "evt", "type": "charge.failed"}, "charge.failed"),
    ("standard", [("webhook-id", "1")], {"type": "user.created"}, "user.created"),
    ("slack", [], {"event_id": "1", "event": {"type": "app_mention"}}, "app_mention"),
    ("slack", [], {"type": "block_actions", "trigger_id": "1"}, "block_actions"),
    ("discord", [], {"type": 3, "id": "1", "application_id": "2"}, "MESSAGE_COMPONENT"),
    ("discord", [], {"type": 1, "event": {"type": "ENTITLEMENT_CREATE"}}, "ENTITLEMENT_CREATE"),
    ("hmac", [("x-event", "made")], {}, "made"),
    (
        "cloudevents",
        [("content-type", "application/cloudevents+json")],
        {"specversion": "1.0", "id": "1", "source": "/s", "type": "t.x"},
        "t.x",
    ),
]


@pytest.mark.parametrize(("channel", "headers", "body", "kind"), KINDS)
def test_each_channel_tells_the_type_of_its_events(
    channel: Any, headers: list[tuple[str, str]], body: Any, kind: str
) -> None:
    raw = json.dumps(body).encode()
    one = source(channel, KEY, hmac=HOW if channel == "hmac" else None)
    request = Request(method="POST", headers=headers, body=raw, local=True, admitted=True)
    reading = READERS[channel](request, one)
    assert not isinstance(reading, Notification)
    [offer] = reading.offers if isinstance(reading, Reply) else reading
    assert offer.kind == kind


def alert(name: str, status: str = "firing", **labels: str) -> dict[str, Any]:
    ends = "0001-01-01T00:00:00Z" if status == "firing" else "2026-11-30T11:00:00Z"
    return {
        "status": status,
        "labels": {"alertname": name, **labels},
        "startsAt": "2026-11-30T10:44:45Z",
        "endsAt": ends,
        "fingerprint": name * 4,
    }


def test_alerts_of_one_notification_go_each_to_their_agent(dsn: str, conn: Conn) -> None:
    routes = [
        {"when": {"/labels/team": "web"}, "agent": "web"},
        {"when": {"/labels/team": "db"}, "agent": "db"},
    ]
    alerts = source("alertmanager", KEY, agent=None, **routing(route=routes))
    auth = {"authorization": f"Bearer {KEY}"}
    told: dict[str, Any] = {
        "alerts": [alert("a", team="web"), alert("b", team="db"), alert("c", team="qa")],
        "commonLabels": {},
    }
    with web(settings(dsn, alerts)) as client:
        first = client.post("/in/default/alertmanager", told, auth)
        assert verdict(first) == "new, new, ignored"
        again = client.post("/in/default/alertmanager", told, auth)
        assert verdict(again) == "duplicate, duplicate, ignored"
        told["alerts"][0] = alert("a", "resolved", team="web")
        over = client.post("/in/default/alertmanager", told, auth)
        assert verdict(over) == "new, reminder, ignored"
    assert sorted(agents(conn)) == ["db", "web"]
    reasons = conn.execute(
        "select distinct reason from semel.deliveries where verdict = 'ignored'"
    ).fetchall()
    assert reasons[0][0].startswith(
        "alert cccc: no route takes it: route 1: /labels/team is 'qa'"
    )
    assert count(conn, "deliveries", "reason like '%resolved%' and run_id is not null") == 1
    assert not faults(conn)


def test_an_alert_that_only_its_type_keeps_from_an_agent_is_folded_without_a_run(
    dsn: str, conn: Conn
) -> None:
    alerts = source("alertmanager", KEY, **routing(events=["firing"]), run_on="firing+resolved")
    auth = {"authorization": f"Bearer {KEY}"}
    with web(settings(dsn, alerts)) as client:
        for n, status in enumerate(["firing", "resolved", "firing"]):
            one = {**alert("a", status), "startsAt": f"2026-11-30T1{n // 2}:44:45Z"}
            answer = client.post("/in/default/alertmanager", {"alerts": [one]}, auth)
            assert verdict(answer) == "new", (n, answer.text)
    assert agents(conn) == ["a", "a"]


def test_by_force_a_known_event_gets_a_run_of_the_agent_that_is_its_today(
    client: Web, told: Settings, conn: Conn
) -> None:
    event = UUID(sent(client, "push", {"ref": "refs/tags/v1"}).json()["event_id"])
    hook = told.sources["default", "github"]

    def changed(**changes: Any) -> Settings:
        return replace(told, sources={("default", "github"): replace(hook, **changes)})

    _, [judged] = replay(conn, told, "default", event)
    assert (judged.accepted.verdict, judged.started, judged.differs) == (
        "duplicate",
        False,
        False,
    )
    other = changed(route=(), agent="other")
    _, [dry] = replay(conn, other, "default", event, dry_run=True)
    assert (dry.accepted.verdict, dry.agent, dry.differs) == ("duplicate", "other", True)
    _, [forced] = replay(conn, other, "default", event, force=True)
    assert (forced.accepted.verdict, forced.agent, forced.started) == ("new", "other", True)
    none = changed(route=hook.route[:1])
    with pytest.raises(NotReplayable, match="ignores it"):
        replay(conn, none, "default", event)
    _, [kept] = replay(conn, none, "default", event, force=True)
    assert (kept.agent, kept.started) == ("release", True)
    assert agents(conn) == ["release", "other", "release"]
    linked = conn.execute(
        "select count(*) from semel.run_events where relation = 'replayed'"
    ).fetchone()
    assert linked == (2,)


def test_alerts_that_were_folded_are_judged_dry_and_run_only_by_force(
    dsn: str, conn: Conn
) -> None:
    told = settings(dsn, source("alertmanager", KEY))
    auth = {"authorization": f"Bearer {KEY}"}
    with web(told) as client:
        answer = client.post("/in/default/alertmanager", {"alerts": [alert("a")]}, auth)
    event = UUID(answer.json()["event_id"])
    with pytest.raises(NotReplayable, match="--force"):
        replay(conn, told, "default", event)
    _, [dry] = replay(conn, told, "default", event, dry_run=True)
    assert (dry.accepted.verdict, dry.started) == ("duplicate", False)
    _, [forced] = replay(conn, told, "default", event, force=True)
    assert (forced.accepted.verdict, forced.started) == ("new", True)
    assert count(conn, "runs") == 2


def test_a_pattern_takes_no_longer_than_the_type_is_long() -> None:
    """It would be ages, were each star tried at all places."""
    long = source("standard", KEY, **routing(events=["*a*a*b"]))
    assert choose(long, "a" * 1_000_000, {}).agent is None
    assert choose(long, "a" * 1_000 + "b", {}).agent == "a"
