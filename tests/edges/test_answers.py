"""Whatever comes, nothing is redirected, no answer has a member `method`, and a limit has its status."""

import gzip
import json
from typing import Any

import psycopg
import pytest

import signing
from semel.config import Server
from signing import source
from web import Web, count, settings, verdict, web

Conn = psycopg.Connection[Any]
KEY = "s3cret"
AUTH = {"authorization": f"Bearer {KEY}"}


def open_web(dsn: str) -> Any:
    sources = [source("api", KEY), source("cloudevents", KEY), source("telegram", KEY)]
    return web(settings(dsn, *sources, server=Server(pool=2, body_bytes_max=2048)))


def test_no_slash_no_host_and_no_scheme_leads_to_a_redirect(dsn: str, conn: Conn) -> None:
    with open_web(dsn) as client:
        for path, headers, status in [
            ("/in/default/api", {}, 201),
            ("/in/default/api/", {}, 201),
            ("/in/default/api", {"host": "EXAMPLE.Com"}, 201),
            ("/in/default/api", {"host": "example.com:80"}, 201),
            ("/in/default/api", {"x-forwarded-proto": "http"}, 201),
            ("/in/default/api", {"upgrade-insecure-requests": "1"}, 201),
            ("/in/default//api", {}, 404),
            ("/in/default/api//", {}, 404),
            ("/in//default/api", {}, 404),
            ("/in/default", {}, 404),
            ("/in/", {}, 404),
            ("/IN/default/api", {}, 404),
            ("/in/default/API", {}, 404),
            ("/in/default/%2e%2e/api", {}, 404),
        ]:
            answer = client.post(path, {}, AUTH | headers)
            assert answer.status_code == status, (path, headers)
            assert "location" not in answer.headers
    assert count(conn, "runs") == 6


def answers(client: Web) -> list[Any]:
    """Of every kind that there is, also where a sender says `method` himself."""
    told = {"method": "sendMessage", "update_id": 1}
    secret = {"x-telegram-bot-api-secret-token": KEY}
    sent = [
        client.post("/in/default/telegram", told, secret),
        client.post("/in/default/telegram", told, secret),
        client.post("/in/default/telegram", {"method": "x"}, secret),
        client.post("/in/default/telegram", told),
        client.post("/in/default/api", told, AUTH),
        client.post("/in/default/api", b"{", AUTH),
        client.post("/in/default/api", told, AUTH | {"idempotency-key": "k"}),
        client.post("/in/default/api", {"method": 1}, AUTH | {"idempotency-key": "k"}),
        client.post("/in/default/nothing", told, AUTH),
        client.post("/in/method/method", told),
        client.post("/in/default/api", b"x" * 3000, AUTH),
        client.get("/in/default/api"),
        client.send("OPTIONS", "/in/default/api"),
    ]
    statuses = {answer.status_code for answer in sent}
    assert statuses == {200, 201, 400, 401, 404, 405, 413, 422}
    return sent


def test_no_answer_has_a_member_method(dsn: str) -> None:
    with open_web(dsn) as client:
        for answer in answers(client):
            assert "method" not in (json.loads(answer.text) if answer.content else {})
            assert answer.status_code // 100 != 3


@pytest.mark.parametrize("coding", ["gzip", "br", "GZIP", "identity, gzip"])
def test_a_caller_who_packs_is_told_415(dsn: str, conn: Conn, coding: str) -> None:
    with open_web(dsn) as client:
        packed = client.post(
            "/in/default/api", gzip.compress(b"{}"), AUTH | {"content-encoding": coding}
        )
        plain = client.post("/in/default/api", b"{}", AUTH | {"content-encoding": "identity"})
        form = AUTH | {"content-type": "application/cloudevents+avro"}
        avro = client.post("/in/default/cloudevents", b"{}", form)
        forged = client.post("/in/default/api", b"{}", {"content-encoding": coding})
    assert (packed.status_code, packed.json()["code"]) == (415, "E-REQUEST-005")
    assert (avro.status_code, avro.json()["code"]) == (415, "E-REQUEST-005")
    assert (plain.status_code, forged.status_code) == (201, 401)
    assert count(conn, "deliveries") == 1


def test_a_provider_who_packs_is_not_told_to_send_it_again(dsn: str, conn: Conn) -> None:
    body = gzip.compress(b"{}")
    with web(settings(dsn, source("github", KEY))) as client:
        headers = [*signing.github(KEY, body), ("content-encoding", "gzip")]
        answer = client.post("/in/default/github", body, headers)
    assert (answer.status_code, verdict(answer)) == (200, "quarantined")
