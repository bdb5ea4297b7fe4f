"""Sources are apart, their secrets rotate in sight, and their limits let nothing else in."""

import json
import re
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import signing
from semel.config import Server
from semel.config.limits import Rate
from signing import source
from web import Web, count, settings, verdict, web

Conn = psycopg.Connection[Any]
KEY, OLD = "s3cret", "old s3cret"
JOBS = "/in/default/api"


def auth(key: str = KEY) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def metric(client: Web, name: str, **labels: str) -> float | None:
    wanted = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    found = re.search(
        rf"^{name}{{{re.escape(wanted)}}} (\S+)$", client.get("/metrics").text, re.MULTILINE
    )
    return None if found is None else float(found[1])


def test_sources_of_one_channel_and_project_are_apart(dsn: str, conn: Conn) -> None:
    bots = [source("telegram", key, name=name) for name, key in (("one", "k1"), ("two", "k2"))]
    other = source("telegram", "k3", name="three", project="other")

    def sent(path: str, key: str) -> str:
        headers = {"x-telegram-bot-api-secret-token": key}
        answer = client.post(f"/in/{path}", {"update_id": 7}, headers)
        return f"{answer.status_code} {verdict(answer)}"

    with web(settings(dsn, *bots, other)) as client:
        assert sent("default/one", "k1") == "201 new"
        assert sent("default/two", "k1") == "401 refused"
        assert sent("default/two", "k2") == "201 new"
        assert sent("other/three", "k3") == "201 new"
        assert sent("other/one", "k1") == "404 refused"
        assert sent("default/one", "k1") == "200 duplicate"
        assert metric(client, "semel_events_total", source="two", outcome="refused") == 1
        assert metric(client, "semel_events_total", source="one", outcome="refused") == 0
    assert count(conn, "runs") == 3


def test_which_secret_is_still_used_shows_in_the_metrics_and_the_secret_does_not(
    dsn: str,
) -> None:
    hook = source("github", KEY, OLD)
    with web(settings(dsn, hook)) as client:
        for n, (key, wanted) in enumerate([(KEY, 201), (OLD, 201), (OLD, 201), ("x", 401)]):
            body = json.dumps({"n": n}).encode()
            headers = signing.github(key, body, str(n))
            assert client.post("/in/default/github", body, headers).status_code == wanted
        used = [
            metric(client, "semel_source_secret_total", source="github", secret=nth)
            for nth in ("1", "2", "3")
        ]
        assert used == [1, 2, None]
        assert KEY not in client.get("/metrics").text


def test_rotating_a_secret_repeats_nothing(dsn: str, conn: Conn) -> None:
    body, headers = {"update_id": 7}, "x-telegram-bot-api-secret-token"
    steps = [((OLD,), OLD), ((KEY, OLD), OLD), ((KEY, OLD), KEY), ((KEY,), KEY)]
    for live, key in steps:
        with web(settings(dsn, source("telegram", *live))) as client:
            client.post("/in/default/telegram", body, {headers: key})
    assert (count(conn, "runs"), count(conn, "events", "hits = 4")) == (1, 1)


# -- allow ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "forwarded", "status"),
    [
        ("203.0.113.9", None, 201),
        ("::ffff:203.0.113.9", None, 201),
        ("2001:db8:1::5", None, 201),
        ("198.51.100.1", None, 403),
        ("198.51.100.1", "203.0.113.9", 403),
        ("10.0.0.1", "203.0.113.9", 201),
        ("10.0.0.1", "203.0.113.9, 198.51.100.1", 403),
        ("10.0.0.1", "203.0.113.9, nonsense", 403),
        ("10.0.0.1", None, 403),
        ("nobody", None, 403),
    ],
)
def test_only_who_is_allowed_comes_in(
    dsn: str, conn: Conn, peer: str, forwarded: str | None, status: int
) -> None:
    job = source("api", KEY, allow=("203.0.113.0/24", "2001:db8::/32"))
    told = settings(dsn, job, server=Server(pool=2, trusted_proxies=("10.0.0.0/8",)))
    headers = auth() | ({"x-forwarded-for": forwarded} if forwarded else {})
    with web(told) as client:
        answer = client.send("POST", JOBS, {"n": 1}, headers, client=(peer, 1))
        assert answer.status_code == status
        if status == 403:
            assert answer.json()["code"] == "E-SOURCE-004"
            assert verdict(answer) == "refused"
            assert metric(client, "semel_events_total", source="api", outcome="forbidden") == 1
    assert count(conn, "deliveries") == (status == 201)


# -- rate -----------------------------------------------------------------------------------


def test_what_passes_the_rate_is_told_when_to_come_back_and_nothing_is_kept(
    dsn: str, conn: Conn
) -> None:
    slow = source("api", KEY, rate=Rate(count=2, per=timedelta(hours=1)))
    free = source("api", KEY, name="free")
    with web(settings(dsn, slow, free)) as client:
        strangers = [client.post(JOBS, {}, auth("x")).status_code for _ in range(5)]
        answers = [client.post(JOBS, {"n": n}, auth()) for n in range(3)]
        assert client.post("/in/default/free", {}, auth()).status_code == 201
        assert metric(client, "semel_events_total", source="api", outcome="limited") == 1
    assert strangers == [401] * 5
    assert [each.status_code for each in answers] == [201, 201, 429]
    last = answers[-1]
    assert (last.json()["code"], last.json()["retryable"]) == ("E-SOURCE-005", True)
    assert 1700 < int(last.headers["retry-after"]) <= 1800
    assert count(conn, "deliveries", "source = 'api'") == 2


# -- what the database knows of them ---------------------------------------------------------


def test_refusals_leave_a_count_and_no_row_of_their_own(dsn: str, conn: Conn) -> None:
    with web(settings(dsn, source("api", KEY))) as client:
        for n in range(50):
            client.post(JOBS, {"n": n}, auth("x"))
        client.post(JOBS, {"n": 1}, auth())
    told = conn.execute(
        "select source, outcome, count from semel.source_outcomes order by outcome"
    ).fetchall()
    assert told == [("api", "new", 1), ("api", "refused", 50)]
    assert count(conn, "deliveries") == 1
    assert count(conn, "sources", "last_event_at >= since") == 1


def test_how_long_a_source_is_silent_shows_in_the_metrics(dsn: str, conn: Conn) -> None:
    hook = source("api", KEY, silent_after=timedelta(hours=1))
    with web(settings(dsn, hook)) as client:
        conn.execute(
            "insert into semel.source (project_id, source, channel_type, seen_at, since)"
            " values ('default', 'api', 'api', now(), now() - interval '2 hours')"
            " on conflict (project_id, source) do update set since = excluded.since"
        )
        silent = metric(client, "semel_source_silent_seconds", source="api")
        assert silent is not None
        assert 7200 <= silent < 7300
        assert metric(client, "semel_source_silent_after_seconds", source="api") == 3600
