"""/v1 shows the ledger to readers, and what operations answered to operators only."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from fix_world import Conn, one
from semel.core import tokens
from semel.core.ledger_reads import LISTED_BYTES_MAX, list_operations, show_operation
from semel.core.operations import (
    Identity,
    Reply,
    operation_begin,
    operation_fail,
    operation_finish,
)
from semel.db.execute import run
from semel.model import Role
from web import Web, settings, web

OPERATIONS = "/v1/default/operations"
HOUR = timedelta(hours=1)


@pytest.fixture
def client(dsn: str) -> Iterator[Web]:
    with web(settings(dsn)) as client:
        yield client


def bearer(conn: Conn, role: Role) -> dict[str, str]:
    token = tokens.mint()
    run(conn, tokens.token_create("default", token, role))
    return {"Authorization": f"Bearer {token}"}


def execute(conn: Conn, request: str, body: bytes = b'{"id":7}', **more: Any) -> None:
    told: dict[str, Any] = {"operation": "pay", "fail": False, "ago": timedelta(0), **more}
    identity = Identity(
        project="default",
        request_id=request,
        event_type=told["operation"],
        actor="alice",
        envelopes=[{"version": 2, "digest": f"sha256:{'0' * 64}"}],
    )
    at = one(conn, "select clock_timestamp()") - told["ago"]
    with conn.transaction():
        begun = run(conn, operation_begin(identity, now=at))
        who = ("default", request, begun.attempts or 0, begun.xid)
        if told["fail"]:
            run(conn, operation_fail(*who, code="Broke", error="no money", now=at))
        else:
            run(conn, operation_finish(*who, Reply(status=200, headers=[], body=body), now=at))


def test_operations_come_newest_first_and_in_pages(client: Web, conn: Conn) -> None:
    ages = [0, 1, 2, 50, 51, 3000, 9000, 9001, 90_000]
    for n, hours in enumerate(ages):
        execute(conn, f"http:{n:064}", ago=hours * HOUR)
    headers = bearer(conn, "viewer")

    seen: list[str] = []
    query = "?limit=2"
    while query:
        page = client.get(f"{OPERATIONS}{query}", headers).json()
        seen += [each["request_id"] for each in page["operations"]]
        query = f"?limit=2&cursor={page['next']}" if page["next"] else ""

    assert seen == [f"http:{n:064}" for n in range(len(ages))]


def test_they_are_found_by_status_and_operation(client: Web, conn: Conn) -> None:
    execute(conn, "a")
    execute(conn, "b", fail=True)
    execute(conn, "c", operation="refund")
    headers = bearer(conn, "viewer")

    def found(query: str) -> list[str]:
        answer = client.get(f"{OPERATIONS}{query}", headers)
        assert answer.status_code == 200
        return [each["request_id"] for each in answer.json()["operations"]]

    assert found("") == ["c", "b", "a"]
    assert found("?status=FAILED") == ["b"]
    assert found("?operation=refund") == ["c"]
    assert found("?operation=pay&status=SUCCEEDED") == ["a"]
    assert found("?cursor=none") == []


def test_what_an_operation_answered_is_for_operators_only(client: Web, conn: Conn) -> None:
    execute(conn, "a")
    execute(conn, "long", b'"' + b"x" * LISTED_BYTES_MAX + b'"')
    execute(conn, "bytes", b"\xff\x00")

    readers: tuple[Role, ...] = ("viewer", "approver")
    for role in readers:
        listed = client.get(OPERATIONS, bearer(conn, role)).json()["operations"]
        assert all("result" not in each and "reply_headers" not in each for each in listed)
        assert listed[2]["reply_bytes"] == 8
    operators: tuple[Role, ...] = ("operator", "admin")
    for role in operators:
        listed = client.get(OPERATIONS, bearer(conn, role)).json()["operations"]
        assert [each["result"] for each in listed] == [None, None, {"id": 7}]


def test_who_may_not_read_is_refused(client: Web, conn: Conn) -> None:
    assert client.get(OPERATIONS, bearer(conn, "producer")).status_code == 403
    assert client.get(OPERATIONS, {}).status_code == 401
    assert client.get("/v1/other/operations", bearer(conn, "viewer")).status_code == 401


@pytest.mark.parametrize(
    "query",
    ["?status=DONE", "?limit=0", "?limit=201", "?stauts=FAILED", f"?cursor={'x' * 513}"],
)
def test_a_query_that_is_wrong_is_refused(client: Web, conn: Conn, query: str) -> None:
    assert client.get(f"{OPERATIONS}{query}", bearer(conn, "viewer")).status_code == 400


def test_access_to_results_is_granted_apart(conn: Conn) -> None:
    execute(conn, "a")
    conn.execute("set role semel_client")
    [listed] = run(conn, list_operations("default", results=True))
    shown = run(conn, show_operation("default", "a"))
    assert shown is not None
    assert (listed["result"], shown["result"], shown["reply_headers"]) == (None, None, None)
    assert shown["reply_bytes"] == 8

    conn.execute("reset role")
    conn.execute("grant select (reply_body) on semel.operation to semel_client")
    conn.execute("set role semel_client")
    [listed] = run(conn, list_operations("default", results=True))
    assert listed["result"] == {"id": 7}


def test_the_ledgers_counters_are_among_the_metrics(client: Web) -> None:
    text = client.get("/metrics").text

    for outcome in ("executed", "replayed", "conflict", "failed", "in_flight", "unknown"):
        assert f'semel_operations_total{{outcome="{outcome}"}} ' in text
    assert "semel_operation_seconds_count " in text
    assert 'semel_operation_seconds_bucket{le="+Inf"} ' in text
