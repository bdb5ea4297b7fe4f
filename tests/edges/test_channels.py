"""A channel verifies first and reads second; what it cannot use it quarantines or refuses."""

import base64
import json
from contextlib import suppress
from typing import Any

import pytest

from semel.config import Source
from semel.config.hmac import HmacSettings
from semel.edges.channel import Notification, Request, headers_of, kept
from semel.edges.channels import READERS, alertmanager, api, telegram
from semel.errors import BadKey, BadRequest, NotAuthentic
from semel.model import Offer
from web import secret

ALERT = {
    "status": "firing",
    "labels": {"alertname": "A"},
    "startsAt": "2026-11-30T10:44:45.413697Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "fingerprint": "bdedbace6631dcce",
}


def source(channel: Any, *secrets: str, **changes: Any) -> Source:
    told: dict[str, Any] = {"name": "s", "channel": channel, "agent": "a"}
    if channel == "hmac":
        told["hmac"] = HmacSettings(source="s", header="X-Signature")
    return Source(secrets=tuple(secret(each) for each in secrets), **(told | changes))


def request(body: Any, *headers: tuple[str, str], local: bool = True) -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request(method="POST", headers=headers, body=raw, local=local)


def basic(text: str) -> tuple[str, str]:
    return ("authorization", "Basic " + base64.b64encode(text.encode()).decode())


def reason(reading: Any) -> str:
    assert isinstance(reading, list)
    (offer,) = reading
    assert offer.verdict == "quarantined"
    assert offer.id is None
    return str(offer.reason)


def test_a_source_that_polls_takes_nothing_that_is_posted() -> None:
    for secrets in ([], ["1:A"]):
        with pytest.raises(NotAuthentic, match="telegram-poll"):
            header = (telegram.SECRET_HEADER, "1:A")
            READERS["telegram-poll"](
                request({"update_id": 1}, header), source("telegram-poll", *secrets)
            )


@pytest.mark.parametrize("channel", sorted(set(READERS) - {"telegram-poll"}))
def test_a_source_without_secrets_takes_only_what_this_machine_sends(channel: str) -> None:
    with suppress(BadRequest):  # it is no event of every channel
        assert READERS[channel](request({"update_id": 1}), source(channel))
    with pytest.raises(NotAuthentic):
        READERS[channel](request({"update_id": 1}, local=False), source(channel))


@pytest.mark.parametrize(
    "header",
    [
        ("authorization", "Bearer s3cret:x"),
        ("authorization", "bearer   s3cret:x "),
        basic("user:s3cret:x"),
        basic(":s3cret:x"),
        basic("s3cret:x"),
        ("authorization", "Bearer old"),
    ],
)
def test_alertmanager_may_show_the_secret_in_each_way_it_can(header: tuple[str, str]) -> None:
    reading = alertmanager.read(
        request({"alerts": [ALERT]}, header), source("alertmanager", "s3cret:x", "old")
    )
    assert isinstance(reading, Notification)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("authorization", "Bearer wrong"),),
        (("authorization", "Bearer "),),
        (("authorization", "s3cret:x"),),
        (("authorization", ""),),
        (("authorization", "Basic !!!"),),
        (("authorization", "Basic ä"),),
        (basic("no colon"),),
        (basic("user:wrong"),),
        (("authorization", "Bearer s3cret:x"), ("authorization", "Bearer s3cret:x")),
        (("authorization", "Digest s3cret:x"),),
    ],
)
def test_alertmanager_without_the_secret_is_refused(headers: Any) -> None:
    with pytest.raises(NotAuthentic) as refused:
        alertmanager.read(
            request({"alerts": [ALERT]}, *headers), source("alertmanager", "s3cret:x")
        )
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-30T10:44:45Z", 1_796_035_485_000_000_000),
        ("2026-11-30T10:44:45.4Z", 1_796_035_485_400_000_000),
        ("2026-11-30T10:44:45.413697Z", 1_796_035_485_413_697_000),
        ("2026-11-30T18:44:45.413697001+08:00", 1_796_035_485_413_697_001),
        ("2026-11-30T05:14:45.413697001-05:30", 1_796_035_485_413_697_001),
        ("1969-12-31T23:59:59.5Z", -500_000_000),
        ("2016-12-31T23:59:60Z", 1_483_228_799_999_999_999),
        ("2017-01-01T08:59:60.25+09:00", 1_483_228_799_999_999_999),
        ("2026-11-30T10:44:45+23:59", 1_796_035_485_000_000_000 - 86_340 * 10**9),
        ("2262-04-11T23:47:16.854775807Z", alertmanager.NS_MAX),
        ("9999-12-31T23:59:59Z", alertmanager.NS_MAX),
        ("1677-09-21T00:12:43Z", -alertmanager.NS_MAX),
        ("0002-01-01T00:00:00Z", -alertmanager.NS_MAX),
    ],
)
def test_alertmanager_s_times_keep_their_nanoseconds_in_any_zone(text: str, ns: int) -> None:
    reading = alertmanager.read(
        request({"alerts": [{**ALERT, "startsAt": text}]}), source("alertmanager")
    )
    assert isinstance(reading, Notification)
    assert reading.alerts[0].starts_ns == ns
    assert reading.alerts[0].ends_ns == 0


def test_alertmanager_s_alerts_are_taken_out_of_the_envelope() -> None:
    resolved = {**ALERT, "status": "resolved", "endsAt": "2026-11-30T10:45:00Z"}
    told = {"version": "4", "routeLabels": {"new": "field"}, "alerts": [resolved]}
    reading = alertmanager.read(request(told), source("alertmanager"))
    assert isinstance(reading, Notification)
    assert reading.envelope == {"version": "4", "routeLabels": {"new": "field"}}
    assert reading.alerts[0].ends_ns == 1_796_035_500_000_000_000
    assert reading.alerts[0].alert == resolved


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "alerts is missing"),
        ({"alerts": []}, "alerts is missing, no list, or empty"),
        ({"alerts": {"a": 1}}, "no list"),
        ({"alerts": ["x"]}, "alerts[0] is no object"),
        ({"alerts": ["x", {**ALERT, "fingerprint": ""}]}, "alerts[1].fingerprint"),
        ({"alerts": [{**ALERT, "fingerprint": None}]}, "alerts[0].fingerprint"),
        ({"alerts": [{**ALERT, "fingerprint": "f" * 129}]}, "too long"),
        ({"alerts": [{**ALERT, "status": "ok"}]}, "alerts[0].status"),
        ({"alerts": [{**ALERT, "startsAt": 5}]}, "alerts[0].startsAt is no RFC 3339 time"),
        ({"alerts": [{**ALERT, "startsAt": "2026-13-30T10:44:45Z"}]}, "is no date"),
        ({"alerts": [{**ALERT, "startsAt": "2026-11-30T10:44:61Z"}]}, "is no date"),
        ({"alerts": [{**ALERT, "startsAt": "2026-11-30T10:44:45+99:99"}]}, "no RFC 3339 time"),
        ({"alerts": [{**ALERT, "startsAt": "2026-11-30T10:44:45+24:00"}]}, "no RFC 3339 time"),
        ({"alerts": [{**ALERT, "startsAt": "٢٠٢٦-11-30T10:44:45Z"}]}, "no RFC 3339 time"),
        ({"alerts": [{**ALERT, "status": "resolved", "endsAt": None}]}, "alerts[0].endsAt"),
        ([], "a JSON array, not an object"),
        (b"", "not JSON"),
        (b"\xff{}", "not UTF-8"),
        (b'{"a":"\\u0000"}', "NUL"),
        (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "nested deeper"),
        (b'{"a":1e999}', "out of range"),
    ],
)
def test_an_unusable_notification_is_quarantined_with_the_reason(
    body: Any, sentence: str
) -> None:
    assert sentence in reason(alertmanager.read(request(body), source("alertmanager")))


def test_telegram_s_update_is_offered_whole() -> None:
    sent = request({"update_id": 910000001, "message": {"text": "hi"}}, local=False)
    sent = Request(
        method="POST",
        headers=[("x-telegram-bot-api-secret-token", "tok")],
        body=sent.body,
        local=False,
    )
    reading = telegram.read(sent, source("telegram", "tok", priority=7))
    assert isinstance(reading, list)
    (offer,) = reading
    assert (offer.id, offer.agent, offer.priority) == ("910000001", "a", 7)
    assert offer.input == {"update_id": 910000001, "message": {"text": "hi"}}
    assert offer.body == sent.body
    assert offer.headers == {}


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("x-telegram-bot-api-secret-token", "wrong"),),
        (("x-telegram-bot-api-secret-token", "tokä"),),
        (
            ("x-telegram-bot-api-secret-token", "tok"),
            ("x-telegram-bot-api-secret-token", "tok"),
        ),
        (("authorization", "Bearer tok"),),
    ],
)
def test_telegram_without_its_one_secret_line_is_refused(headers: Any) -> None:
    with pytest.raises(NotAuthentic):
        telegram.read(request({"update_id": 1}, *headers), source("telegram", "tok"))


@pytest.mark.parametrize("update_id", [None, "", "5", True, 1.5, [], 2**63, -(2**63)])
def test_telegram_without_a_usable_id_is_quarantined(update_id: Any) -> None:
    said = reason(telegram.read(request({"update_id": update_id}), source("telegram")))
    assert "update_id" in said


@pytest.mark.parametrize("update_id", [0, -1, 2_000_000_000])
def test_telegram_s_id_may_be_any_integer(update_id: int) -> None:
    reading = telegram.read(request({"update_id": update_id}), source("telegram"))
    assert isinstance(reading, list)
    assert reading[0].id == str(update_id)


def key_of(*headers: tuple[str, str], **changes: Any) -> str | None:
    reading = api.read(request({"x": 1}, *headers), source("api", **changes))
    assert isinstance(reading, list)
    (offer,) = reading
    assert isinstance(offer, Offer)
    assert offer.compare == (offer.id is not None)
    return offer.id


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ((), None),
        ((("idempotency-key", "8e03"),), "8e03"),
        ((("idempotency-key", '"8e03"'),), "8e03"),
        ((("idempotency-key", ' "a\\"b\\\\c" '),), 'a"b\\c'),
        ((("idempotency-key", "a b"),), "a b"),
        ((("idempotency_key", "8e03"),), "8e03"),
        ((("idempotency_key", "8e03"), ("idempotency-key", '"8e03"')), "8e03"),
        ((("idempotency-key", "k" * 255),), "k" * 255),
    ],
)
def test_a_key_is_read_in_every_form_that_clients_send(headers: Any, key: str | None) -> None:
    assert key_of(*headers) == key


@pytest.mark.parametrize(
    "headers",
    [
        (("idempotency-key", ""),),
        (("idempotency-key", "  "),),
        (("idempotency-key", '""'),),
        (("idempotency-key", '"open'),),
        (("idempotency-key", '"a"b"'),),
        (("idempotency-key", '"a\\b"'),),
        (("idempotency-key", "k" * 256),),
        (("idempotency-key", "tab\there"),),
        (("idempotency-key", "clé"),),
        (("idempotency-key", "a"), ("idempotency-key", "a")),
        (("idempotency_key", "a"), ("idempotency_key", "a")),
        (("idempotency_key", "a"), ("idempotency-key", "b")),
    ],
)
def test_what_is_no_key_is_refused(headers: Any) -> None:
    with pytest.raises(BadKey):
        key_of(*headers)


def test_a_missing_key_is_refused_only_where_one_is_required() -> None:
    assert key_of() is None
    with pytest.raises(BadKey, match="requires an Idempotency-Key"):
        key_of(require_key=True)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'"\\u0000"', b"[" * 5000, b"NaN"])
def test_the_api_refuses_what_is_no_json(body: bytes) -> None:
    with pytest.raises(BadRequest):
        api.read(request(body), source("api"))


@pytest.mark.parametrize("value", [None, 1, "text", [1, 2], {"a": {}}])
def test_the_api_takes_any_json(value: Any) -> None:
    reading = api.read(request(value), source("api"))
    assert isinstance(reading, list)
    assert reading[0].input == value


SECRET = "hunter2/ä"


def test_a_header_that_nobody_named_is_not_kept() -> None:
    said = kept(
        [
            (name, "v")
            for name in (
                *("host", "cookie", "authorization", "x-api-key", "x-copy", "x-jwt-assertion"),
                *("x-bearer", "x-pwd", "x-otp", "x-auth", "x-gitlab-token", "x-original-url"),
                *("x-hub-sig", "x-hub-signature", "x-hub-signature-256", "x-line-signature"),
                *(
                    "x-slack-signature",
                    "x-gitea-signature",
                    "x-github-token",
                    "webhook-signature",
                ),
            )
        ]
    )
    assert said == {}


def test_what_says_where_a_delivery_came_from_is_kept() -> None:
    names = {
        *("content-type", "user-agent", "idempotency-key", "x-request-id"),
        *("x-gitea-delivery", "x-gitea-event", "x-forgejo-event"),
        *("x-github-delivery", "x-github-hook-id", "x-line-retry-key", "x-slack-retry-num"),
        *("x-slack-request-timestamp", "webhook-id", "webhook-timestamp", "ce-id", "ce-source"),
    }
    assert kept([(name, "v") for name in names]) == dict.fromkeys(names, "v")


@pytest.mark.parametrize(
    "value",
    [
        SECRET.encode().decode("latin-1"),
        f"Agent/{SECRET.encode().decode('latin-1')} (x)",
        "https://h/?secret=hunter2%2F%C3%A4",
        "https://h/hunter2/%C3%A4",
    ],
)
def test_a_kept_header_that_has_a_live_secret_in_it_is_hidden(value: str) -> None:
    said = kept([("user-agent", value), ("x-request-id", "1")], ["other", SECRET])
    assert said == {"user-agent": "***", "x-request-id": "1"}


@pytest.mark.parametrize("channel", ["alertmanager", "telegram", "api", "cloudevents"])
def test_no_channel_keeps_its_secret_wherever_the_sender_copied_it(channel: str) -> None:
    copies = [(name, "s3cret") for name in ("x-copy", "user-agent", "x-request-id", "ce-x")]
    proof = [("authorization", "Bearer s3cret"), (telegram.SECRET_HEADER, "s3cret")]
    event = [
        ("ce-id", "1"),
        ("ce-source", "/s3cret"),
        ("ce-type", "t"),
        ("ce-specversion", "1.0"),
    ]
    for body in ({"update_id": 1, "alerts": [ALERT]}, {"alerts": 5}):
        sent = request(body, *proof, *copies, *event)
        told = source(channel, "old", "s3cret")
        assert "s3cret" not in str(headers_of(sent, told))
        for offer in (
            reading if isinstance(reading := READERS[channel](sent, told), list) else ()
        ):
            assert "s3cret" not in str(offer.headers)


def test_kept_headers_are_short_printable_and_joined() -> None:
    said = kept(
        [
            ("user-agent", "a\x00b\r\nc"),
            ("ce-n", "1"),
            ("ce-n", "2"),
            ("ce-long", "v" * 10_000),
            *((f"ce-{n}", "v") for n in range(100)),
        ]
    )
    assert said["user-agent"] == "a?b??c"
    assert said["ce-n"] == "1, 2"
    assert len(said["ce-long"]) == 500
    assert len(said) == 64
