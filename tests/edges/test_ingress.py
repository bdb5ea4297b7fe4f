"""The ingress answers every delivery with a clear code, and keeps exactly what it says."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from semel.config import Server, Source
from semel.core.deliveries import delivery_read
from semel.db.execute import run
from web import BASE, Web, count, secret, settings, verdict, web

AUTH = {"Authorization": "Bearer s3cret"}
TELEGRAM = {"X-Telegram-Bot-Api-Secret-Token": "s3cret"}
DEEP = b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"


def alert(name: str, status: str = "firing", **changes: Any) -> dict[str, Any]:
    ends = "0001-01-01T00:00:00Z" if status == "firing" else "2026-11-30T11:00:00Z"
    return {
        "status": status,
        "labels": {"alertname": name},
        "annotations": {},
        "startsAt": "2026-11-30T10:44:45.413697Z",
        "endsAt": ends,
        "fingerprint": name.lower() * 16,
        **changes,
    }


def notification(*alerts: dict[str, Any]) -> dict[str, Any]:
    firing = any(each["status"] == "firing" for each in alerts)
    return {
        "version": "4",
        "status": "firing" if firing else "resolved",
        "groupKey": "{}",
        "alerts": list(alerts),
    }


@pytest.fixture
def client(dsn: str) -> Iterator[Web]:
    sources = [
        Source(
            name="alerts", channel="alertmanager", agent="triage", secrets=(secret("s3cret"),)
        ),
        Source(name="bot", channel="telegram", agent="chat", secrets=(secret("s3cret"),)),
        Source(name="jobs", channel="api", agent="job", secrets=(secret("s3cret"),)),
        Source(name="open", channel="api", agent="job"),
    ]
    with web(settings(dsn, *sources, server=Server(pool=4, body_bytes_max=100_000))) as client:
        yield client


def test_a_new_event_is_201_and_names_its_run(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    answer = client.post("/in/default/bot", {"update_id": 7}, TELEGRAM)
    assert answer.status_code == 201
    assert verdict(answer) == "new"
    row = conn.execute(
        "select run_id::text, event_id::text, agent, input from semel.runs"
    ).fetchone()
    assert row is not None
    assert answer.json() == {"run_id": row[0], "event_id": row[1], "duplicate": False}
    assert row[2:] == ("chat", {"update_id": 7})


def test_a_duplicate_is_200_with_the_first_run(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    first = client.post("/in/default/bot", {"update_id": 7}, TELEGRAM).json()
    again = client.post("/in/default/bot", {"update_id": 7}, TELEGRAM)
    assert again.status_code == 200
    assert verdict(again) == "duplicate"
    assert again.json() == {**first, "duplicate": True, "code": "E-IDEMPOTENT-001"}
    assert count(conn, "runs") == 1


def test_twenty_identical_posts_at_once_make_one_run(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    async def all_at_once() -> list[Any]:
        return await asyncio.gather(
            *(
                client.sending("POST", "/in/default/bot", {"update_id": 7}, TELEGRAM)
                for _ in range(20)
            )
        )

    answers = client.run(all_at_once())
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert count(conn, "runs") == 1
    assert count(conn, "events", "hits = 20") == 1


def test_twenty_identical_alerts_at_once_make_one_run(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    told = notification(alert("A"), alert("B"))

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(
            *(client.sending("POST", "/in/default/alerts", told, AUTH) for _ in range(20))
        )

    answers = client.run(all_at_once())
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert count(conn, "runs") == 1


def test_an_alert_with_labels_of_15_kb_is_an_alert(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    labels = {f"label_{n}": "v" * 100 for n in range(150)}
    told = notification(alert("A", labels=labels))
    assert len(json.dumps(told)) > 15_000
    assert client.post("/in/default/alerts", told, AUTH).status_code == 201
    assert client.post("/in/default/alerts", told, AUTH).status_code == 200
    row = conn.execute("select input from semel.runs").fetchone()
    assert row is not None
    assert row[0]["alerts"][0]["labels"] == labels


UNUSABLE = [
    b"",
    b"{",
    b"not json",
    b"[1]",
    b"null",
    b"{}",
    b"\xff\xfe{}",
    b'{"update_id":1,"alerts":[],"x":"\\u0000"}',
    b'{"update_id":1,"x":"\\ud800"}',
    DEEP,
    b'{"update_id":null}',
    b'{"update_id":""}',
    b'{"alerts":[{"fingerprint":""}]}',
    b'{"update_id":NaN}',
]


@pytest.mark.parametrize("body", UNUSABLE, ids=range(len(UNUSABLE)))
@pytest.mark.parametrize(("source", "headers"), [("alerts", AUTH), ("bot", TELEGRAM)])
def test_an_unusable_delivery_of_a_provider_is_kept_raw_and_answered_200(
    client: Web,
    conn: psycopg.Connection[Any],
    source: str,
    headers: dict[str, str],
    body: bytes,
) -> None:
    for _ in range(2):
        answer = client.post(f"/in/default/{source}", body, headers)
        assert answer.status_code == 200
        assert verdict(answer) == "quarantined"
        assert answer.json()["code"] == "E-SOURCE-003"
        assert answer.json()["run_id"] is None
    assert count(conn, "events") == count(conn, "runs") == 0
    assert count(conn, "deliveries", "verdict = 'quarantined' and reason <> ''") == 2
    names = conn.execute("select delivery_id from semel.deliveries").fetchall()
    stored = [run(conn, delivery_read("default", name)) for (name,) in names]
    assert [body, body] == [kept and kept.body for kept in stored]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'"\\u0000"', DEEP, b"nul"], ids=range(6))
def test_an_unusable_request_of_the_api_is_400_and_nothing_is_kept(
    client: Web, conn: psycopg.Connection[Any], body: bytes
) -> None:
    answer = client.post("/in/default/jobs", body, {**AUTH, "Idempotency-Key": "k"})
    assert answer.status_code == 400
    assert answer.json()["code"] == "E-REQUEST-001"
    assert verdict(answer) == "refused"
    assert count(conn, "events") == count(conn, "deliveries") == 0
    assert (
        client.post("/in/default/jobs", {}, {**AUTH, "Idempotency-Key": "k"}).status_code == 201
    )


def test_a_key_with_another_body_is_a_conflict(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    keyed = {**AUTH, "Idempotency-Key": "k"}
    first = client.post("/in/default/jobs", {"x": 1, "y": 2}, keyed)
    assert client.post("/in/default/jobs", b'{"y":2, "x":1}', keyed).status_code == 200
    other = client.post("/in/default/jobs", {"x": 2}, keyed)
    assert other.status_code == 422
    assert other.json()["code"] == "E-IDEMPOTENT-002"
    assert first.json()["run_id"] in other.json()["detail"]
    assert verdict(other) == "conflict"
    assert count(conn, "runs") == 1


def test_malformed_keys_are_400_with_their_own_code(client: Web) -> None:
    twice = [*AUTH.items(), ("Idempotency-Key", "a"), ("Idempotency-Key", "a")]
    for headers in (twice, {**AUTH, "Idempotency-Key": ""}):
        answer = client.post("/in/default/jobs", {}, headers)
        assert answer.status_code == 400
        assert answer.json()["code"] == "E-IDEMPOTENT-006"


@pytest.mark.parametrize(
    ("source", "headers"),
    [
        ("alerts", {}),
        ("alerts", {"Authorization": "Bearer wrong"}),
        ("alerts", [("Authorization", "Bearer s3cret"), ("Authorization", "Bearer s3cret")]),
        ("bot", {"X-Telegram-Bot-Api-Secret-Token": "wrong"}),
        ("bot", AUTH),
        ("jobs", TELEGRAM),
    ],
)
def test_a_forged_delivery_is_401_and_leaves_nothing(
    client: Web, conn: psycopg.Connection[Any], source: str, headers: Any
) -> None:
    told = {**notification(alert("A")), "update_id": 1}
    answer = client.post(f"/in/default/{source}", told, headers)
    assert answer.status_code == 401
    assert answer.json()["code"] == "E-SOURCE-002"
    assert verdict(answer) == "refused"
    assert count(conn, "events") == count(conn, "deliveries") == 0


@pytest.mark.parametrize("path", ["/in/default/nobody", "/in/other/bot", "/in/default/%00"])
def test_an_unknown_source_is_404(client: Web, path: str) -> None:
    answer = client.post(path, {"update_id": 1}, TELEGRAM)
    assert answer.status_code == 404
    assert answer.json()["code"] == "E-SOURCE-001"
    assert verdict(answer) == "refused"


def test_every_refusal_is_a_problem(client: Web) -> None:
    answer = client.post("/in/default/nobody", {})
    assert answer.headers["content-type"] == "application/problem+json"
    assert {"type", "title", "status", "detail", "code", "retryable"} <= set(answer.json())
    assert answer.json()["status"] == 404


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_another_method_is_405(client: Web, method: str) -> None:
    answer = client.send(method, "/in/default/bot", headers=TELEGRAM)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert verdict(answer) == "refused"


@pytest.mark.parametrize("path", ["/in/default/bot/", "/in/default/bot", "/in/default/bot?a=1"])
def test_a_slash_or_a_query_at_the_end_is_no_redirect(client: Web, path: str) -> None:
    assert client.post(path, {"update_id": 1}, TELEGRAM).status_code == 201


@pytest.mark.parametrize("path", ["/in/default//bot", "/in/default", "/in/", "/in/a/b/c", "/"])
def test_no_path_is_redirected(client: Web, path: str) -> None:
    answer = client.post(path, {"update_id": 1}, TELEGRAM)
    assert answer.status_code == 404
    assert answer.json()["status"] == 404


def test_a_body_over_the_limit_is_413_with_or_without_a_length(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 10_000_000:
            sent += 10_000
            yield b"x" * 10_000

    for body in (b"x" * 100_001, chunks()):
        answer = client.post("/in/default/bot", body, TELEGRAM)
        assert answer.status_code == 413
        assert answer.json()["code"] == "E-REQUEST-002"
        assert answer.headers["connection"] == "close"
    assert sent <= 120_000
    assert count(conn, "deliveries") == 0
    fits = b'{"update_id":1,"x":"' + b"x" * (100_000 - 22) + b'"}'
    assert len(fits) == 100_000
    assert client.post("/in/default/bot", fits, TELEGRAM).status_code == 201


def test_headers_over_the_limit_are_431(client: Web) -> None:
    answer = client.post("/in/default/bot", b"{}", {**TELEGRAM, "X-A": "a" * 33_000})
    assert answer.status_code == 431
    assert answer.json()["code"] == "E-REQUEST-002"


def test_what_a_database_cannot_keep_is_quarantined_too(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    answer = client.post("/in/default/bot", b'{"update_id":1,"n":1e200000}', TELEGRAM)
    assert verdict(answer) == "quarantined"
    huge = client.post("/in/default/bot", b'{"update_id":2,"n":' + b"9" * 4000 + b"}", TELEGRAM)
    assert huge.status_code == 201
    assert count(conn, "runs") == 1


def test_an_open_source_takes_only_programs_of_this_machine(client: Web) -> None:
    assert client.post("/in/default/open", {}).status_code == 201
    for headers in (
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Forwarded-For": "10.0.0.1"},
        {"Forwarded": "for=10.0.0.1"},
        {"X-Real-IP": "10.0.0.1"},
        {"CF-Connecting-IP": "10.0.0.1"},
        {"True-Client-IP": "10.0.0.1"},
        {"X-Client-IP": "10.0.0.1"},
        {"X-Forwarded-Host": "ops.example"},
        {"X-Forwarded-Proto": "https"},
        {"Via": "1.1 proxy"},
    ):
        assert client.post("/in/default/open", {}, headers).status_code == 401
    away = client.send("POST", "/in/default/open", {}, client=("10.0.0.1", 5))
    assert away.status_code == 401


def test_a_client_that_goes_away_in_the_middle_of_a_body_leaves_nothing(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    async def half_a_request() -> list[dict[str, Any]]:
        messages: Iterator[dict[str, Any]] = iter(
            [
                {"type": "http.request", "body": b'{"update_id":1}', "more_body": True},
                {"type": "http.disconnect"},
            ]
        )
        said = []

        async def receive() -> dict[str, Any]:
            return next(messages)

        async def send(message: Any) -> None:
            said.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": "/in/default/bot",
            "raw_path": b"/in/default/bot",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(b"x-telegram-bot-api-secret-token", b"s3cret")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        await client._app(scope, receive, send)
        return said

    client.run(half_a_request())
    assert count(conn, "deliveries") == count(conn, "events") == count(conn, "runs") == 0


def test_the_test_clock_counts_only_while_testing(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    source = Source(name="bot", channel="telegram", agent="chat")
    clocked = {"X-Semel-Test-Clock": f"{BASE + 0.25}"}
    testing = settings(dsn, source)
    with web(testing) as client:
        assert client.post("/in/default/bot", {"update_id": 1}, clocked).status_code == 201
        bad = client.post("/in/default/bot", {"update_id": 2}, {"X-Semel-Test-Clock": "soon"})
        assert bad.status_code == 400
    with web(replace(testing, testing=False)) as client:
        assert client.post("/in/default/bot", {"update_id": 3}, clocked).status_code == 201
    seen = conn.execute(
        "select provider_event_id, extract(epoch from first_seen_at)::float8"
        " from semel.events order by 1"
    ).fetchall()
    assert seen[0] == ("1", BASE + 0.25)
    assert seen[1][0] == "3"
    assert seen[1][1] < BASE


def test_c1_a_resolution_is_no_retry(client: Web, conn: psycopg.Connection[Any]) -> None:
    first = client.post("/in/default/alerts", notification(alert("A")), AUTH)
    second = client.post("/in/default/alerts", notification(alert("A", "resolved")), AUTH)
    assert (verdict(first), verdict(second)) == ("new", "new")
    assert second.json()["run_id"] == first.json()["run_id"]
    assert second.json()["event_id"] != first.json()["event_id"]
    assert count(conn, "events") == 2
    assert count(conn, "runs") == 1
    told = conn.execute(
        "select relation, content from semel.run_events order by relation"
    ).fetchall()
    assert [relation for relation, _ in told] == ["made", "resolved"]
    assert told[1][1][0]["status"] == "resolved"


def test_c2_a_lost_answer_costs_nothing(client: Web, conn: psycopg.Connection[Any]) -> None:
    """The answer is lost after COMMIT: what the sender does is send the same bytes again."""
    body = json.dumps(notification(alert("A"))).encode()
    lost = client.post("/in/default/alerts", body, AUTH).json()
    again = client.post("/in/default/alerts", body, AUTH)
    assert again.status_code == 200
    assert verdict(again) == "duplicate"
    assert again.json()["run_id"] == lost["run_id"]
    assert count(conn, "events") == count(conn, "runs") == 1


def test_c3_a_growing_group_makes_a_run_for_what_joins_it(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    a, b = alert("A"), alert("B")
    steps = [
        notification(a),
        notification(a, b),
        notification(a, b),
        notification(a, alert("B", "resolved")),
        notification(alert("A", "resolved")),
    ]
    verdicts = [verdict(client.post("/in/default/alerts", step, AUTH)) for step in steps]
    assert [each == "new" for each in verdicts] == [True, True, False, True, True]
    inputs = [row[0] for row in conn.execute("select input from semel.runs order by run_id")]
    named = [[each["labels"]["alertname"] for each in told["alerts"]] for told in inputs]
    assert named == [["A"], ["B"]]


def test_a_new_alert_among_known_ones_is_one_event_each_where_the_unit_is_the_alert(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    source = Source(name="alerts", channel="alertmanager", agent="triage", unit="alert")
    with web(settings(dsn, source)) as client:
        answer = client.post("/in/default/alerts", notification(alert("A"), alert("B")))
    assert answer.status_code == 201
    assert verdict(answer) == "new, new"
    assert len({event["run_id"] for event in answer.json()["events"]}) == 2
    assert count(conn, "runs") == 2


def test_a_database_out_of_reach_is_503_and_when_to_come_back(dsn: str) -> None:
    source = Source(name="bot", channel="telegram", agent="chat")
    nowhere = settings("host=127.0.0.1 port=1 dbname=x connect_timeout=1", source)
    with web(nowhere) as client:
        answer = client.post("/in/default/bot", {"update_id": 1})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert answer.json()["code"] == "E-DB-001"
    assert answer.json()["retryable"] is True


def test_a_database_without_our_schema_is_503(empty_dsn: str) -> None:
    with web(
        settings(empty_dsn, Source(name="bot", channel="telegram", agent="chat"))
    ) as client:
        answer = client.post("/in/default/bot", {"update_id": 1})
    assert answer.status_code == 503
    assert answer.json()["code"] == "E-DB-002"


def test_a_transaction_that_lost_a_race_is_sent_again(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    """A trigger plays the loser: the first two inserts are told 40001."""
    conn.execute("create sequence race minvalue -100 start 1")
    conn.execute(
        "create function lose() returns trigger language plpgsql as $$ begin"
        " if nextval('public.race') <= 2 then raise exception using errcode = '40001'; end if;"
        " return new; end $$"
    )
    conn.execute("grant usage on sequence race to public")
    conn.execute(
        "create trigger t before insert on semel.dedupe for each row execute function lose()"
    )
    assert client.post("/in/default/bot", {"update_id": 1}, TELEGRAM).status_code == 201
    assert count(conn, "runs") == 1
    conn.execute("select setval('race', -100)")
    assert client.post("/in/default/bot", {"update_id": 2}, TELEGRAM).status_code == 503
    assert count(conn, "runs") == 1
