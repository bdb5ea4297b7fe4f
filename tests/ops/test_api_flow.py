"""Over /v1: batches, priorities, calls that collapse, and what is asked of workers."""

from collections.abc import Iterator
from typing import Any

import pytest

import semel
from fix_world import Conn, one, row, start_run
from semel.config import Settings
from semel.core import tokens, workers
from semel.db.execute import run
from semel.model import Role
from semel.ops.doctor import examine
from web import Web, settings, web


@pytest.fixture
def client(dsn: str) -> Iterator[Web]:
    with web(settings(dsn)) as client:
        yield client


def bearer(conn: Conn, role: Role) -> dict[str, str]:
    token = tokens.mint()
    run(conn, tokens.token_create("p", token, role))
    return {"Authorization": f"Bearer {token}"}


def test_batches_are_read_in_pages_and_one_by_one(client: Web, conn: Conn) -> None:
    for name in ("a", "b/c", "d"):
        semel.start_many(conn, project="p", agent="x", batch=name, inputs=[1, 2])
    headers = bearer(conn, "viewer")

    page = client.get("/v1/p/batches?limit=2", headers).json()
    rest = client.get(f"/v1/p/batches?cursor={page['next']}", headers).json()

    assert [["d", "b/c"], ["a"]] == [[b["batch"] for b in p["batches"]] for p in (page, rest)]
    assert 2 == client.get("/v1/p/batches/b/c", headers).json()["pending"]
    gone = client.get("/v1/p/batches/x", headers)
    assert (404, "E-BATCH-001") == (gone.status_code, gone.json()["code"])
    assert 401 == client.get("/v1/p/batches").status_code


def test_an_operator_changes_a_priority(client: Web, conn: Conn) -> None:
    run_id = start_run(conn)
    path, headers = f"/v1/p/runs/{run_id}/priority", bearer(conn, "operator")

    answer = client.post(path, {"priority": 9}, headers)

    assert (200, "won", 9) == (
        answer.status_code,
        answer.json()["outcome"],
        row(conn, run_id)["priority"],
    )
    for told, code in (
        ({"priority": 10}, 400),
        ({"priority": True}, 400),
        ({}, 400),
        ({"priority": 1, "x": 1}, 400),
    ):
        assert code == client.post(path, told, headers).status_code
    assert 403 == client.post(path, {"priority": 1}, bearer(conn, "viewer")).status_code
    stranger = path.replace(str(run_id), "01a22cd8-ca25-7d51-9c7c-6c90a3d029c6")
    assert 404 == client.post(stranger, {"priority": 1}, headers).status_code


def test_calls_collapse_over_http(client: Web, conn: Conn) -> None:
    headers = bearer(conn, "producer")

    def call(**told: Any) -> Any:
        body = {"agent": "a", "debounce": "30s", "debounce_key": "k", **told}
        return client.post("/v1/p/runs", body, headers)

    first, second = call(input=1), call(input=2, debounce_max="1m")

    assert (201, "new") == (first.status_code, first.json()["outcome"])
    assert (200, "replaced") == (second.status_code, second.json()["outcome"])
    assert first.json()["run_id"] == second.json()["run_id"]
    assert 2 == one(conn, "select input from semel.runs")
    for bad in (
        {"debounce": None},
        {"debounce_key": None},
        {"debounce": "x"},
        {"debounce_max": "1s"},
        {"unique": "u"},
        {"agent": "a b"},
        {"priority": 10},
    ):
        assert (400, "E-REQUEST-001") == (
            call(**bad).status_code,
            call(**bad).json()["code"],
        )
    keyed = client.post(
        "/v1/p/runs",
        {"agent": "a", "debounce": "30s", "debounce_key": "k"},
        {**headers, "Idempotency-Key": "k"},
    )
    assert 400 == keyed.status_code


def test_an_operator_asks_something_of_a_worker(client: Web, conn: Conn) -> None:
    agents = [("a", 3, None, "async")]
    run(conn, workers.worker_register("p", "w", host="h", pid=1, slots=4, agents=agents))
    path, headers = "/v1/p/workers/w", bearer(conn, "operator")

    def asked() -> Any:
        [worker] = client.get("/v1/p/workers", headers).json()["workers"]
        return worker["draining_at"] is not None, worker["slots"]

    outcomes = []
    for told, seen in (
        ({"drain": True}, (True, 4)),
        ({"drain": True}, (True, 4)),
        ({"drain": False}, (False, 4)),
        ({"slots": 9}, (False, 9)),
        ({"slots": None}, (False, 4)),
    ):
        answer = client.post(path, told, headers)
        outcomes.append(answer.json()["outcome"])
        assert (200, seen) == (answer.status_code, asked())
    assert ["won", "already", "won", "won", "won"] == outcomes
    for bad in ({}, {"drain": 1}, {"slots": 0}, {"drain": True, "slots": 1}, {"x": 1}):
        assert 400 == client.post(path, bad, headers).status_code
    for stranger in ("x", "a%00b"):
        gone = client.post(f"/v1/p/workers/{stranger}", {"drain": True}, headers)
        assert (404, "E-WORKER-001") == (gone.status_code, gone.json()["code"])
    run(conn, workers.worker_stop("p", "w"))
    assert 409 == client.post(path, {"drain": True}, headers).status_code


def test_open_batches_are_a_metric(client: Web, conn: Conn) -> None:
    semel.start_many(conn, project="p", agent="x", inputs=[1])
    assert "semel_batches_open 1.0" in client.get("/metrics").text


def test_the_doctor_names_a_worker_that_was_drained_and_forgotten(dsn: str, conn: Conn) -> None:
    agents = [("a", 3, None, "async")]
    run(conn, workers.worker_register("p", "w", host="h", pid=1, slots=4, agents=agents))
    run(conn, workers.worker_drain("p", "w"))
    named = [
        c for c in examine(Settings(dsn=dsn)) if c.name == "workers" and "drain" in c.detail
    ]
    assert [] == named

    conn.execute("update semel.worker set draining_at = now() - interval '2 hours'")

    [forgotten] = [c for c in examine(Settings(dsn=dsn)) if "asked to drain" in c.detail]
    assert "note" == forgotten.status
    assert "semel worker resume w" in forgotten.remedy
