"""LINE: many events in one request, each once."""

from typing import Any

import pytest

from consistency import faults
from fix_channels import Conn, line, post, said
from web import Web, count


def test_line_s_events_are_each_once_however_they_are_grouped(
    channels_web: Web, conn: Conn
) -> None:
    first = post(channels_web, "line", line("1", "2"))
    assert said(first) == "200 new, new"
    assert len({event["run_id"] for event in first.json()["events"]}) == 2
    again = line("2", "3", deliveryContext={"isRedelivery": True})
    assert said(post(channels_web, "line", again)) == "200 duplicate, new"
    assert said(post(channels_web, "line", line("1"))) == "200 duplicate"
    assert count(conn, "runs") == 3
    [[told]] = conn.execute(
        "select input from semel.runs order by created_at limit 1"
    ).fetchall()
    assert told["destination"] == "U0"
    assert told["event"]["webhookEventId"] in {"1", "2"}


def test_a_request_whose_transaction_failed_is_whole_when_it_comes_again(
    channels_web: Web, conn: Conn
) -> None:
    post(channels_web, "line", line("1", "2"))
    told = line("2", "3", deliveryContext={"isRedelivery": True})
    with conn.transaction():
        conn.execute("lock table semel.dedupe in access exclusive mode")
        failed = post(channels_web, "line", told)
    assert failed.status_code == 503
    assert failed.headers["retry-after"]
    assert count(conn, "events") == count(conn, "runs") == count(conn, "deliveries") == 2
    assert said(post(channels_web, "line", told)) == "200 duplicate, new"
    assert count(conn, "runs") == 3


def test_line_tries_the_url_and_nothing_is_kept(channels_web: Web, conn: Conn) -> None:
    answer = post(channels_web, "line", {"destination": "U0", "events": []})
    assert said(answer) == "200 ignored"
    assert count(conn, "deliveries") == count(conn, "events") == 0
    assert (
        said(post(channels_web, "line", {"events": []}, [("x-line-signature", "x")]))
        == "401 refused"
    )


def test_one_event_that_is_strange_takes_none_of_the_others_with_it(
    channels_web: Web, conn: Conn
) -> None:
    told = line("1", "2")
    told["events"] += [
        {"webhookEventId": "3", "mode": "upside-down"},
        {"webhookEventId": "4", "mode": "standby"},
        {"webhookEventId": "5", "mode": "active", "type": "of tomorrow", "new": {}},
        {"replyToken": "0" * 32, "mode": "active"},
        {"mode": "active"},
        7,
        {"webhookEventId": "1", "mode": "active"},
    ]
    answer = post(channels_web, "line", told)
    assert said(answer) == (
        "200 new, new, quarantined, ignored, new, ignored, quarantined, quarantined, duplicate"
    )
    assert count(conn, "runs") == 3
    assert count(conn, "deliveries") == 9
    assert not faults(conn, arrivals=True)


def test_a_request_of_very_many_events_is_one_transaction(
    channels_web: Web, conn: Conn
) -> None:
    names = [str(n) for n in range(600)]
    answer = post(channels_web, "line", line(*names))
    assert answer.status_code == 200
    assert len(answer.json()["events"]) == 600
    assert count(conn, "runs") == 600
    assert len({stamp for [stamp] in conn.execute("select xmin::text from semel.dedupe")}) == 1
    assert (
        said(post(channels_web, "line", line(*(str(n) for n in range(1001)))))
        == "200 quarantined"
    )


@pytest.mark.parametrize("events", [None, 5, {}, "x"])
def test_line_without_a_list_of_events_is_quarantined(channels_web: Web, events: Any) -> None:
    assert said(post(channels_web, "line", {"events": events})) == "200 quarantined"
