"""Each provider's events are told apart by what it promises of them, and answered as it wants."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest

import signing
from consistency import faults
from semel.config import Server, Settings
from semel.config.hmac import HmacSettings
from semel.edges.replay import replay
from semel.errors import NotReplayable, Quarantined
from signing import NOW, PUBLIC_HEX, WHSEC, Headers, source
from web import Web, count, settings, verdict, web

Conn = psycopg.Connection[Any]
KEY = "s3cret"
DAY = 86_400.0


@pytest.fixture
def told(dsn: str) -> Settings:
    how = HmacSettings(source="hmac", header="X-Signature", id="header:X-Id")
    sources = [
        source("gitea", KEY),
        source("github", KEY),
        source("line", KEY),
        source("slack", KEY),
        source("stripe", KEY),
        source("standard", WHSEC),
        source("discord", PUBLIC_HEX),
        source("cloudevents", KEY),
        source("hmac", KEY, hmac=how),
    ]
    return settings(dsn, *sources, server=Server(pool=4, body_bytes_max=400_000))


@pytest.fixture
def client(told: Settings) -> Iterator[Web]:
    with web(told) as client:
        yield client


def post(
    client: Web, channel: str, body: Any, headers: Headers | None = None, at: float = NOW
) -> httpx.Response:
    """Post *body* as the provider would: signed, unless *headers* are told."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    key = {"standard": WHSEC}.get(channel, KEY)
    lines = getattr(signing, channel)(key, raw) if headers is None else headers
    lines = [*lines, ("x-semel-test-clock", str(at))]
    return client.post(f"/in/default/{channel}", raw, lines)


def said(answer: httpx.Response) -> str:
    return f"{answer.status_code} {verdict(answer)}"


# -- gitea, github -------------------------------------------------------------------------


def test_gitea_s_button_makes_no_second_run(client: Web, conn: Conn) -> None:
    body = b'{"ref": "x"}'
    first = post(client, "gitea", body, signing.gitea(KEY, body, "1"))
    again = post(client, "gitea", body, signing.gitea(KEY, body, "2"), NOW + 6 * DAY)
    assert (said(first), said(again)) == ("201 new", "200 redelivery")
    assert again.json() == {**first.json(), "duplicate": True, "code": "E-IDEMPOTENT-001"}
    assert said(post(client, "gitea", body, signing.gitea(KEY, body, "1"))) == "200 duplicate"
    other = signing.gitea(KEY, body, "3", event="create")
    assert said(post(client, "gitea", body, other)) == "201 new"
    assert count(conn, "runs") == 2
    assert count(conn, "deliveries", "verdict = 'redelivery' and provider_event_id = '2'") == 1
    assert not faults(conn)


def test_one_content_under_twenty_ids_at_once_makes_one_run(client: Web, conn: Conn) -> None:
    body = b'{"ref": "x"}'

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(
            *(
                client.sending(
                    "POST", "/in/default/gitea", body, signing.gitea(KEY, body, str(n))
                )
                for n in range(20)
            )
        )

    answers = client.run(all_at_once())
    assert sorted(said(each) for each in answers) == ["200 redelivery"] * 19 + ["201 new"]
    assert len({each.json()["run_id"] for each in answers}) == 1
    assert count(conn, "events", "hits = 20") == count(conn, "runs") == 1


def test_past_the_window_of_the_source_the_same_content_is_new(dsn: str, conn: Conn) -> None:
    short = source("gitea", KEY, content_window=timedelta(hours=1))
    body = b'{"ref": "x"}'
    with web(settings(dsn, short)) as client:
        answers = [
            said(post(client, "gitea", body, signing.gitea(KEY, body, str(n)), NOW + n * 3000))
            for n in range(3)
        ]
        late = post(client, "gitea", body, signing.gitea(KEY, body, "9"), NOW + 6000 + 3601)
    assert answers == ["201 new", "200 redelivery", "200 redelivery"]
    assert said(late) == "201 new"


def test_gitea_may_send_a_form_or_a_query(client: Web, conn: Conn) -> None:
    body = '{"ref": "ünï & x"}'.encode()
    form = [*signing.gitea(KEY, body, "1"), signing.FORM]
    assert said(post(client, "gitea", signing.payload(body), form)) == "201 new"
    query = signing.payload(body).decode()
    path = f"/in/default/gitea?{query}"
    answer = client.send("GET", path, headers=signing.gitea(KEY, body, "2", event="create"))
    assert said(answer) == "201 new"
    forged = client.send("GET", path, headers=signing.gitea("other", body, "3"))
    assert said(forged) == "401 refused"
    inputs = conn.execute("select input from semel.runs").fetchall()
    assert [each["payload"] for [each] in inputs] == [{"ref": "ünï & x"}] * 2


def test_what_came_by_get_is_replayed_from_its_query(
    client: Web, told: Settings, conn: Conn
) -> None:
    body = b'{"ref": "x"}'
    path = "/in/default/gitea?" + signing.payload(body).decode()
    answer = client.send("GET", path, headers=signing.gitea(KEY, body, "1"))
    _, [one] = replay(conn, told, "default", UUID(answer.json()["event_id"]))
    assert one.accepted.verdict == "new"
    assert one.input == {
        "event": "push",
        "type": "push",
        "delivery": "1",
        "payload": {"ref": "x"},
    }


def test_a_known_id_with_another_content_is_a_conflict_and_hides_nothing(
    client: Web, conn: Conn
) -> None:
    for channel in ("gitea", "github"):
        sign = getattr(signing, channel)
        one, other = b'{"n": 1}', b'{"n": 2}'
        assert said(post(client, channel, one, sign(KEY, one, "1"))) == "201 new"
        answer = post(client, channel, other, sign(KEY, other, "1"))
        assert said(answer) == "200 conflict"
        assert answer.json()["code"] == "E-IDEMPOTENT-002"
        assert said(post(client, channel, other, sign(KEY, other, "2"))) == "201 new"
    assert count(conn, "runs") == 4
    assert not faults(conn)


def test_a_hook_without_ids_is_known_by_what_it_says(client: Web) -> None:
    body = b'{"ref": "x"}'
    headers = [each for each in signing.gitea(KEY, body) if "delivery" not in each[0]]
    assert said(post(client, "gitea", body, headers)) == "201 new"
    assert said(post(client, "gitea", body, headers)) == "200 duplicate"
    assert said(post(client, "gitea", body, signing.gitea(KEY, body))) == "200 redelivery"


def test_github_s_ping_is_ignored_and_its_redelivery_a_duplicate(
    client: Web, conn: Conn
) -> None:
    ping = b'{"zen": "x"}'
    assert (
        said(post(client, "github", ping, signing.github(KEY, ping, "0", "ping")))
        == "200 ignored"
    )
    told = {"repository": {"full_name": "o/r"}, "issue": {"number": 3}}
    assert said(post(client, "github", told)) == "201 new"
    assert said(post(client, "github", told)) == "200 duplicate"
    body = json.dumps(told).encode()
    assert (
        said(post(client, "github", body, signing.github(KEY, body, "g-2"))) == "200 redelivery"
    )
    assert count(conn, "runs") == 1


def test_an_id_that_is_there_twice_is_quarantined(client: Web) -> None:
    body = b'{"ref": "x"}'
    headers = [*signing.github(KEY, body), ("x-github-delivery", "g-2")]
    answer = post(client, "github", body, headers)
    assert said(answer) == "200 quarantined"
    assert "2 lines of x-github-delivery" in answer.json()["reason"]


# -- line ----------------------------------------------------------------------------------


def line(*names: str, **changes: Any) -> dict[str, Any]:
    def event(name: str) -> dict[str, Any]:
        told = {"type": "message", "webhookEventId": name, "mode": "active", "timestamp": 1}
        return {**told, "source": {"type": "user", "userId": "U1"}, **changes}

    return {"destination": "U0", "events": [event(name) for name in names]}


def test_line_s_events_are_each_once_however_they_are_grouped(client: Web, conn: Conn) -> None:
    first = post(client, "line", line("1", "2"))
    assert said(first) == "200 new, new"
    assert len({event["run_id"] for event in first.json()["events"]}) == 2
    again = line("2", "3", deliveryContext={"isRedelivery": True})
    assert said(post(client, "line", again)) == "200 duplicate, new"
    assert said(post(client, "line", line("1"))) == "200 duplicate"
    assert count(conn, "runs") == 3
    [[told]] = conn.execute(
        "select input from semel.runs order by created_at limit 1"
    ).fetchall()
    assert told["destination"] == "U0"
    assert told["event"]["webhookEventId"] in {"1", "2"}


def test_a_request_whose_transaction_failed_is_whole_when_it_comes_again(
    client: Web, conn: Conn
) -> None:
    post(client, "line", line("1", "2"))
    told = line("2", "3", deliveryContext={"isRedelivery": True})
    with conn.transaction():
        conn.execute("lock table semel.dedupe in access exclusive mode")
        failed = post(client, "line", told)
    assert failed.status_code == 503
    assert failed.headers["retry-after"]
    assert count(conn, "events") == count(conn, "runs") == count(conn, "deliveries") == 2
    assert said(post(client, "line", told)) == "200 duplicate, new"
    assert count(conn, "runs") == 3


def test_line_tries_the_url_and_nothing_is_kept(client: Web, conn: Conn) -> None:
    answer = post(client, "line", {"destination": "U0", "events": []})
    assert said(answer) == "200 ignored"
    assert count(conn, "deliveries") == count(conn, "events") == 0
    assert (
        said(post(client, "line", {"events": []}, [("x-line-signature", "x")])) == "401 refused"
    )


def test_one_event_that_is_strange_takes_none_of_the_others_with_it(
    client: Web, conn: Conn
) -> None:
    told = line("1", "2")
    told["events"] += [
        {"webhookEventId": "3", "mode": "upside-down"},
        {"webhookEventId": "4", "mode": "standby"},
        {"webhookEventId": "5", "mode": "active", "type": "of tomorrow", "new": {}},
        {"replyToken": "0" * 32, "mode": "active"},
        {"mode": "active"},
        7,
        {"webhookEventId": "1", "mode": "active"},
    ]
    answer = post(client, "line", told)
    assert said(answer) == (
        "200 new, new, quarantined, ignored, new, ignored, quarantined, quarantined, duplicate"
    )
    assert count(conn, "runs") == 3
    assert count(conn, "deliveries") == 9
    assert not faults(conn, arrivals=True)


def test_a_request_of_very_many_events_is_one_transaction(client: Web, conn: Conn) -> None:
    names = [str(n) for n in range(600)]
    answer = post(client, "line", line(*names))
    assert answer.status_code == 200
    assert len(answer.json()["events"]) == 600
    assert count(conn, "runs") == 600
    assert len({stamp for [stamp] in conn.execute("select xmin::text from semel.dedupe")}) == 1
    assert said(post(client, "line", line(*(str(n) for n in range(1001))))) == "200 quarantined"


@pytest.mark.parametrize("events", [None, 5, {}, "x"])
def test_line_without_a_list_of_events_is_quarantined(client: Web, events: Any) -> None:
    assert said(post(client, "line", {"events": events})) == "200 quarantined"


# -- slack ---------------------------------------------------------------------------------


def test_slack_is_answered_nothing_but_200(client: Web, conn: Conn) -> None:
    event = {
        "type": "event_callback",
        "event_id": "Ev1",
        "event": {"channel": "C", "ts": "1.0"},
    }
    body = json.dumps(event).encode()
    first = post(client, "slack", event)
    retry = [*signing.slack(KEY, body, NOW + 60), ("x-slack-retry-num", "1")]
    again = post(client, "slack", body, retry, NOW + 60)
    assert (said(first), said(again)) == ("200 new", "200 duplicate")
    bad = post(client, "slack", b"{")
    none = post(client, "slack", {"type": "event_callback"})
    assert (said(bad), said(none)) == ("200 quarantined", "200 quarantined")
    assert {answer.content for answer in (first, again, bad, none)} == {b""}
    assert count(conn, "runs") == 1


def test_slack_s_challenge_is_verified_and_repeated_as_text(client: Web, conn: Conn) -> None:
    told = {"type": "url_verification", "challenge": "3eZ<b>"}
    answer = post(client, "slack", told)
    assert said(answer) == "200 ignored"
    assert answer.text == "3eZ<b>"
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert said(post(client, "slack", told, [])) == "401 refused"
    assert said(post(client, "slack", {**told, "challenge": "x" * 5000})) == "200 quarantined"
    assert count(conn, "events") == 0


def test_what_people_do_in_slack_is_known_by_its_trigger(client: Web, conn: Conn) -> None:
    command = b"command=%2Fdeploy&text=web+now&trigger_id=1.2.a"
    headers = [*signing.slack(KEY, command), signing.FORM]
    assert said(post(client, "slack", command, headers)) == "200 new"
    assert said(post(client, "slack", command, headers)) == "200 duplicate"
    pressed = signing.payload(
        json.dumps({"type": "block_actions", "trigger_id": "1.2.b"}).encode()
    )
    assert (
        said(post(client, "slack", pressed, [*signing.slack(KEY, pressed), signing.FORM]))
        == "200 new"
    )
    closed = signing.payload(json.dumps({"type": "view_closed", "view": {"id": "V"}}).encode())
    for wanted in ("200 new", "200 duplicate"):
        answer = post(client, "slack", closed, [*signing.slack(KEY, closed), signing.FORM])
        assert said(answer) == wanted
    check = b"ssl_check=1&token=x"
    assert (
        said(post(client, "slack", check, [*signing.slack(KEY, check), signing.FORM]))
        == "200 ignored"
    )
    inputs = [
        each for [each] in conn.execute("select input from semel.runs order by created_at")
    ]
    assert inputs[0] == {"command": "/deploy", "text": "web now", "trigger_id": "1.2.a"}
    assert inputs[1]["type"] == "block_actions"


# -- stripe, standard, hmac ----------------------------------------------------------------


def test_stripe_s_retry_is_signed_anew_and_is_a_duplicate(client: Web, conn: Conn) -> None:
    body = b'{"id": "evt_1", "object": "event", "livemode": false}'
    assert said(post(client, "stripe", body)) == "201 new"
    later = signing.stripe(KEY, body, NOW + 3600)
    assert said(post(client, "stripe", body, later, NOW + 3600)) == "200 duplicate"
    assert said(post(client, "stripe", {"id": "evt_1", "account": "acct_1"})) == "201 new"
    assert (
        said(post(client, "stripe", {"id": "evt_1", "account": "acct_1", "x": 1}))
        == "200 duplicate"
    )
    names = conn.execute("select provider_event_id from semel.events order by 1").fetchall()
    assert names == [("acct_1/evt_1",), ("evt_1",)]


def test_stripe_without_an_id_is_quarantined(client: Web) -> None:
    for body in (b"{}", b'{"id": ""}', b'{"id": 5}', b'{"id": "e", "account": 5}', b"[]"):
        assert said(post(client, "stripe", body)) == "200 quarantined"


def test_standard_s_id_is_the_identity_and_its_time_is_not(client: Web, conn: Conn) -> None:
    body = b'{"type": "x"}'
    assert said(post(client, "standard", body)) == "201 new"
    later = signing.standard(WHSEC, body, NOW + 300)
    assert said(post(client, "standard", body, later, NOW + 300)) == "200 duplicate"
    other = signing.standard(WHSEC, body, name="msg_2")
    assert said(post(client, "standard", body, other)) == "201 new"
    for bad in (b"{", b"", b"\xff", gzip.compress(b"0" * 10_000_000)):
        assert said(post(client, "standard", bad)) == "200 quarantined"
    long = signing.standard(WHSEC, body, name="x" * 501)
    assert said(post(client, "standard", body, long)) == "200 quarantined"
    assert count(conn, "runs") == 2


def test_a_packed_body_is_never_unpacked(client: Web) -> None:
    body = gzip.compress(b'{"id": "evt_1"}')
    headers = [*signing.stripe(KEY, body), ("content-encoding", "gzip")]
    answer = post(client, "stripe", body, headers)
    assert said(answer) == "200 quarantined"
    assert "Content-Encoding gzip is not read" in answer.json()["reason"]


def test_hmac_with_an_id_that_is_not_signed_looks_at_the_content_too(
    client: Web, conn: Conn
) -> None:
    def arrive(name: str | None, body: bytes = b'{"n": 1}') -> str:
        headers = [("x-signature", signing.hexed(KEY, body))]
        return said(post(client, "hmac", body, headers + ([("x-id", name)] if name else [])))

    assert arrive("1") == "201 new"
    assert arrive("1") == "200 duplicate"
    assert arrive("2") == "200 redelivery"
    assert arrive("2", b'{"n": 2}') == "201 new"
    assert arrive("1", b'{"n": 3}') == "200 conflict"
    assert arrive(None) == "200 quarantined"
    assert count(conn, "runs") == 2


# -- cloudevents ---------------------------------------------------------------------------

BEARER = ("authorization", f"Bearer {KEY}")
BINARY = [
    BEARER,
    ("ce-id", "1"),
    ("ce-source", "/s"),
    ("ce-type", "t"),
    ("ce-specversion", "1.0"),
    ("content-type", "application/json"),
]


def event(name: Any = "1", origin: Any = "/s", **more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": name, "source": origin, "type": "t", **more}


def test_a_cloudevent_is_the_same_in_each_form(client: Web, conn: Conn) -> None:
    first = post(client, "cloudevents", {"a": 1}, BINARY)
    form = [BEARER, ("content-type", "application/cloudevents+json; charset=utf-8")]
    again = post(client, "cloudevents", event(data={"a": 1}), form)
    assert (said(first), said(again)) == ("201 new", "200 duplicate")
    batch = [BEARER, ("content-type", "application/cloudevents-batch+json")]
    told = [event(), event("2"), event("1", "/other"), event(""), event("1", "/a b"), 5]
    several = post(client, "cloudevents", told, batch)
    assert said(several) == "201 duplicate, new, new, quarantined, quarantined, quarantined"
    assert said(post(client, "cloudevents", [], batch)) == "200 ignored"
    assert said(post(client, "cloudevents", {}, batch)) == "200 quarantined"
    assert post(client, "cloudevents", [event()] * 1001, batch).status_code == 413
    [[told]] = conn.execute(
        "select input from semel.runs order by created_at limit 1"
    ).fetchall()
    assert told == {**event(), "datacontenttype": "application/json", "data": {"a": 1}}


@pytest.mark.parametrize(
    ("value", "read"),
    [("Euro%20%E2%82%AC", "Euro €"), ("%2541", "%41"), ('"a\\"b"', 'a"b'), ("50%", "50%")],
)
def test_a_header_is_decoded_once(client: Web, conn: Conn, value: str, read: str) -> None:
    headers = [each if each[0] != "ce-id" else ("ce-id", value) for each in BINARY]
    assert said(post(client, "cloudevents", {}, headers)) == "201 new"
    [[name]] = conn.execute("select provider_event_id from semel.events").fetchall()
    assert name == f"/s {read}"


WRONG = [
    *(("ce-id", None), ("ce-id", ""), ("ce-id", "%C0%A0"), ("ce-id", "%00"), ("ce-id", "%0a")),
    *(("ce-source", None), ("ce-source", "a b"), ("ce-type", None), ("ce-specversion", None)),
    *(("ce-specversion", "0.3"), ("ce-data", "x"), ("ce-id", "x" * 501)),
]


def test_what_is_no_cloudevent_is_refused_and_never_named_by_chance(
    client: Web, conn: Conn
) -> None:
    for name, value in WRONG:
        headers = [each for each in BINARY if each[0] != name]
        if value is not None:
            headers.append((name, value))
        assert said(post(client, "cloudevents", {}, headers)) == "400 refused", (name, value)
    assert count(conn, "deliveries") == 0


def test_data_that_is_no_json_is_kept_as_text_or_base64(client: Web, conn: Conn) -> None:
    wanted = {"text/plain": {"data": "hé"}, "application/x-y": {"data_base64": "aMOp"}}
    for n, (kind, data) in enumerate(wanted.items()):
        headers = [*BINARY[:1], ("ce-id", str(n)), *BINARY[2:5], ("content-type", kind)]
        assert said(post(client, "cloudevents", "hé".encode(), headers)) == "201 new"
        [[told]] = conn.execute(
            "select input from semel.runs order by created_at desc limit 1"
        ).fetchall()
        assert told == {**event(str(n)), "datacontenttype": kind, **data}
    assert said(post(client, "cloudevents", b"{", BINARY)) == "200 quarantined"


def test_a_token_may_stand_in_the_url_and_is_not_kept(client: Web, conn: Conn) -> None:
    path = "/in/default/cloudevents?access_token="
    assert said(client.post(path + KEY, b"{}", BINARY[1:])) == "201 new"
    for wrong in ("x", "", f"{KEY}&access_token={KEY}"):
        assert said(client.post(path + wrong, b"{}", BINARY[1:])) == "401 refused"
    kept = conn.execute("select headers::text from semel.deliveries").fetchall()
    assert KEY not in str(kept)


def test_the_handshake_allows_the_origin_and_its_rate(client: Web, conn: Conn) -> None:
    asked = {"WebHook-Request-Origin": "azure.example", "WebHook-Request-Rate": "120"}
    answer = client.send("OPTIONS", "/in/default/cloudevents", headers=asked)
    assert said(answer) == "200 ignored"
    assert answer.headers["webhook-allowed-origin"] == "azure.example"
    assert answer.headers["webhook-allowed-rate"] == "120"
    assert client.send("OPTIONS", "/in/default/cloudevents").status_code == 400
    assert client.send("OPTIONS", "/in/default/gitea").status_code == 405
    assert count(conn, "deliveries") == 0


# -- discord -------------------------------------------------------------------------------


def test_discord_hears_wait_at_once_and_again(client: Web, conn: Conn) -> None:
    told = {"id": "1", "application_id": "9", "type": 2, "data": {"name": "run"}, "token": "t"}
    first, again = post(client, "discord", told), post(client, "discord", told)
    assert (said(first), said(again)) == ("200 new", "200 duplicate")
    assert first.json() == again.json() == {"type": 5}
    suggest = post(client, "discord", {**told, "id": "2", "type": 4})
    assert suggest.json() == {"type": 8, "data": {"choices": []}}
    assert post(client, "discord", {"type": 1}).json() == {"type": 1}
    assert said(post(client, "discord", {**told, "id": None})) == "200 quarantined"
    assert count(conn, "runs") == 1


def test_a_discord_event_is_known_by_what_it_says(client: Web, conn: Conn) -> None:
    def sent(**changes: Any) -> httpx.Response:
        inner = {"type": "ENTITLEMENT_CREATE", "timestamp": "2026-01-01T00:00:00", "data": {}}
        told = {"version": 1, "application_id": "9", "type": 1, "event": inner | changes}
        return post(client, "discord", told)

    answers = [sent(), sent(), sent(timestamp="2026-01-01T00:00:01"), sent(data={"a": 1})]
    assert [said(each) for each in answers] == [
        "204 new",
        "204 duplicate",
        "204 new",
        "204 new",
    ]
    assert {each.content for each in answers} == {b""}
    assert said(post(client, "discord", {"type": 0, "application_id": "9"})) == "204 ignored"
    assert said(post(client, "discord", {"type": 7, "event": {}})) == "204 quarantined"
    assert count(conn, "runs") == 3


# -- all of them ---------------------------------------------------------------------------

SIGNED = ["gitea", "github", "hmac", "line", "slack", "standard", "stripe", "discord"]


UNUSABLE = [
    *(b"", b"{", b"{} {}", b"\xff", b"null", b'{"x":"\\u0000"}', b"[" * 5000, b'{"n":NaN}'),
    b"\x1f\x8b",
]


@pytest.mark.parametrize("channel", SIGNED)
def test_what_is_authentic_and_unusable_is_kept_and_answered_2xx(
    client: Web, conn: Conn, channel: str
) -> None:
    for body in UNUSABLE:
        hexed = [("x-signature", signing.hexed(KEY, body)), ("x-id", "1")]
        answer = post(client, channel, body, hexed if channel == "hmac" else None)
        is_usable = channel in {"hmac", "standard"} and body == b"null"
        assert verdict(answer) == ("new" if is_usable else "quarantined"), body
        assert answer.status_code // 100 == 2
        forged = post(client, channel, body, [("x-id", "1")])
        assert said(forged) == "401 refused"
    assert count(conn, "events") == int(channel in {"hmac", "standard"})
    assert count(conn, "deliveries") == len(UNUSABLE)


def test_a_quarantined_event_is_replayed_once_it_can_be_read(
    client: Web, told: Settings, conn: Conn
) -> None:
    post(client, "slack", {"type": "event_callback"})
    [[name]] = conn.execute("select delivery_id from semel.deliveries").fetchall()
    with pytest.raises(Quarantined):
        replay(conn, told, "default", name)
    post(client, "github", b"{}", signing.github(KEY, b"{}", "0", "ping"))
    [[name]] = conn.execute(
        "select delivery_id from semel.deliveries where verdict = 'ignored'"
    ).fetchall()
    with pytest.raises(NotReplayable):
        replay(conn, told, "default", name)


def test_of_one_request_one_event_is_replayed(client: Web, told: Settings, conn: Conn) -> None:
    answer = post(client, "line", line("1", "2"))
    _, [one] = replay(conn, told, "default", UUID(answer.json()["events"][1]["event_id"]))
    assert one.accepted.verdict == "new"
    assert isinstance(one.input, dict)
    assert one.input["event"] == line("2")["events"][0]
