"""Whatever a provider, or somebody who is none, posts: a verdict, no fault of ours, no second run."""

import json
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import httpx
import pytest

import fuzzing
import signing
from captured import ENTRIES, channel_of
from consistency import faults
from fix_world import Conn
from fuzzing import TIMEOUT, fuzz
from modelling import Tally
from semel.config import Server
from semel.config.hmac import HmacSettings
from signing import PUBLIC_HEX, WHSEC, Headers, source
from web import Web, count, settings, verdict, web

pytestmark = pytest.mark.timeout(TIMEOUT)

KEY = "s3cret"
TIMED = {"discord", "slack", "standard", "stripe"}
CHANNELS = [
    "cloudevents",
    "discord",
    "gitea",
    "github",
    "hmac",
    "line",
    "slack",
    "standard",
    "stripe",
]
VERDICTS = {"new", "duplicate", "redelivery", "ignored", "quarantined", "refused", "conflict"}


def bodies_of(channel: str) -> list[Any]:
    """What the corpus has of it, or of one that is like it."""
    like = {"hmac": "stripe"}.get(channel, channel)
    found: list[Any] = [{}, [{"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}]]
    return found + [
        json.loads(entry["body"])
        for entry in ENTRIES
        if channel_of(entry) == like and entry["body"].startswith("{")
    ]


def signed(channel: str, some: Random, body: bytes) -> Headers:
    """As its provider signs, or with something of that spoilt."""
    if channel == "cloudevents":
        kind = some.choice(
            ["cloudevents+json", "cloudevents-batch+json", "json", "octet-stream"]
        )
        told = [("authorization", f"Bearer {KEY}"), ("content-type", f"application/{kind}")]
        values = {"id": "1", "source": "/s", "type": "t", "specversion": "1.0", "x": "%41"}
        told += [(f"ce-{name}", value) for name, value in values.items()]
    elif channel == "hmac":
        told = [("x-signature", signing.hexed(KEY, body)), ("x-id", some.choice("abc"))]
    elif channel in TIMED:
        key = {"standard": WHSEC, "discord": PUBLIC_HEX}.get(channel, KEY)
        told = getattr(signing, channel)(key, body, time.time())
    else:
        told = getattr(signing, channel)(KEY, body)
    if some.random() < 0.3 and channel != "cloudevents":
        told = [*told, signing.FORM]
    for _ in range(some.choice([0, 0, 0, 1, 2])):
        at = some.randrange(len(told))
        name, value = told[at]
        changed = some.choice([fuzzing.text(some), value + ",", value[1:], value.upper(), ""])
        told = some.choice(
            [told[:at], [*told[:at], (name, changed), *told[at + 1 :]], [*told, told[at]]]
        )
        if not told:
            break
    return [
        (name, value.encode("latin-1", "replace").decode("latin-1")) for name, value in told
    ]


@pytest.fixture
def client(dsn: str) -> Iterator[Web]:
    how = HmacSettings(
        source="hmac", header="X-Signature", id="header:X-Id", event="body:/type"
    )
    sources = [
        source("discord", PUBLIC_HEX),
        source("standard", WHSEC),
        source("hmac", KEY, hmac=how),
        *(
            source(name, KEY)
            for name in CHANNELS
            if name not in {"discord", "standard", "hmac"}
        ),
    ]
    with web(settings(dsn, *sources, server=Server(pool=4, body_bytes_max=50_000))) as client:
        yield client


def judge(answer: httpx.Response) -> list[str]:
    """The verdicts of an answer that is none of a fault."""
    assert answer.status_code < 500, answer.text
    assert not answer.is_redirect
    verdicts = verdict(answer).split(", ")
    assert set(verdicts) <= VERDICTS, answer.headers
    assert (answer.status_code < 300) == (verdicts != ["refused"])
    if answer.content and "json" in answer.headers["content-type"]:
        assert "method" not in answer.json()
    return verdicts


@pytest.mark.parametrize("channel", CHANNELS)
def test_no_request_harms_a_channel_or_makes_a_second_run(
    client: Web, conn: Conn, channel: str, record_property: Tally
) -> None:
    good = bodies_of(channel)
    arrivals = 0

    def case(some: Random) -> None:
        nonlocal arrivals
        body = fuzzing.body(some, good)
        if some.random() < 0.2:
            body = signing.payload(body)
        headers = signed(channel, some, body)
        first, again = (
            judge(client.post(f"/in/default/{channel}", body, headers)) for _ in range(2)
        )
        assert "new" not in again, (first, again)
        assert len(first) == len(again)
        assert ("refused" in first) == ("refused" in again)
        if first != ["refused"] and not is_a_greeting(channel, first):
            arrivals += 2 * len(first)

    record_property("cases", fuzz(case))
    assert not faults(conn, arrivals=True)
    assert count(conn, "deliveries", "verdict <> 'ignored'") <= arrivals
    assert count(conn, "runs") == count(conn, "events")


def is_a_greeting(channel: str, verdicts: list[str]) -> bool:
    """Whether nothing is kept of it."""
    return channel in {"line", "slack", "discord", "cloudevents"} and verdicts == ["ignored"]
