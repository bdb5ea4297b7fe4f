"""An integer beyond 2^53, where a double loses its last digit, is kept and compared to that digit."""

from typing import Any

import pytest

from fix_world import Conn, one
from semel.config import Source
from web import count, settings, verdict, web

EDGE = 2**53
LARGE = [EDGE, EDGE + 1, 2**63, 2**64 + 1, 10**40 + 1]


@pytest.mark.parametrize("number", LARGE)
def test_an_input_keeps_it(dsn: str, conn: Conn, number: int) -> None:
    with web(settings(dsn, Source(name="jobs", channel="api", agent="job"))) as client:
        key = {"Idempotency-Key": "k"}
        first = client.post("/in/default/jobs", {"n": number}, key)
        again = client.post("/in/default/jobs", {"n": number}, key)
        other = client.post("/in/default/jobs", {"n": number + 1}, key)
    assert ["new", "duplicate", "conflict"] == [verdict(said) for said in (first, again, other)]
    assert str(number) == one(conn, "select input ->> 'n' from semel.runs")


@pytest.mark.parametrize("number", [EDGE, 2**62])
def test_an_update_is_another_by_its_last_digit(dsn: str, conn: Conn, number: int) -> None:
    with web(settings(dsn, Source(name="bot", channel="telegram", agent="chat"))) as client:
        said = [
            client.post("/in/default/bot", {"update_id": update_id})
            for update_id in (number, number + 1, number)
        ]
    assert ["new", "new", "duplicate"] == [verdict(each) for each in said]
    assert 2 == count(conn, "runs")


@pytest.mark.parametrize("number", LARGE)
def test_an_alert_keeps_it(dsn: str, conn: Conn, number: int) -> None:
    told: dict[str, Any] = {
        "status": "firing",
        "fingerprint": "f",
        "startsAt": "2026-11-30T10:44:45Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "x": number,
    }
    with web(settings(dsn, Source(name="am", channel="alertmanager", agent="a"))) as client:
        assert 201 == client.post("/in/default/am", {"alerts": [told], "y": number}).status_code
    [[alert, envelope]] = conn.execute(
        "select input -> 'alerts' -> 0 ->> 'x', input ->> 'y' from semel.runs"
    ).fetchall()
    assert (str(number), str(number)) == (alert, envelope)
