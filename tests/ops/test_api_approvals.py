"""Over /v1 approvers decide, operators steer sagas, programs signal, each within their role."""

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_args

import pytest

from asking import ask, claimed, link
from fix_world import Conn, one, row, start_run, status
from semel.core import runs, steps, tokens, transitions
from semel.core.waits import Wait, run_park
from semel.db.execute import run
from semel.model import Role
from web import Web, count, settings, web

P = "/v1/p"
ROLES = get_args(Role)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def client(dsn: str) -> Iterator[Web]:
    with web(settings(dsn)) as client:
        yield client


def bearer(conn: Conn, role: Role, name: str = "", project: str = "p") -> dict[str, str]:
    token = tokens.mint()
    run(conn, tokens.token_create(project, token, role, name=name))
    return {"Authorization": f"Bearer {token}"}


def waiting(conn: Conn, name: str = "go") -> uuid.UUID:
    """A run that waits for a signal."""
    run_id = start_run(conn)
    claim = claimed(conn)
    run(
        conn,
        run_park("p", "w", run_id, claim.fence, [Wait(key=name, kind="signal", name=name)]),
    )
    return run_id


def failed_saga(conn: Conn, code: str = "E-RUN-006") -> uuid.UUID:
    """A run that failed after a step with an undo."""
    run_id = start_run(conn)
    claim = claimed(conn)
    intent = steps.Entry("pay", "intent", content='{"undo": "refund", "args": [1]}')
    run(conn, steps.step_record("p", "w", [(run_id, claim.fence, intent)]))
    run(conn, runs.run_fail(claim, code, "boom", retryable=False))
    return run_id


# -- approvals ------------------------------------------------------------------------------


def test_approvals_are_listed_newest_first_a_page_at_a_time(client: Web, conn: Conn) -> None:
    asked = [str(ask(conn, f"t{n}", agent=f"a{n}").approval_id) for n in range(3)]
    now = one(conn, "select clock_timestamp()")
    over = ask(conn, "old", agent="b", now=now - timedelta(hours=1))
    ask(conn, project="q")
    viewer = bearer(conn, "viewer")

    first = client.get(f"{P}/approvals?limit=2", viewer).json()
    rest = client.get(f"{P}/approvals?limit=2&cursor={first['next']}", viewer).json()

    seen = [each["approval_id"] for each in first["approvals"] + rest["approvals"]]
    assert seen == [*reversed(asked), str(over.approval_id)]
    assert rest["next"] is None
    of_state = {
        state: [
            each["title"]
            for each in client.get(f"{P}/approvals?state={state}", viewer).json()["approvals"]
        ]
        for state in ("PENDING", "EXPIRED", "APPROVED")
    }
    assert of_state == {"PENDING": ["t2", "t1", "t0"], "EXPIRED": ["old"], "APPROVED": []}
    assert client.get(f"{P}/approvals?state=open", viewer).status_code == 400
    shown = client.get(f"{P}/approvals/{asked[0]}", viewer).json()
    assert (shown["title"], shown["state"], shown["links"]) == ("t0", "PENDING", None)


@pytest.mark.parametrize("role", ROLES)
def test_only_an_approver_and_an_admin_decide(client: Web, conn: Conn, role: Role) -> None:
    asked = ask(conn)
    path = f"{P}/approvals/{asked.approval_id}"
    allowed = role in {"approver", "admin"}

    answer = client.post(path, {"decision": "approve"}, bearer(conn, role))

    assert answer.status_code == (200 if allowed else 403)
    assert answer.json().get("code") == (None if allowed else "E-AUTH-002")
    assert client.post(path, {"decision": "approve"}).status_code == 401
    stranger = bearer(conn, role, project="q")
    assert client.post(path, {"decision": "approve"}, stranger).status_code == 401
    assert status(conn, asked.run_id) == ("RESUMED" if allowed else "WAITING_APPROVAL")


@pytest.mark.parametrize("name", ["alice", ""])
def test_the_voter_is_the_token_s_name_or_its_id(client: Web, conn: Conn, name: str) -> None:
    asked = ask(conn)
    headers = {**bearer(conn, "approver", name), "User-Agent": "curl/8"}

    answer = client.post(
        f"{P}/approvals/{asked.approval_id}", {"decision": "reject", "reason": "no"}, headers
    ).json()

    assert (answer["outcome"], answer["state"]) == ("won", "REJECTED")
    [(voter, reason, via, address, agent)] = conn.execute(
        "select voter, reason, via, address, user_agent from semel.approval_vote"
    ).fetchall()
    assert voter == name or uuid.UUID(voter) == one(conn, "select token_id from semel.token")
    assert (reason, via, address, agent) == ("no", "api", "127.0.0.1", "curl/8")


def test_each_outcome_has_its_code(client: Web, conn: Conn) -> None:
    alice = bearer(conn, "approver", "alice")
    now = one(conn, "select clock_timestamp()")
    decided, over, void = (
        ask(conn, agent="a"),
        ask(conn, agent="b", now=now - timedelta(hours=1)),
        ask(conn, agent="c"),
    )
    hers = ask(conn, agent="d", requester="alice")
    not_hers = ask(conn, agent="e", approvers=("bob",), need=1)
    run(conn, transitions.run_cancel("p", void.run_id))
    elsewhere = ask(conn, project="q")
    client.post(f"{P}/approvals/{decided.approval_id}", {"decision": "approve"}, alice)

    def code(approval_id: Any, **told: Any) -> tuple[int, str]:
        body = {"decision": "reject", **told}
        answer = client.post(f"{P}/approvals/{approval_id}", body, alice)
        return answer.status_code, answer.json()["code"]

    assert code(decided.approval_id) == (409, "E-APPROVAL-003")
    assert code(over.approval_id) == (410, "E-APPROVAL-002")
    assert code(hers.approval_id) == (403, "E-AUTH-002")
    assert code(not_hers.approval_id) == (403, "E-AUTH-002")
    for nothing in (void.approval_id, elsewhere.approval_id, uuid.uuid4()):
        assert code(nothing) == (404, "E-APPROVAL-001")
    assert code(not_hers.approval_id, digest="sha256:other") == (404, "E-APPROVAL-001")
    assert code("x") == (400, "E-REQUEST-001")
    assert code(hers.approval_id, decision="maybe") == (400, "E-REQUEST-001")
    assert code(hers.approval_id, why="x") == (400, "E-REQUEST-001")
    assert count(conn, "approval_vote") == 1


def test_two_people_of_two_roles_make_two_of_two(client: Web, conn: Conn) -> None:
    asked = ask(conn, need=2)
    path = f"{P}/approvals/{asked.approval_id}"
    alice = bearer(conn, "approver", "alice")

    outcomes = [
        client.post(path, {"decision": "approve"}, who).json()["outcome"]
        for who in (alice, alice, bearer(conn, "admin", "root"))
    ]

    assert outcomes == ["voted", "voted", "won"]
    assert status(conn, asked.run_id) == "RESUMED"


# -- signals --------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
def test_operators_signal(client: Web, conn: Conn, role: Role) -> None:
    run_id = waiting(conn)
    allowed = role in {"operator", "admin"}

    answer = client.post(
        f"{P}/runs/{run_id}/signals",
        {"name": "go", "content": {"n": 1}},
        bearer(conn, role, "me"),
    )

    assert answer.status_code == (201 if allowed else 403)
    assert status(conn, run_id) == ("RESUMED" if allowed else "WAITING_TOOL")
    if allowed:
        said = conn.execute(
            "select name, content, sender, taken_by from semel.signals"
        ).fetchall()
        assert said == [("go", {"n": 1}, "me", "go")]


def test_a_signal_with_a_key_is_said_once(client: Web, conn: Conn) -> None:
    run_id = start_run(conn)
    headers = {**bearer(conn, "operator"), "Idempotency-Key": "k"}
    path = f"{P}/runs/{run_id}/signals"

    answers = [client.post(path, {"name": "go"}, headers) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[1].json()["code"] == "E-IDEMPOTENT-001"
    assert count(conn, "signal") == 1


def test_a_signal_wakes_the_workers_of_the_run(client: Web, conn: Conn, other: Conn) -> None:
    run_id = waiting(conn)
    other.execute("listen semel")

    client.post(f"{P}/runs/{run_id}/signals", {"name": "go"}, bearer(conn, "operator"))

    assert [told.payload for told in other.notifies(timeout=10, stop_after=1)] == ["a"]


def test_a_signal_that_nobody_can_hear_is_refused(client: Web, conn: Conn) -> None:
    headers = bearer(conn, "operator")
    run_id = waiting(conn)

    def code(of: Any, told: Any) -> tuple[int, str]:
        answer = client.post(f"{P}/runs/{of}/signals", told, headers)
        return answer.status_code, answer.json()["code"]

    for bad in (
        {},
        {"name": 5},
        {"name": ""},
        {"name": "x" * 256},
        {"name": "go", "why": 1},
        b"[",
    ):
        assert code(run_id, bad) == (400, "E-REQUEST-001")
    assert code(run_id, {"name": "go", "content": "x" * 300_000}) == (400, "E-REQUEST-001")
    assert code("x", {"name": "go"}) == (400, "E-REQUEST-001")
    assert code(uuid.uuid4(), {"name": "go"}) == (404, "E-RUN-001")
    run(conn, transitions.run_cancel("p", run_id))
    assert code(run_id, {"name": "go"}) == (409, "E-RUN-002")
    assert count(conn, "signal") == 0


# -- sagas ----------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
def test_operators_compensate_what_is_held(client: Web, conn: Conn, role: Role) -> None:
    run_id = failed_saga(conn, "E-STEP-001")
    path = f"{P}/runs/{run_id}/compensate"
    headers = bearer(conn, role)

    first, again = client.post(path, b"", headers), client.post(path, b"", headers)

    if role not in {"operator", "admin"}:
        assert first.status_code == 403
        return
    assert [answer.json()["outcome"] for answer in (first, again)] == ["won", "already"]
    assert row(conn, uuid.UUID(first.json()["undo_run_id"]))["kind"] == "undo"
    shown = client.get(f"{P}/runs/{run_id}", headers | bearer(conn, "viewer")).json()
    assert shown["compensation"]["run_id"] == first.json()["undo_run_id"]
    [step] = shown["compensation"]["steps"]
    assert (step["step_key"], step["undo"], step["finished"]) == ("pay", "refund", False)
    assert step["undone_at"] is None


def test_a_step_is_skipped_with_a_reason_by_either_run_s_id(client: Web, conn: Conn) -> None:
    run_id = failed_saga(conn)
    undo_id = one(conn, "select run_id from semel.runs where kind = 'undo'")
    headers = bearer(conn, "operator", "oli")
    told = {"step": "pay", "reason": "paid back by hand"}

    first = client.post(f"{P}/runs/{undo_id}/skip", told, headers).json()
    again = client.post(f"{P}/runs/{run_id}/skip", told, headers).json()

    assert first == {
        "run_id": str(run_id),
        "outcome": "won",
        "step": "pay",
        "undo_run_id": str(undo_id),
    }
    assert again == {**first, "outcome": "already"}
    shown = client.get(f"{P}/runs/{undo_id}", headers).json()
    [step] = shown["undoes"]
    assert step["undone"] == {"skipped": True, "reason": "paid back by hand", "by": "oli"}


def test_what_cannot_be_compensated_or_skipped_is_refused(client: Web, conn: Conn) -> None:
    headers = bearer(conn, "admin")
    plain, saga = start_run(conn, "b"), failed_saga(conn)
    skip = {"step": "pay", "reason": "x"}

    def code(verb: str, of: Any, told: Any = b"") -> tuple[int, str]:
        answer = client.post(f"{P}/runs/{of}/{verb}", told, headers)
        return answer.status_code, answer.json()["code"]

    assert code("compensate", plain) == (409, "E-RUN-002")
    assert code("compensate", uuid.uuid4()) == (404, "E-RUN-001")
    assert code("compensate", plain, {"x": 1}) == (400, "E-REQUEST-001")
    assert code("skip", plain, skip) == (409, "E-RUN-002")
    assert code("skip", saga, {**skip, "step": "other"}) == (409, "E-RUN-002")
    assert code("skip", uuid.uuid4(), skip) == (404, "E-RUN-001")
    for bad in (
        {},
        {"step": "pay"},
        {"reason": "x"},
        {**skip, "why": 1},
        {**skip, "reason": " "},
    ):
        assert code("skip", saga, bad) == (400, "E-REQUEST-001")
    viewer = bearer(conn, "approver")
    for verb in ("compensate", "skip"):
        assert client.post(f"{P}/runs/{saga}/{verb}", b"", viewer).status_code == 403


def test_runs_are_listed_by_kind(client: Web, conn: Conn) -> None:
    failed_saga(conn)
    ask(conn)
    viewer = bearer(conn, "viewer")

    found = {
        kind: [
            each["agent"] for each in client.get(f"{P}/runs?kind={kind}", viewer).json()["runs"]
        ]
        for kind in ("work", "undo", "notify", "child")
    }

    assert found == {"work": ["a", "a"], "undo": ["a"], "notify": ["semel.notify"], "child": []}
    assert client.get(f"{P}/runs?kind=all", viewer).status_code == 400


# -- figures --------------------------------------------------------------------------------


def metric(text: str, name: str) -> float:
    return float(
        next(line.split(" ")[-1] for line in text.splitlines() if line.startswith(name))
    )


def test_metrics_count_decisions_and_compensations_once(
    client: Web, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.ops.metrics.CACHE_SECONDS", 0.0)
    decided, _ = ask(conn, agent="b"), ask(conn, agent="c")
    over = ask(conn, agent="d", now=one(conn, "select clock_timestamp()") - timedelta(hours=1))
    client.post(
        f"/approve/{link(conn, decided)}",
        {"decision": "approve"},
        {"Content-Type": "application/json"},
    )
    failed_saga(conn)
    claim = claimed(conn)
    run(conn, runs.run_complete("p", "w", [(claim.run_id, claim.fence, "null")]))

    texts = [client.get("/metrics").text for _ in range(3)]
    conn.execute("delete from semel.approval where approval_id = %s", (over.approval_id,))
    later = client.get("/metrics").text

    for text in texts:
        for state, number in (("PENDING", 1), ("APPROVED", 1), ("EXPIRED", 1), ("VOID", 0)):
            assert metric(text, f'semel_approvals{{state="{state}"}}') == number
    assert metric(later, 'semel_approvals{state="EXPIRED"}') == 0
    for text in (*texts, later):
        assert metric(text, "semel_approval_wait_seconds_count") == 1
        assert 0 < metric(text, "semel_approval_wait_seconds_sum") < 60
        assert metric(text, 'semel_compensations_total{outcome="COMPLETED"}') == 1
        assert metric(text, 'semel_compensations_total{outcome="FAILED"}') == 0
