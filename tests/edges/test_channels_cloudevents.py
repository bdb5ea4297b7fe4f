"""CloudEvents: one event in three forms, and none that is named by chance."""

from typing import Any

import pytest

from fix_channels import KEY, Conn, post, said
from web import Web, count

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


def test_a_cloudevent_is_the_same_in_each_form(channels_web: Web, conn: Conn) -> None:
    first = post(channels_web, "cloudevents", {"a": 1}, BINARY)
    form = [BEARER, ("content-type", "application/cloudevents+json; charset=utf-8")]
    again = post(channels_web, "cloudevents", event(data={"a": 1}), form)
    assert (said(first), said(again)) == ("201 new", "200 duplicate")
    batch = [BEARER, ("content-type", "application/cloudevents-batch+json")]
    told = [event(), event("2"), event("1", "/other"), event(""), event("1", "/a b"), 5]
    several = post(channels_web, "cloudevents", told, batch)
    assert said(several) == "201 duplicate, new, new, quarantined, quarantined, quarantined"
    assert said(post(channels_web, "cloudevents", [], batch)) == "200 ignored"
    assert said(post(channels_web, "cloudevents", {}, batch)) == "200 quarantined"
    assert post(channels_web, "cloudevents", [event()] * 1001, batch).status_code == 413
    [[told]] = conn.execute(
        "select input from semel.runs order by created_at limit 1"
    ).fetchall()
    assert told == {**event(), "datacontenttype": "application/json", "data": {"a": 1}}


@pytest.mark.parametrize(
    ("value", "read"),
    [("Euro%20%E2%82%AC", "Euro €"), ("%2541", "%41"), ('"a\\"b"', 'a"b'), ("50%", "50%")],
)
def test_a_header_is_decoded_once(channels_web: Web, conn: Conn, value: str, read: str) -> None:
    headers = [each if each[0] != "ce-id" else ("ce-id", value) for each in BINARY]
    assert said(post(channels_web, "cloudevents", {}, headers)) == "201 new"
    [[name]] = conn.execute("select provider_event_id from semel.events").fetchall()
    assert name == f"/s {read}"


WRONG = [
    *(("ce-id", None), ("ce-id", ""), ("ce-id", "%C0%A0"), ("ce-id", "%00"), ("ce-id", "%0a")),
    *(("ce-source", None), ("ce-source", "a b"), ("ce-type", None), ("ce-specversion", None)),
    *(("ce-specversion", "0.3"), ("ce-data", "x"), ("ce-id", "x" * 501)),
]


def test_what_is_no_cloudevent_is_refused_and_never_named_by_chance(
    channels_web: Web, conn: Conn
) -> None:
    for name, value in WRONG:
        headers = [each for each in BINARY if each[0] != name]
        if value is not None:
            headers.append((name, value))
        assert said(post(channels_web, "cloudevents", {}, headers)) == "400 refused", (
            name,
            value,
        )
    assert count(conn, "deliveries") == 0


def test_data_that_is_no_json_is_kept_as_text_or_base64(channels_web: Web, conn: Conn) -> None:
    wanted = {"text/plain": {"data": "hé"}, "application/x-y": {"data_base64": "aMOp"}}
    for n, (kind, data) in enumerate(wanted.items()):
        headers = [*BINARY[:1], ("ce-id", str(n)), *BINARY[2:5], ("content-type", kind)]
        assert said(post(channels_web, "cloudevents", "hé".encode(), headers)) == "201 new"
        [[told]] = conn.execute(
            "select input from semel.runs order by created_at desc limit 1"
        ).fetchall()
        assert told == {**event(str(n)), "datacontenttype": kind, **data}
    assert said(post(channels_web, "cloudevents", b"{", BINARY)) == "200 quarantined"


def test_a_token_may_stand_in_the_url_and_is_not_kept(channels_web: Web, conn: Conn) -> None:
    path = "/in/default/cloudevents?access_token="
    assert said(channels_web.post(path + KEY, b"{}", BINARY[1:])) == "201 new"
    for wrong in ("x", "", f"{KEY}&access_token={KEY}"):
        assert said(channels_web.post(path + wrong, b"{}", BINARY[1:])) == "401 refused"
    kept = conn.execute("select headers::text from semel.deliveries").fetchall()
    assert KEY not in str(kept)


def test_the_handshake_allows_the_origin_and_its_rate(channels_web: Web, conn: Conn) -> None:
    asked = {"WebHook-Request-Origin": "azure.example", "WebHook-Request-Rate": "120"}
    answer = channels_web.send("OPTIONS", "/in/default/cloudevents", headers=asked)
    assert said(answer) == "200 ignored"
    assert answer.headers["webhook-allowed-origin"] == "azure.example"
    assert answer.headers["webhook-allowed-rate"] == "120"
    assert channels_web.send("OPTIONS", "/in/default/cloudevents").status_code == 400
    assert channels_web.send("OPTIONS", "/in/default/gitea").status_code == 405
    assert count(conn, "deliveries") == 0
