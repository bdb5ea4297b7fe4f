"""The doctor names a source that is silent, refuses or quarantines, and what its settings get wrong."""

from datetime import timedelta
from typing import Any

import pytest

from fix_world import Conn
from semel.config import Settings
from semel.config.limits import Rate
from semel.config.routing import read_routing
from semel.core.sources import source_observe
from semel.db.execute import run
from semel.ops.doctor import Check, examine
from signing import source
from web import settings


def lines(told: Settings, name: str) -> list[Check]:
    return [check for check in examine(told) if check.name == f"source {name}"]


@pytest.fixture
def told(dsn: str, conn: Conn) -> Settings:
    conn.execute(
        "insert into semel.source (project_id, source, channel_type, seen_at, since)"
        " values ('default', 'api', 'api', now(), now() - interval '2 hours')"
    )
    return settings(dsn, source("api", "k", silent_after=timedelta(hours=1)))


def observe(conn: Conn, **counts: int) -> None:
    run(conn, source_observe("default", {("api", name): n for name, n in counts.items()}))


def test_a_source_that_nothing_ever_came_to_is_silent(told: Settings) -> None:
    [check] = lines(told, "api")
    assert (check.status, check.remedy != "") == ("FAIL", True)
    assert check.detail == "silent: no event ever came; it was announced 2 h ago"


def test_an_event_ends_the_silence(told: Settings, conn: Conn) -> None:
    observe(conn, duplicate=1)
    assert lines(told, "api") == []
    conn.execute("update semel.source set last_event_at = now() - interval '90 minutes'")
    [check] = lines(told, "api")
    assert check.detail == "silent: the last event came 90 min ago"


@pytest.mark.parametrize(
    ("counts", "status", "detail"),
    [
        ({"refused": 3}, "FAIL", "in the last hour 3 refused, 0 authentic"),
        ({"refused": 3, "new": 2}, "note", "in the last hour 3 refused, 2 authentic"),
        ({"forbidden": 1, "failed": 2}, "FAIL", "in the last hour 1 forbidden, 2 failed"),
        ({"quarantined": 2}, "FAIL", "in the last hour 2 of 2 quarantined"),
        ({"quarantined": 1, "new": 2}, "note", "in the last hour 1 of 3 quarantined"),
    ],
)
def test_what_was_refused_or_quarantined_is_counted(
    told: Settings, conn: Conn, counts: dict[str, Any], status: str, detail: str
) -> None:
    observe(conn, **counts)
    check = lines(told, "api")[-1]
    assert (check.status, check.detail.startswith(detail)) == (status, True), check
    assert check.remedy
    conn.execute("update semel.source_tally set slot_at = slot_at - interval '66 minutes'")
    assert all("in the last hour" not in each.detail for each in lines(told, "api"))


def test_settings_that_lose_events_are_noted(dsn: str) -> None:
    routing = read_routing("", {"agent": "a", "events": ["pusch"]})
    rate = Rate(count=1, per=timedelta(minutes=1))
    hook = source("github", "k", rate=rate, **routing)
    doubt, once = lines(settings(dsn, hook), "github")
    assert doubt.detail == (
        "github is not known to tell the event type 'pusch' (did you mean 'push'?)"
    )
    assert "does not send again what is answered 429" in once.detail
    assert {doubt.status, once.status} == {"note"}
