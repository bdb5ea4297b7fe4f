"""Slack: one answer for everything, and a challenge."""

import json

import signing
from fix_channels import KEY, Conn, post, said
from signing import NOW
from web import Web, count


def test_slack_is_answered_nothing_but_200(channels_web: Web, conn: Conn) -> None:
    event = {
        "type": "event_callback",
        "event_id": "Ev1",
        "event": {"channel": "C", "ts": "1.0"},
    }
    body = json.dumps(event).encode()
    first = post(channels_web, "slack", event)
    retry = [*signing.slack(KEY, body, NOW + 60), ("x-slack-retry-num", "1")]
    again = post(channels_web, "slack", body, retry, NOW + 60)
    assert (said(first), said(again)) == ("200 new", "200 duplicate")
    bad = post(channels_web, "slack", b"{")
    none = post(channels_web, "slack", {"type": "event_callback"})
    assert (said(bad), said(none)) == ("200 quarantined", "200 quarantined")
    assert {answer.content for answer in (first, again, bad, none)} == {b""}
    assert count(conn, "runs") == 1


def test_slack_s_challenge_is_verified_and_repeated_as_text(
    channels_web: Web, conn: Conn
) -> None:
    told = {"type": "url_verification", "challenge": "3eZ<b>"}
    answer = post(channels_web, "slack", told)
    assert said(answer) == "200 ignored"
    assert answer.text == "3eZ<b>"
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert said(post(channels_web, "slack", told, [])) == "401 refused"
    assert (
        said(post(channels_web, "slack", {**told, "challenge": "x" * 5000}))
        == "200 quarantined"
    )
    assert count(conn, "events") == 0


def test_what_people_do_in_slack_is_known_by_its_trigger(channels_web: Web, conn: Conn) -> None:
    command = b"command=%2Fdeploy&text=web+now&trigger_id=1.2.a"
    headers = [*signing.slack(KEY, command), signing.FORM]
    assert said(post(channels_web, "slack", command, headers)) == "200 new"
    assert said(post(channels_web, "slack", command, headers)) == "200 duplicate"
    pressed = signing.payload(
        json.dumps({"type": "block_actions", "trigger_id": "1.2.b"}).encode()
    )
    assert (
        said(post(channels_web, "slack", pressed, [*signing.slack(KEY, pressed), signing.FORM]))
        == "200 new"
    )
    closed = signing.payload(json.dumps({"type": "view_closed", "view": {"id": "V"}}).encode())
    for wanted in ("200 new", "200 duplicate"):
        answer = post(
            channels_web, "slack", closed, [*signing.slack(KEY, closed), signing.FORM]
        )
        assert said(answer) == wanted
    check = b"ssl_check=1&token=x"
    assert (
        said(post(channels_web, "slack", check, [*signing.slack(KEY, check), signing.FORM]))
        == "200 ignored"
    )
    inputs = [
        each for [each] in conn.execute("select input from semel.runs order by created_at")
    ]
    assert inputs[0] == {"command": "/deploy", "text": "web now", "trigger_id": "1.2.a"}
    assert inputs[1]["type"] == "block_actions"
