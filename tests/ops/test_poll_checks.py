"""The doctor says why a source that polls gets nothing, and what to do about it."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from fix_world import Conn
from semel.config import Secret, Settings, Source
from semel.config.poll import PollSettings
from semel.core import polls
from semel.core.polls import Queue, State
from semel.db.execute import run
from semel.edges.poller.status import Status
from semel.model import Offer
from semel.ops.poll_checks import findings
from semel.ops.poll_metrics import PollMetrics
from semel.ops.source_checks import Finding

BOT = "123456@https://api.telegram.org"


@pytest.fixture(params=["123456:AAtoken", ""], ids=["token here", "token elsewhere"])
def settings(request: Any, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """As a command has them: no secret is read."""
    monkeypatch.setenv("BOT_TOKEN", request.param)
    secret = Secret(reference="env:BOT_TOKEN", unread=True)
    source = Source(name="bot", channel="telegram-poll", agent="chat", secrets=(secret,))
    return Settings(sources={("default", "bot"): source})


def found(conn: Conn, settings: Settings) -> list[Finding]:
    return list(findings(conn, settings))


def take(conn: Conn, **more: Any) -> tuple[Queue, int]:
    told = {"project": "default", "bot": BOT, "source": "bot", "place": "here, pid 1", **more}
    queue = Queue(holder=uuid4(), **told)
    taken = run(conn, polls.poll_take(queue))
    assert taken is not None
    return queue, taken.fence


def test_a_bot_that_nobody_ever_polled_is_told(conn: Conn, settings: Settings) -> None:
    [one] = found(conn, settings)
    assert (one.status, one.source) == ("FAIL", "bot")
    assert "never polled" in one.detail


def test_one_that_is_polled_is_worth_no_line(conn: Conn, settings: Settings) -> None:
    queue, fence = take(conn)
    run(conn, polls.poll_keep(queue, fence, answered=True))
    assert found(conn, settings) == []


def test_one_whose_poller_has_gone_is_told(conn: Conn, settings: Settings) -> None:
    queue, fence = take(conn)
    run(conn, polls.poll_leave(queue, fence, "stopped"))
    [one] = found(conn, settings)
    assert one.status == "FAIL"
    assert one.detail == f"nobody polls bot {BOT}; the last who did was on here, pid 1"


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("webhook", "FAIL"),
        ("conflict", "FAIL"),
        ("refused", "FAIL"),
        ("elsewhere", "FAIL"),
        ("throttled", "note"),
        ("failing", "note"),
    ],
)
def test_what_the_server_says_is_told_with_a_remedy(
    conn: Conn, settings: Settings, state: State, status: str
) -> None:
    queue, fence = take(conn)
    wait = timedelta(minutes=1)
    run(conn, polls.poll_leave(queue, fence, state, said="it answered 4", wait=wait))
    [one] = found(conn, settings)
    assert (one.status, one.detail) == (status, f"{state} for 0 min: it answered 4")
    assert one.remedy


def test_a_server_that_is_away_for_long_needs_a_hand(conn: Conn, settings: Settings) -> None:
    queue, fence = take(conn)
    run(conn, polls.poll_leave(queue, fence, "failing", said="x"))
    conn.execute("update semel.poll set since = since - interval '3 hours'")
    [one] = found(conn, settings)
    assert (one.status, one.detail) == ("FAIL", "failing for 3 h: x")


def test_a_bot_that_another_project_polls_is_told(conn: Conn, settings: Settings) -> None:
    queue, fence = take(conn)
    run(conn, polls.poll_leave(queue, fence, "stopped"))
    take(conn, project="q", source="theirs", place="there")
    [one] = found(conn, settings)
    assert one.status == "FAIL"
    assert one.detail == f"bot {BOT} is polled by source theirs of project q, on there"


def test_ids_that_never_came_are_told(conn: Conn, settings: Settings) -> None:
    queue, fence = take(conn)
    offers = [Offer(source="bot", channel="telegram-poll", id=name) for name in ("5", "9")]
    run(conn, polls.poll_commit(queue, fence, offers, ids=[5, 9], next_id=10, seen=None))
    [one] = found(conn, settings)
    assert one.status == "note"
    assert one.detail == "3 updates never came, the last of them 6 to 8, 0 min ago"
    conn.execute("update semel.poll set missing_at = missing_at - interval '8 days'")
    assert found(conn, settings) == []


def test_metrics_say_what_a_poller_does_and_not_what_it_cannot_know() -> None:
    status = Status(project="p", source="bot", role="polling", updates=3, missing=2)
    status.asked["updates"] = 5
    registry = CollectorRegistry()
    registry.register(PollMetrics([status]))

    text = generate_latest(registry).decode()

    for line in (
        'semel_poll_role{project="p",role="polling",source="bot"} 1.0',
        'semel_poll_role{project="p",role="standby",source="bot"} 0.0',
        'semel_poll_requests_total{outcome="updates",project="p",source="bot"} 5.0',
        'semel_poll_requests_total{outcome="conflict",project="p",source="bot"} 0.0',
        'semel_poll_updates_total{project="p",source="bot"} 3.0',
        'semel_poll_missing_ids_total{project="p",source="bot"} 2.0',
    ):
        assert line in text
    assert "semel_poll_restarts_total{" not in text


# -- settings -------------------------------------------------------------------------------


def test_a_poll_setting_is_read_and_shown_without_its_token() -> None:
    source = Source(
        name="bot",
        channel="telegram-poll",
        agent="a",
        secrets=(Secret(reference="env:T", environ={"T": "1:A"}),),
        poll=PollSettings(source="bot", allowed_updates=("message",)),
    )
    shown = Settings(sources={("default", "bot"): source}).shown()["sources"]["bot"]
    assert shown["poll"]["allowed_updates"] == ["message"]
    assert shown["secrets"] == ["env:T"]
