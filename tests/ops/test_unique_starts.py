"""A unique key over HTTP and at the command line: one live run of an agent has it."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from fix_cli import Semel
from fix_world import LEASE, Conn
from semel.core import claims, deliveries, reads, runs, story, tokens, transitions
from semel.db.execute import run
from semel.edges.replay import replay
from web import Web, count, settings, verdict, web

RUNS = "/v1/default/runs"
JOB = {"agent": "job", "unique": "order-17"}


@pytest.fixture
def client(dsn: str) -> Iterator[Web]:
    with web(settings(dsn)) as client:
        yield client


@pytest.fixture
def headers(conn: Conn) -> dict[str, str]:
    token = tokens.mint()
    run(conn, tokens.token_create("default", token, "producer"))
    return {"Authorization": f"Bearer {token}"}


def finish(conn: Conn) -> None:
    [held] = run(conn, claims.run_claim("default", "job", "w", limit=1, lease=LEASE))
    run(conn, runs.run_complete("default", "w", [(held.run_id, held.fence, "1")]))


# -- over HTTP ------------------------------------------------------------------------------


def test_a_start_finds_the_live_run_with_its_unique_key(
    client: Web, conn: Conn, headers: dict[str, str]
) -> None:
    first = client.post(RUNS, JOB, headers)
    again = client.post(RUNS, {**JOB, "input": 2, "priority": 9}, headers)
    other = client.post(RUNS, {**JOB, "agent": "another"}, headers)

    assert [answer.status_code for answer in (first, again, other)] == [201, 200, 201]
    assert (verdict(again), again.json()) == (
        "duplicate",
        {**first.json(), "duplicate": True, "code": "E-IDEMPOTENT-001"},
    )
    assert count(conn, "runs") == 2
    shown = run(conn, story.show_run("default", uuid.UUID(first.json()["run_id"])))
    assert shown
    arrived: Any = shown["deliveries"]
    assert [each["reason"] for each in arrived] == [
        "no identity was given",
        "a live run of agent job holds the unique key",
    ]


def test_a_unique_key_is_free_when_its_run_has_ended(
    client: Web, conn: Conn, headers: dict[str, str]
) -> None:
    first = client.post(RUNS, JOB, headers).json()
    run(conn, transitions.run_cancel("default", uuid.UUID(first["run_id"])))

    assert client.post(RUNS, JOB, headers).status_code == 201
    # The first has lost it to the second, and may not come back beside it.
    told = run(conn, transitions.run_retry("default", uuid.UUID(first["run_id"])))[:2]
    assert told == ("refused", "CANCELLED")


def test_an_idempotency_key_is_remembered_only_of_a_start(
    client: Web, conn: Conn, headers: dict[str, str]
) -> None:
    """A start that found a live run made nothing, so its key is as good as new."""
    holder = client.post(RUNS, JOB, {**headers, "Idempotency-Key": "k1"}).json()
    found = client.post(RUNS, JOB, {**headers, "Idempotency-Key": "k2"}).json()
    retried = client.post(RUNS, JOB, {**headers, "Idempotency-Key": "k1"}).json()
    assert holder["run_id"] == found["run_id"] == retried["run_id"]
    finish(conn)

    for key, status in (("k1", 200), ("k2", 201), ("k2", 200)):
        answer = client.post(RUNS, JOB, {**headers, "Idempotency-Key": key})
        assert answer.status_code == status
    explained = run(conn, reads.explain_event("default", "api", "k2"))
    assert [each["verdict"] for each in explained] == ["duplicate", "new", "duplicate"]


def test_delay_deadline_and_priority_go_with_a_unique_key(
    client: Web, conn: Conn, headers: dict[str, str]
) -> None:
    told = {**JOB, "priority": 9, "delay": "1h", "deadline": "2h"}

    assert client.post(RUNS, told, headers).status_code == 201

    assert conn.execute(
        "select unique_key, priority, ready_at is null, deadline_at - due_at = '1 hour'"
        " from semel.runs"
    ).fetchall() == [("order-17", 9, True, True)]


@pytest.mark.parametrize(
    ("told", "because"),
    [
        ({"unique": ""}, "unique is a text of 1 to 255 printable characters"),
        ({"unique": "x" * 256}, "unique is a text"),
        ({"unique": "a\nb"}, "unique is a text"),
        ({"unique": 17}, "unique is a text"),
        ({"unique": ["x"]}, "unique is a text"),
        ({"delay": "2h", "deadline": "1h"}, "deadline 1h is not after delay 2h"),
        ({"delay": "60m", "deadline": "1h"}, "deadline 1h is not after delay 1h"),
        ({"uniqe": "x"}, "there are agent, input, priority, delay, deadline, unique"),
    ],
)
def test_what_cannot_be_is_a_problem_that_says_why(
    client: Web, conn: Conn, headers: dict[str, str], told: dict[str, Any], because: str
) -> None:
    answer = client.post(RUNS, {"agent": "job", **told}, headers)

    assert (answer.status_code, answer.json()["code"]) == (400, "E-REQUEST-001")
    assert answer.headers["content-type"] == "application/problem+json"
    assert because in answer.json()["detail"]
    assert count(conn, "runs") == 0


def test_a_replay_makes_no_second_live_run(
    client: Web, conn: Conn, dsn: str, headers: dict[str, str]
) -> None:
    first = client.post(RUNS, JOB, headers).json()
    event = uuid.UUID(first["event_id"])

    for _ in range(2):
        _, [again] = replay(conn, settings(dsn), "default", event, force=True)
        assert (again.started, again.accepted.verdict) == (False, "duplicate")
        assert str(again.accepted.run_id) == first["run_id"]
    finish(conn)
    _, [again] = replay(conn, settings(dsn), "default", event, force=True)

    assert again.started
    assert count(conn, "runs") == 2
    assert run(conn, deliveries.delivery_read("default", event))


# -- at the command line --------------------------------------------------------------------


def test_run_start_finds_the_live_run_and_says_so(here: Semel, conn: Conn) -> None:
    words = ("run", "start", "job", "--unique", "u", "--delay", "1h", "--deadline", "2h")
    first = here(*words).out.strip()

    again = here(*words)
    as_json = here(*words, "--key", "k", "--json").json

    assert again.code == 0
    assert again.out == f"{first} (not ended yet, and has this unique key)\n"
    assert (as_json["run_id"], as_json["outcome"]) == (first, "exists")
    assert conn.execute(
        "select unique_key, deadline_at - due_at = '1 hour' from semel.runs"
    ).fetchall() == [("u", True)]
