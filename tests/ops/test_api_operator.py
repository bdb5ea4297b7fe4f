"""Over /v1 an operator cancels and retries, sees the quarantine, and delays a start."""

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_args

import psycopg
import pytest

from fix_world import LEASE, one
from semel.config import Source
from semel.core import claims, runs, tokens
from semel.core.deliveries import delivery_read
from semel.core.inbox import event_accept
from semel.db.execute import run
from semel.edges.replay import replay
from semel.model import Offer, Role
from web import Web, count, secret, settings, web

RUNS = "/v1/default/runs"
EVENTS = "/v1/default/events"
Conn = psycopg.Connection[Any]


@pytest.fixture
def client(dsn: str) -> Iterator[Web]:
    with web(settings(dsn)) as client:
        yield client


def bearer(conn: Conn, role: Role) -> dict[str, str]:
    token = tokens.mint()
    run(conn, tokens.token_create("default", token, role))
    return {"Authorization": f"Bearer {token}"}


def started(conn: Conn, project: str = "default") -> str:
    return str(run(conn, runs.run_start(project, "a", 1)).run_id)


def complete(conn: Conn) -> None:
    [claim] = run(conn, claims.run_claim("default", "a", "w", limit=1, lease=LEASE))
    run(conn, runs.run_complete("default", "w", [(claim.run_id, claim.fence, "1")]))


# -- cancel and retry -----------------------------------------------------------------------


def test_a_run_is_cancelled_once_and_retried(client: Web, conn: Conn) -> None:
    headers = bearer(conn, "operator")
    run_id = started(conn)

    answers = [
        client.post(f"{RUNS}/{run_id}/{verb}", content, headers)
        for verb, content in (("cancel", {"reason": "x"}), ("cancel", b""), ("retry", b""))
    ]

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert [answer.json() for answer in answers] == [
        {"run_id": run_id, "outcome": "won", "status": "CANCELLED"},
        {"run_id": run_id, "outcome": "already", "status": "CANCELLED"},
        {"run_id": run_id, "outcome": "won", "status": "PENDING"},
    ]
    assert count(conn, "runs", "status = 'PENDING' and failure_reason = 'x'") == 1


def test_a_run_that_ended_is_409_and_the_body_says_its_state(client: Web, conn: Conn) -> None:
    headers = bearer(conn, "admin")
    run_id = started(conn)
    complete(conn)

    for verb in ("cancel", "retry"):
        answer = client.post(f"{RUNS}/{run_id}/{verb}", b"", headers)
        assert (answer.status_code, answer.json()["code"]) == (409, "E-RUN-002")
        assert "COMPLETED" in answer.json()["detail"]


def test_a_run_of_nobody_or_of_another_project_is_404(client: Web, conn: Conn) -> None:
    headers = bearer(conn, "operator")
    for unknown in (str(uuid.uuid4()), started(conn, "other")):
        for verb in ("cancel", "retry"):
            answer = client.post(f"{RUNS}/{unknown}/{verb}", b"", headers)
            assert (answer.status_code, answer.json()["code"]) == (404, "E-RUN-001")
    assert count(conn, "runs", "status = 'PENDING'") == 1


@pytest.mark.parametrize("role", get_args(Role))
def test_only_an_operator_and_an_admin_may(client: Web, conn: Conn, role: Role) -> None:
    headers = bearer(conn, role)
    run_id = started(conn)
    allowed = role in {"operator", "admin"}

    for verb in ("cancel", "retry"):
        answer = client.post(f"{RUNS}/{run_id}/{verb}", b"", headers)
        assert answer.status_code == (200 if allowed else 403)
        assert client.post(f"{RUNS}/{run_id}/{verb}", b"").status_code == 401
        assert client.get(f"{RUNS}/{run_id}/{verb}", headers).status_code == 405


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", {"reason": 5}, {"reason": ""}, {"reason": "x" * 501}, {"why": "x"}, b"\xff"],
)
def test_a_malformed_reason_is_400(client: Web, conn: Conn, content: Any) -> None:
    run_id = started(conn)
    for verb in ("cancel", "retry"):
        answer = client.post(f"{RUNS}/{run_id}/{verb}", content, bearer(conn, "operator"))
        assert (answer.status_code, answer.json()["code"]) == (400, "E-REQUEST-001")
    assert client.post(f"{RUNS}/x/cancel", b"", bearer(conn, "operator")).status_code == 400
    assert count(conn, "runs", "status = 'PENDING'") == 1


# -- a start later, or in time --------------------------------------------------------------


def test_a_start_may_be_delayed_and_have_a_deadline(client: Web, conn: Conn) -> None:
    told = {"agent": "a", "input": {"large": "x" * 2000}, "delay": "1h", "deadline": "2h"}

    answer = client.post(RUNS, told, bearer(conn, "producer"))

    assert answer.status_code == 201
    row = conn.execute(
        "select due_at - created_at, deadline_at - created_at, ready_at, input from semel.runs"
    ).fetchone()
    assert row is not None
    assert abs(row[0] - timedelta(hours=1)) < timedelta(seconds=1)
    assert abs(row[1] - timedelta(hours=2)) < timedelta(seconds=1)
    assert row[2:] == (None, {"large": "x" * 2000})


def test_delayed_and_prompt_starts_share_a_transaction(client: Web, conn: Conn) -> None:
    offers = [
        Offer(source="api", channel="api", id=str(n), agent="a", delay=delay, deadline=deadline)
        for n, (delay, deadline) in enumerate(
            [(None, None), (timedelta(hours=1), None), (None, timedelta(hours=1))]
        )
    ]

    accepted = run(conn, event_accept("default", offers))

    assert [each.verdict for each in accepted] == ["new"] * 3
    rows = conn.execute(
        "select ready_at is null, deadline_at is null from semel.runs order by run_id"
    ).fetchall()
    assert sorted(rows) == [(False, False), (False, True), (True, True)]


@pytest.mark.parametrize("name", ["delay", "deadline"])
@pytest.mark.parametrize(
    "value",
    ["30", 30, "0s", "-1s", "367d", "999999999.9d", "soon", "", True, ["1s"]],
    ids=repr,
)
def test_a_duration_that_is_none_is_400(client: Web, conn: Conn, name: str, value: Any) -> None:
    answer = client.post(RUNS, {"agent": "a", name: value}, bearer(conn, "producer"))

    assert (answer.status_code, answer.json()["code"]) == (400, "E-REQUEST-001")
    assert name in answer.json()["detail"]
    assert count(conn, "runs") == 0


def test_a_start_over_v1_is_replayed_without_a_configured_source(
    client: Web, conn: Conn, dsn: str
) -> None:
    headers = {**bearer(conn, "producer"), "Idempotency-Key": "k"}
    first = client.post(RUNS, {"agent": "a", "input": [1], "priority": 9}, headers).json()

    event = uuid.UUID(first["event_id"])
    _, [again] = replay(conn, settings(dsn), "default", event, force=True)

    assert (again.agent, again.input, again.differs) == ("a", [1], False)
    assert count(conn, "runs", "priority = 9") == 2
    kept = run(conn, delivery_read("default", uuid.UUID(first["event_id"])))
    assert kept
    assert kept.headers["idempotency-key"] == "k"
    assert "authorization" not in kept.headers


# -- the quarantine -------------------------------------------------------------------------


def test_deliveries_of_a_verdict_come_newest_first_a_page_at_a_time(
    client: Web, conn: Conn
) -> None:
    headers = bearer(conn, "viewer")
    for n in range(5):
        bad = Offer(
            source="bot" if n else "pot",
            channel="telegram",
            verdict="quarantined",
            reason=str(n),
        )
        run(conn, event_accept("default", [bad]))
    run(conn, event_accept("default", [Offer(source="bot", channel="telegram", id="1")]))

    seen: list[str] = []
    cursor = ""
    for size in (2, 2, 1):
        page = client.get(f"{EVENTS}?verdict=quarantined&limit=2{cursor}", headers).json()
        assert len(page["events"]) == size
        seen += [each["reason"] for each in page["events"]]
        cursor = f"&cursor={page['next']}"
    assert (page["next"], seen) == (None, ["4", "3", "2", "1", "0"])
    of_pot = client.get(f"{EVENTS}?verdict=quarantined&source=pot", headers).json()["events"]
    assert [(each["verdict"], each["source"]) for each in of_pot] == [("quarantined", "pot")]
    assert client.get(f"{EVENTS}?verdict=nice", headers).status_code == 400
    assert len(client.get(EVENTS, headers).json()["events"]) == 1


def test_a_page_goes_on_where_a_test_clock_put_it(dsn: str, conn: Conn) -> None:
    source = Source(name="bot", channel="telegram", agent="a", secrets=(secret("s"),))
    with web(settings(dsn, source)) as client:
        for n in range(3):
            client.post(
                "/in/default/bot",
                {"n": n},
                {
                    "X-Telegram-Bot-Api-Secret-Token": "s",
                    "X-Semel-Test-Clock": str(1e9 + n),
                },
            )
        headers = bearer(conn, "viewer")
        first = client.get(f"{EVENTS}?verdict=quarantined&limit=2", headers).json()
        rest = client.get(
            f"{EVENTS}?verdict=quarantined&cursor={first['next']}", headers
        ).json()
    assert (len(first["events"]), len(rest["events"])) == (2, 1)
    assert one(conn, "select count(*) from semel.deliveries") == 3


def test_agents_are_listed_with_their_counts(client: Web, conn: Conn) -> None:
    started(conn)

    [agent] = client.get("/v1/default/agents", bearer(conn, "viewer")).json()["agents"]

    assert (agent["agent"], agent["waiting"], agent["running"]) == ("a", 1, 0)
