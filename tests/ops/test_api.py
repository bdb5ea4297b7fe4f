"""/v1 starts runs once per key, shows what there is, and keeps everyone to their role."""

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_args

import psycopg
import pytest

from semel.config import Source
from semel.core import claims, runs, tokens, workers
from semel.core.inbox import event_accept
from semel.db.execute import run
from semel.model import Offer, Role
from web import Web, count, secret, settings, verdict, web

ROLES = get_args(Role)
RUNS = "/v1/default/runs"


@pytest.fixture
def client(dsn: str) -> Iterator[Web]:
    keyed = Source(
        name="shop", channel="api", agent="job", require_key=True, secrets=(secret("x"),)
    )
    with web(settings(dsn, keyed)) as client:
        yield client


def bearer(
    conn: psycopg.Connection[Any],
    role: Role,
    source: str | None = None,
    project: str = "default",
) -> dict[str, str]:
    token = tokens.mint()
    run(conn, tokens.token_create(project, token, role, source=source))
    return {"Authorization": f"Bearer {token}"}


def start(conn: psycopg.Connection[Any], agent: str = "a", **changes: Any) -> str:
    return str(run(conn, runs.run_start("default", agent, {"n": 1}, **changes)).run_id)


def test_a_start_is_201_and_its_retry_finds_the_same_run(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    headers = {**bearer(conn, "producer"), "Idempotency-Key": '"k-1"'}
    first = client.post(
        RUNS, {"agent": "job", "input": {"a": 1, "b": 2}, "priority": 7}, headers
    )
    assert first.status_code == 201
    assert verdict(first) == "new"
    retry = {**headers, "Idempotency-Key": "k-1"}
    again = client.post(RUNS, b'{"input":{"b":2,"a":1},"agent":"job","priority":7}', retry)
    assert again.status_code == 200
    assert again.json() == {**first.json(), "duplicate": True, "code": "E-IDEMPOTENT-001"}
    other = client.post(RUNS, {"agent": "job", "input": {"a": 2}}, headers)
    assert other.status_code == 422
    assert other.json()["code"] == "E-IDEMPOTENT-002"
    rows = conn.execute("select source, agent, priority, input from semel.runs").fetchall()
    assert rows == [("api", "job", 7, {"a": 1, "b": 2})]


def test_the_identity_is_the_key_and_never_the_token(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    told = {"agent": "job", "input": 1}
    answers = [
        client.post(RUNS, told, {**bearer(conn, role), "Idempotency-Key": "k"})
        for role in ("producer", "operator", "admin")
    ]
    assert [answer.status_code for answer in answers] == [201, 200, 200]
    assert count(conn, "runs") == 1


def test_a_token_bound_to_a_source_starts_runs_of_it(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    bound = bearer(conn, "producer", source="shop")
    refused = client.post(RUNS, {"agent": "job"}, bound)
    assert refused.status_code == 400
    assert refused.json()["code"] == "E-IDEMPOTENT-006"
    answer = client.post(RUNS, {"agent": "job"}, {**bound, "idempotency_key": "k"})
    assert answer.status_code == 201
    assert count(conn, "runs", "source = 'shop'") == 1


def test_a_start_without_a_key_is_always_new(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    headers = bearer(conn, "producer")
    for _ in range(2):
        assert client.post(RUNS, {"agent": "job"}, headers).status_code == 201
    assert count(conn, "runs") == 2


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"agent": ""},
        {"agent": "no spaces"},
        {"agent": 5},
        {"agent": "a" * 129},
        {"agent": "a", "imput": {}},
        {"agent": "a", "priority": 10},
        {"agent": "a", "priority": "5"},
        {"agent": "a", "priority": True},
        {"agent": "a", "priority": 5.5},
        [],
        b"",
        b"{",
        b'{"agent":"a","input":"\\u0000"}',
    ],
)
def test_a_malformed_start_is_400(
    client: Web, conn: psycopg.Connection[Any], told: Any
) -> None:
    answer = client.post(RUNS, told, bearer(conn, "producer"))
    assert answer.status_code == 400
    assert answer.json()["code"] == "E-REQUEST-001"
    assert count(conn, "runs") == 0


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_do_what_it_may(
    client: Web, conn: psycopg.Connection[Any], role: Role
) -> None:
    headers = bearer(conn, role)
    may_start = role in {"producer", "operator", "admin"}
    answer = client.post(RUNS, {"agent": "a"}, headers)
    assert answer.status_code == (201 if may_start else 403)
    may_read = role != "producer"
    for path in ("runs", "events", "agents", "workers"):
        answer = client.get(f"/v1/default/{path}", headers)
        assert answer.status_code == (200 if may_read else 403), path
    if not may_read:
        assert answer.json()["code"] == "E-AUTH-002"


def test_who_shows_no_token_of_the_project_is_401(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    other = bearer(conn, "admin", project="other")
    revoked = bearer(conn, "admin")
    token_id = run(conn, tokens.token_list("default"))[0][0]
    run(conn, tokens.token_revoke("default", token_id))
    token = other["Authorization"].removeprefix("Bearer ")
    for headers in (
        {},
        other,
        revoked,
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer ä"},
        {"Authorization": f"Basic {token}"},
        [*bearer(conn, "admin").items(), *bearer(conn, "admin").items()],
    ):
        for method, path in (("POST", RUNS), ("GET", RUNS), ("GET", "/v1/%27/runs")):
            answer = client.send(method, path, b"{}", headers)
            assert answer.status_code == 401
            assert answer.json()["code"] == "E-AUTH-001"
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_runs_come_newest_first_a_page_at_a_time(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    headers = bearer(conn, "viewer")
    started = [start(conn) for _ in range(5)]
    run(conn, runs.run_start("other", "a", {}))
    seen: list[str] = []
    cursor = ""
    for size in (2, 2, 1):
        page = client.get(f"{RUNS}?limit=2{cursor}", headers).json()
        assert len(page["runs"]) == size
        seen += [each["run_id"] for each in page["runs"]]
        cursor = f"&cursor={page['next']}"
    assert page["next"] is None
    assert sorted(seen, reverse=True) == seen
    assert set(seen) == set(started)


def test_runs_are_found_by_status_and_agent(client: Web, conn: psycopg.Connection[Any]) -> None:
    headers = bearer(conn, "viewer")
    done, waiting, other = start(conn), start(conn, priority=0), start(conn, "b")
    claim = run(
        conn, claims.run_claim("default", "a", "w", limit=1, lease=timedelta(minutes=5))
    )[0]
    run(conn, runs.run_complete("default", "w", [(claim.run_id, claim.fence, '{"ok":1}')]))
    for query, wanted in (
        ("status=COMPLETED", [done]),
        ("status=PENDING", [other, waiting]),
        ("agent=a", [waiting, done]),
        ("agent=b&status=PENDING", [other]),
        ("agent=nobody", []),
    ):
        found = client.get(f"{RUNS}?{query}", headers).json()["runs"]
        assert {each["run_id"] for each in found} == set(wanted), query


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=x",
        "limit=-1",
        "limit=%D9%A1",
        "limit=",
        "cursor=x",
        "cursor=",
        "status=DONE",
        "state=PENDING",
        "limit=1&limit=2",
        "agent=%00",
    ],
)
def test_a_malformed_query_is_400(
    client: Web, conn: psycopg.Connection[Any], query: str
) -> None:
    answer = client.get(f"{RUNS}?{query}", bearer(conn, "viewer"))
    assert answer.status_code == 400
    assert answer.json()["code"] == "E-REQUEST-001"


def test_a_run_is_shown_with_its_whole_timeline(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    headers = bearer(conn, "operator")
    copied = headers["Authorization"].partition(" ")[2]
    keyed = {**headers, "Idempotency-Key": "k", "User-Agent": f"x/{copied}"}
    run_id = client.post(
        RUNS, {"agent": "a", "input": {"at": "x", "seen_at": "y"}}, keyed
    ).json()["run_id"]
    client.post(RUNS, {"agent": "a", "input": {"at": "x", "seen_at": "y"}}, keyed)
    claim = run(
        conn, claims.run_claim("default", "a", "w", limit=1, lease=timedelta(minutes=5))
    )[0]
    run(conn, runs.run_fail(claim, "E-RUN-006", "boom"))
    shown = client.get(f"{RUNS}/{run_id}", headers).json()
    assert shown["run_id"] == run_id
    assert shown["status"] == "PENDING"
    assert shown["input"] == {"at": "x", "seen_at": "y"}
    assert [each["outcome"] for each in shown["attempts"]] == ["failed"]
    assert [each["relation"] for each in shown["events"]] == ["made"]
    assert shown["events"][0]["hits"] == 2
    assert [each["verdict"] for each in shown["deliveries"]] == ["new", "duplicate"]
    assert headers["Authorization"].partition(" ")[2] not in str(shown)
    assert shown["steps"] == []
    for at in (shown["created_at"], shown["attempts"][0]["claimed_at"]):
        assert at.endswith("Z")


def test_no_such_run_is_404_and_no_id_is_400(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    headers = bearer(conn, "viewer")
    elsewhere = run(conn, runs.run_start("other", "a", {})).run_id
    for unknown in (uuid.uuid4(), elsewhere):
        answer = client.get(f"{RUNS}/{unknown}", headers)
        assert answer.status_code == 404
        assert answer.json()["code"] == "E-RUN-001"
    assert client.get(f"{RUNS}/42", headers).status_code == 400


def test_events_agents_and_workers_are_listed(
    client: Web, conn: psycopg.Connection[Any]
) -> None:
    headers = bearer(conn, "viewer")
    offers = [
        Offer(source=source, channel="telegram", id=str(n), agent="a")
        for n, source in enumerate(("bot", "bot", "pot"))
    ]
    for offer in offers:
        run(conn, event_accept("default", [offer]))
    run(
        conn,
        workers.worker_register(
            "default", "w", host="h", pid=1, slots=4, agents=[("a", 3, None, "async")]
        ),
    )
    page = client.get("/v1/default/events?limit=2", headers).json()
    assert len(page["events"]) == 2
    rest = client.get(f"/v1/default/events?cursor={page['next']}", headers).json()
    assert len(rest["events"]) == 1
    bots = client.get("/v1/default/events?source=bot", headers).json()["events"]
    assert {each["provider_event_id"] for each in bots} == {"0", "1"}
    agents = client.get("/v1/default/agents", headers).json()["agents"]
    assert [(each["agent"], each["max_attempts"]) for each in agents] == [("a", 3)]
    listed = client.get("/v1/default/workers", headers).json()["workers"]
    assert [(each["worker_id"], each["held"]) for each in listed] == [("w", 0)]
    assert listed[0]["silent_seconds"] >= 0


def test_a_wrong_method_or_path_is_a_problem(client: Web) -> None:
    answer = client.send("DELETE", RUNS)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    for path in ("/v1/default", "/v1/default/runs/", "/v2"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_database_out_of_reach_is_503() -> None:
    with web(settings("host=127.0.0.1 port=1 connect_timeout=1")) as client:
        answer = client.get(RUNS, {"Authorization": "Bearer x"})
    assert answer.status_code == 503
    assert answer.json()["code"] == "E-DB-001"
    assert answer.headers["retry-after"]
