"""Each provider's events are told apart by what it promises of them, and answered as it wants."""

import gzip
from typing import Any
from uuid import UUID

import httpx
import pytest

import signing
from fix_channels import KEY, Conn, line, post, said
from semel.config import Settings
from semel.edges.replay import replay
from semel.errors import NotReplayable, Quarantined
from signing import NOW, WHSEC
from web import Web, count, verdict


def test_stripe_s_retry_is_signed_anew_and_is_a_duplicate(
    channels_web: Web, conn: Conn
) -> None:
    body = b'{"id": "evt_1", "object": "event", "livemode": false}'
    assert said(post(channels_web, "stripe", body)) == "201 new"
    later = signing.stripe(KEY, body, NOW + 3600)
    assert said(post(channels_web, "stripe", body, later, NOW + 3600)) == "200 duplicate"
    assert said(post(channels_web, "stripe", {"id": "evt_1", "account": "acct_1"})) == "201 new"
    assert (
        said(post(channels_web, "stripe", {"id": "evt_1", "account": "acct_1", "x": 1}))
        == "200 duplicate"
    )
    names = conn.execute("select provider_event_id from semel.events order by 1").fetchall()
    assert names == [("acct_1/evt_1",), ("evt_1",)]


def test_stripe_without_an_id_is_quarantined(channels_web: Web) -> None:
    for body in (b"{}", b'{"id": ""}', b'{"id": 5}', b'{"id": "e", "account": 5}', b"[]"):
        assert said(post(channels_web, "stripe", body)) == "200 quarantined"


def test_standard_s_id_is_the_identity_and_its_time_is_not(
    channels_web: Web, conn: Conn
) -> None:
    body = b'{"type": "x"}'
    assert said(post(channels_web, "standard", body)) == "201 new"
    later = signing.standard(WHSEC, body, NOW + 300)
    assert said(post(channels_web, "standard", body, later, NOW + 300)) == "200 duplicate"
    other = signing.standard(WHSEC, body, name="msg_2")
    assert said(post(channels_web, "standard", body, other)) == "201 new"
    for bad in (b"{", b"", b"\xff", gzip.compress(b"0" * 10_000_000)):
        assert said(post(channels_web, "standard", bad)) == "200 quarantined"
    long = signing.standard(WHSEC, body, name="x" * 501)
    assert said(post(channels_web, "standard", body, long)) == "200 quarantined"
    assert count(conn, "runs") == 2


def test_a_packed_body_is_never_unpacked(channels_web: Web) -> None:
    body = gzip.compress(b'{"id": "evt_1"}')
    headers = [*signing.stripe(KEY, body), ("content-encoding", "gzip")]
    answer = post(channels_web, "stripe", body, headers)
    assert said(answer) == "200 quarantined"
    assert "Content-Encoding gzip is not read" in answer.json()["reason"]


def test_hmac_with_an_id_that_is_not_signed_looks_at_the_content_too(
    channels_web: Web, conn: Conn
) -> None:
    def arrive(name: str | None, body: bytes = b'{"n": 1}') -> str:
        headers = [("x-signature", signing.hexed(KEY, body))]
        return said(
            post(channels_web, "hmac", body, headers + ([("x-id", name)] if name else []))
        )

    assert arrive("1") == "201 new"
    assert arrive("1") == "200 duplicate"
    assert arrive("2") == "200 redelivery"
    assert arrive("2", b'{"n": 2}') == "201 new"
    assert arrive("1", b'{"n": 3}') == "200 conflict"
    assert arrive(None) == "200 quarantined"
    assert count(conn, "runs") == 2


# -- discord -------------------------------------------------------------------------------


def test_discord_hears_wait_at_once_and_again(channels_web: Web, conn: Conn) -> None:
    told = {"id": "1", "application_id": "9", "type": 2, "data": {"name": "run"}, "token": "t"}
    first, again = post(channels_web, "discord", told), post(channels_web, "discord", told)
    assert (said(first), said(again)) == ("200 new", "200 duplicate")
    assert first.json() == again.json() == {"type": 5}
    suggest = post(channels_web, "discord", {**told, "id": "2", "type": 4})
    assert suggest.json() == {"type": 8, "data": {"choices": []}}
    assert post(channels_web, "discord", {"type": 1}).json() == {"type": 1}
    assert said(post(channels_web, "discord", {**told, "id": None})) == "200 quarantined"
    assert count(conn, "runs") == 1


def test_a_discord_event_is_known_by_what_it_says(channels_web: Web, conn: Conn) -> None:
    def sent(**changes: Any) -> httpx.Response:
        inner = {"type": "ENTITLEMENT_CREATE", "timestamp": "2026-01-01T00:00:00", "data": {}}
        told = {"version": 1, "application_id": "9", "type": 1, "event": inner | changes}
        return post(channels_web, "discord", told)

    answers = [sent(), sent(), sent(timestamp="2026-01-01T00:00:01"), sent(data={"a": 1})]
    assert [said(each) for each in answers] == [
        "204 new",
        "204 duplicate",
        "204 new",
        "204 new",
    ]
    assert {each.content for each in answers} == {b""}
    assert (
        said(post(channels_web, "discord", {"type": 0, "application_id": "9"})) == "204 ignored"
    )
    assert said(post(channels_web, "discord", {"type": 7, "event": {}})) == "204 quarantined"
    assert count(conn, "runs") == 3


# -- all of them ---------------------------------------------------------------------------

SIGNED = ["gitea", "github", "hmac", "line", "slack", "standard", "stripe", "discord"]


UNUSABLE = [
    *(b"", b"{", b"{} {}", b"\xff", b"null", b'{"x":"\\u0000"}', b"[" * 5000, b'{"n":NaN}'),
    b"\x1f\x8b",
]


@pytest.mark.parametrize("channel", SIGNED)
def test_what_is_authentic_and_unusable_is_kept_and_answered_2xx(
    channels_web: Web, conn: Conn, channel: str
) -> None:
    for body in UNUSABLE:
        hexed = [("x-signature", signing.hexed(KEY, body)), ("x-id", "1")]
        answer = post(channels_web, channel, body, hexed if channel == "hmac" else None)
        is_usable = channel in {"hmac", "standard"} and body == b"null"
        assert verdict(answer) == ("new" if is_usable else "quarantined"), body
        assert answer.status_code // 100 == 2
        forged = post(channels_web, channel, body, [("x-id", "1")])
        assert said(forged) == "401 refused"
    assert count(conn, "events") == int(channel in {"hmac", "standard"})
    assert count(conn, "deliveries") == len(UNUSABLE)


def test_a_quarantined_event_is_replayed_once_it_can_be_read(
    channels_web: Web, channels: Settings, conn: Conn
) -> None:
    post(channels_web, "slack", {"type": "event_callback"})
    [[name]] = conn.execute("select delivery_id from semel.deliveries").fetchall()
    with pytest.raises(Quarantined):
        replay(conn, channels, "default", name)
    post(channels_web, "github", b"{}", signing.github(KEY, b"{}", "0", "ping"))
    [[name]] = conn.execute(
        "select delivery_id from semel.deliveries where verdict = 'ignored'"
    ).fetchall()
    with pytest.raises(NotReplayable):
        replay(conn, channels, "default", name)


def test_of_one_request_one_event_is_replayed(
    channels_web: Web, channels: Settings, conn: Conn
) -> None:
    answer = post(channels_web, "line", line("1", "2"))
    _, [one] = replay(
        conn, channels, "default", UUID(answer.json()["events"][1]["event_id"]), force=True
    )
    assert one.accepted.verdict == "new"
    assert isinstance(one.input, dict)
    assert one.input["event"] == line("2")["events"][0]
