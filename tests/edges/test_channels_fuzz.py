"""Whatever is sent, a channel answers with a reading or refuses with an error of ours."""

import json
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.config import Source
from semel.config.hmac import HmacSettings
from semel.core.inbox import alert_accept, event_accept
from semel.edges.channel import Notification, Reply, Request
from semel.edges.channels import READERS
from semel.errors import SemelError
from web import secret

LATIN = st.text(st.characters(max_codepoint=255), max_size=30)
NAMES = st.sampled_from(
    [
        *("authorization", "idempotency-key", "idempotency_key", "x-other", "user-agent"),
        *("x-telegram-bot-api-secret-token", "content-type", "content-encoding"),
        *("x-gitea-signature", "x-forgejo-signature", "x-gitea-delivery", "x-gitea-event"),
        *("x-hub-signature-256", "x-github-delivery", "x-github-event", "x-line-signature"),
        *("x-slack-signature", "x-slack-request-timestamp", "stripe-signature"),
        *("webhook-id", "webhook-timestamp", "webhook-signature", "svix-id", "svix-signature"),
        *("ce-id", "ce-source", "ce-type", "ce-specversion", "ce-data", "ce-x"),
        *("webhook-request-origin", "webhook-request-rate"),
        *("x-signature-ed25519", "x-signature-timestamp", "x-signature", "x-id", "x-time"),
    ]
)
VALUES = LATIN | st.sampled_from(
    [
        *(
            "Bearer s",
            "Basic dTpz",
            "Basic =",
            '"k"',
            "s",
            "Basic 4pyT",
            "",
            "1767225600",
            "9" * 40,
        ),
        *(
            "application/x-www-form-urlencoded",
            "application/json; charset=utf-8",
            "gzip",
            "1.0",
        ),
        *("application/cloudevents+json", "application/cloudevents-batch+json", "text/plain"),
        *("sha256=" + "0" * 64, "v0=" + "0" * 64, "t=1767225600,v1=" + "0" * 64, "0" * 128),
        *("v1,AAAA v1a,AAAA", "v1", ",", "v1a,=", "%C0%A0", "%E2%82%AC", "ping", "-5", "²"),
    ]
)
MEMBERS = st.sampled_from(
    [
        *("alerts", "update_id", "fingerprint", "status", "startsAt", "endsAt", "version"),
        *("events", "destination", "webhookEventId", "mode", "replyToken", "source", "id"),
        *("type", "event_id", "event", "challenge", "trigger_id", "payload", "account"),
        *("specversion", "data", "application_id", "channel", "ts", "repository", "issue"),
        *("full_name", "number", "chat", "message"),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["firing", "resolved", "2026-11-30T10:44:45Z", "0001-01-01T00:00:00Z"])
)
JSONS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(MEMBERS, inner, max_size=6),
    max_leaves=20,
)
FORMS = st.lists(st.tuples(MEMBERS, st.text(max_size=20)), max_size=3).map(
    lambda pairs: urlencode(pairs, errors="surrogatepass").encode()
)
BODIES = (
    st.binary(max_size=200)
    | JSONS.map(lambda value: json.dumps(value).encode())
    | JSONS.map(lambda value: b"payload=" + quote(json.dumps(value)).encode())
    | FORMS
)


def source_of(channel: Any, *, is_open: bool) -> Source:
    signing = HmacSettings(
        source="s",
        header="X-Signature",
        signed="{id}.{timestamp}.{body}",
        id="header:X-Id",
        timestamp="header:X-Time",
        event="body:/event/type",
        correlation="body:/events/0",
    )
    return Source(
        name="s",
        channel=channel,
        agent="a",
        secrets=() if is_open else (secret("s"), secret("whpk_" + "A" * 43 + "=")),
        hmac=signing if channel == "hmac" else None,
    )


@pytest.mark.parametrize("channel", sorted(READERS))
@given(
    method=st.sampled_from(["POST", "POST", "POST", "GET", "OPTIONS"]),
    headers=st.lists(st.tuples(NAMES, VALUES), max_size=6),
    body=BODIES,
    is_open=st.booleans(),
)
def test_no_request_makes_a_channel_fail(
    channel: Any, method: str, headers: list[tuple[str, str]], body: bytes, *, is_open: bool
) -> None:
    request = Request(method=method, headers=headers, body=body, local=True, query=body)
    with suppress(SemelError):
        reading = READERS[channel](request, source_of(channel, is_open=is_open))
        if isinstance(reading, Notification):
            alert_accept("p", "s", "a", reading.envelope, reading.alerts, body=body, headers={})
            return
        if isinstance(reading, Reply):
            assert 200 <= reading.status < 300
        event_accept("p", reading.offers if isinstance(reading, Reply) else reading)
