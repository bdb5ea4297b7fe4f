"""A server killed in the middle of a delivery: whatever its sender does next, it is one event and one run."""

import json
from typing import Any

import httpx
import pytest

import signing
from fix_serving import Serve, Serving
from fix_world import Conn
from web import count

TOML = "".join(
    f'[sources.{name}]\nchannel = "{name}"\nagent = "a"\nsecrets = ["env:KEY"]\n'
    for name in ("alertmanager", "gitea", "telegram", "line")
)
KEY = "s3cret_AZ-09"
ALERT = {
    "status": "firing",
    "labels": {"alertname": "A"},
    "startsAt": "2026-11-30T10:44:45.413697Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "fingerprint": "bdedbace6631dcce",
}
LINE = {"type": "message", "webhookEventId": "1", "mode": "active", "timestamp": 1}
BODIES: dict[str, Any] = {
    "alertmanager": {"version": "4", "status": "firing", "groupKey": "{}", "alerts": [ALERT]},
    "gitea": {"ref": "refs/heads/main", "commits": []},
    "telegram": {"update_id": 7, "message": {"text": "hi"}},
    "line": {"destination": "U0", "events": [LINE]},
}
#: What the next attempt of a sender is called here: the same, or Gitea's button, which names it anew.
AGAIN = {"alertmanager": "duplicate", "telegram": "duplicate", "line": "duplicate"} | {
    "gitea": "redelivery"
}


def headers(channel: str, body: bytes, attempt: int) -> list[tuple[str, str]]:
    match channel:
        case "gitea":
            return signing.gitea(KEY, body, f"uuid-{attempt}")
        case "telegram":
            return [("X-Telegram-Bot-Api-Secret-Token", KEY)]
        case "line":
            return signing.line(KEY, body)
        case _:
            return [("Authorization", f"Bearer {KEY}")]


def post(server: Serving, channel: str, attempt: int) -> httpx.Response:
    body = json.dumps(BODIES[channel]).encode()
    told = headers(channel, body, attempt)
    return httpx.post(f"{server.url}/in/default/{channel}", content=body, headers=told)


@pytest.mark.crash
@pytest.mark.parametrize("stop", ["before", "after"])
def test_a_delivery_whose_server_was_killed_is_one_event_and_one_run(
    serving: Serve, conn: Conn, stop: str
) -> None:
    """Each channel on a server of its own, which dies; then all again on one that lives."""
    committed = stop == "after"
    for channel in BODIES:
        dying = serving(TOML, KEY=KEY, SEMEL_STOP_AT=f"ingress.accept.{stop}")
        with pytest.raises(httpx.TransportError):
            post(dying, channel, 1)
        assert dying.is_killed()
        where = f"source = '{channel}'"
        assert count(conn, "events", where) == count(conn, "runs", where) == int(committed)
        assert count(conn, "deliveries", where) == int(committed)
    living = serving(TOML, KEY=KEY)
    for channel in BODIES:
        first, then = post(living, channel, 2), post(living, channel, 3)

        wanted = {AGAIN[channel]} if committed else {"new"}
        assert {first.headers["semel-verdict"]} == wanted
        assert then.headers["semel-verdict"] == AGAIN[channel]
        where = f"source = '{channel}'"
        assert count(conn, "events", where) == count(conn, "runs", where) == 1
        [[run_id]] = conn.execute(
            "select run_id::text from semel.runs where source = %s", (channel,)
        ).fetchall()
        assert {first.json()["run_id"], then.json()["run_id"]} == {run_id}
