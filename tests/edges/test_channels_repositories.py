"""Gitea and GitHub: an id that nobody signs, and what was said beside it."""

import asyncio
import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import signing
from consistency import faults
from fix_channels import KEY, Conn, post, said
from semel.config import Settings
from semel.edges.replay import replay
from signing import NOW, source
from web import Web, count, settings, web

DAY = 86_400.0


def test_gitea_s_button_makes_no_second_run(channels_web: Web, conn: Conn) -> None:
    body = b'{"ref": "x"}'
    first = post(channels_web, "gitea", body, signing.gitea(KEY, body, "1"))
    again = post(channels_web, "gitea", body, signing.gitea(KEY, body, "2"), NOW + 6 * DAY)
    assert (said(first), said(again)) == ("201 new", "200 redelivery")
    assert again.json() == {**first.json(), "duplicate": True, "code": "E-IDEMPOTENT-001"}
    assert (
        said(post(channels_web, "gitea", body, signing.gitea(KEY, body, "1")))
        == "200 duplicate"
    )
    other = signing.gitea(KEY, body, "3", event="create")
    assert said(post(channels_web, "gitea", body, other)) == "201 new"
    assert count(conn, "runs") == 2
    assert count(conn, "deliveries", "verdict = 'redelivery' and provider_event_id = '2'") == 1
    assert not faults(conn)


def test_one_content_under_twenty_ids_at_once_makes_one_run(
    channels_web: Web, conn: Conn
) -> None:
    body = b'{"ref": "x"}'

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(
            *(
                channels_web.sending(
                    "POST", "/in/default/gitea", body, signing.gitea(KEY, body, str(n))
                )
                for n in range(20)
            )
        )

    answers = channels_web.run(all_at_once())
    assert sorted(said(each) for each in answers) == ["200 redelivery"] * 19 + ["201 new"]
    assert len({each.json()["run_id"] for each in answers}) == 1
    assert count(conn, "events", "hits = 20") == count(conn, "runs") == 1


def test_past_the_window_of_the_source_the_same_content_is_new(dsn: str, conn: Conn) -> None:
    short = source("gitea", KEY, content_window=timedelta(hours=1))
    body = b'{"ref": "x"}'
    with web(settings(dsn, short)) as client:
        answers = [
            said(post(client, "gitea", body, signing.gitea(KEY, body, str(n)), NOW + n * 3000))
            for n in range(3)
        ]
        late = post(client, "gitea", body, signing.gitea(KEY, body, "9"), NOW + 6000 + 3601)
    assert answers == ["201 new", "200 redelivery", "200 redelivery"]
    assert said(late) == "201 new"


def test_gitea_may_send_a_form_or_a_query(channels_web: Web, conn: Conn) -> None:
    body = '{"ref": "ünï & x"}'.encode()
    form = [*signing.gitea(KEY, body, "1"), signing.FORM]
    assert said(post(channels_web, "gitea", signing.payload(body), form)) == "201 new"
    query = signing.payload(body).decode()
    path = f"/in/default/gitea?{query}"
    answer = channels_web.send(
        "GET", path, headers=signing.gitea(KEY, body, "2", event="create")
    )
    assert said(answer) == "201 new"
    forged = channels_web.send("GET", path, headers=signing.gitea("other", body, "3"))
    assert said(forged) == "401 refused"
    inputs = conn.execute("select input from semel.runs").fetchall()
    assert [each["payload"] for [each] in inputs] == [{"ref": "ünï & x"}] * 2


def test_what_came_by_get_is_replayed_from_its_query(
    channels_web: Web, channels: Settings, conn: Conn
) -> None:
    body = b'{"ref": "x"}'
    path = "/in/default/gitea?" + signing.payload(body).decode()
    answer = channels_web.send("GET", path, headers=signing.gitea(KEY, body, "1"))
    _, [one] = replay(conn, channels, "default", UUID(answer.json()["event_id"]), force=True)
    assert one.accepted.verdict == "new"
    assert one.input == {
        "event": "push",
        "type": "push",
        "delivery": "1",
        "payload": {"ref": "x"},
    }


def test_a_known_id_with_another_content_is_a_conflict_and_hides_nothing(
    channels_web: Web, conn: Conn
) -> None:
    for channel in ("gitea", "github"):
        sign = getattr(signing, channel)
        one, other = b'{"n": 1}', b'{"n": 2}'
        assert said(post(channels_web, channel, one, sign(KEY, one, "1"))) == "201 new"
        answer = post(channels_web, channel, other, sign(KEY, other, "1"))
        assert said(answer) == "200 conflict"
        assert answer.json()["code"] == "E-IDEMPOTENT-002"
        assert said(post(channels_web, channel, other, sign(KEY, other, "2"))) == "201 new"
    assert count(conn, "runs") == 4
    assert not faults(conn)


def test_a_hook_without_ids_is_known_by_what_it_says(channels_web: Web) -> None:
    body = b'{"ref": "x"}'
    headers = [each for each in signing.gitea(KEY, body) if "delivery" not in each[0]]
    assert said(post(channels_web, "gitea", body, headers)) == "201 new"
    assert said(post(channels_web, "gitea", body, headers)) == "200 duplicate"
    assert said(post(channels_web, "gitea", body, signing.gitea(KEY, body))) == "200 redelivery"


def test_github_s_ping_is_ignored_and_its_redelivery_a_duplicate(
    channels_web: Web, conn: Conn
) -> None:
    ping = b'{"zen": "x"}'
    assert (
        said(post(channels_web, "github", ping, signing.github(KEY, ping, "0", "ping")))
        == "200 ignored"
    )
    told = {"repository": {"full_name": "o/r"}, "issue": {"number": 3}}
    assert said(post(channels_web, "github", told)) == "201 new"
    assert said(post(channels_web, "github", told)) == "200 duplicate"
    body = json.dumps(told).encode()
    assert (
        said(post(channels_web, "github", body, signing.github(KEY, body, "g-2")))
        == "200 redelivery"
    )
    assert count(conn, "runs") == 1


def test_an_id_that_is_there_twice_is_quarantined(channels_web: Web) -> None:
    body = b'{"ref": "x"}'
    headers = [*signing.github(KEY, body), ("x-github-delivery", "g-2")]
    answer = post(channels_web, "github", body, headers)
    assert said(answer) == "200 quarantined"
    assert "2 lines of x-github-delivery" in answer.json()["reason"]
