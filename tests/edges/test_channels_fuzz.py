"""Whatever is sent, a channel answers with a reading or refuses with an error of ours."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.config import Source
from semel.core.inbox import alert_accept, event_accept
from semel.edges.channel import Notification, Request
from semel.edges.channels import READERS
from semel.errors import SemelError
from web import secret

LATIN = st.text(st.characters(max_codepoint=255), max_size=30)
NAMES = st.sampled_from(
    [
        "authorization",
        "idempotency-key",
        "idempotency_key",
        "x-telegram-bot-api-secret-token",
        "x-other",
        "user-agent",
    ]
)
VALUES = LATIN | st.sampled_from(
    ["Bearer s", "Basic dTpz", "Basic =", '"k"', "s", "Basic 4pyT"]
)
MEMBERS = st.sampled_from(
    ["alerts", "update_id", "fingerprint", "status", "startsAt", "endsAt", "version"]
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
BODIES = st.binary(max_size=200) | JSONS.map(lambda value: json.dumps(value).encode())


@pytest.mark.parametrize("channel", sorted(READERS))
@given(
    headers=st.lists(st.tuples(NAMES, VALUES), max_size=5), body=BODIES, is_open=st.booleans()
)
def test_no_request_makes_a_channel_fail(
    channel: Any, headers: list[tuple[str, str]], body: bytes, *, is_open: bool
) -> None:
    source = Source(
        name="s", channel=channel, agent="a", secrets=() if is_open else (secret("s"),)
    )
    request = Request(method="POST", headers=headers, body=body, local=True)
    with suppress(SemelError):
        reading = READERS[channel](request, source)
        if isinstance(reading, Notification):
            alert_accept("p", "s", "a", reading.envelope, reading.alerts, body=body, headers={})
        else:
            event_accept("p", reading)
