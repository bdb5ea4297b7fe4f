"""A server with one source of each channel, and posts that are signed as each provider signs."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest

import signing
from semel.config import Server, Settings
from semel.config.hmac import HmacSettings
from signing import NOW, PUBLIC_HEX, WHSEC, Headers, source
from web import Web, settings, verdict, web

Conn = psycopg.Connection[Any]
KEY = "s3cret"


@pytest.fixture
def channels(dsn: str) -> Settings:
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
def channels_web(channels: Settings) -> Iterator[Web]:
    with web(channels) as client:
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


def line(*names: str, **changes: Any) -> dict[str, Any]:
    def event(name: str) -> dict[str, Any]:
        told = {"type": "message", "webhookEventId": name, "mode": "active", "timestamp": 1}
        return {**told, "source": {"type": "user", "userId": "U1"}, **changes}

    return {"destination": "U0", "events": [event(name) for name in names]}
