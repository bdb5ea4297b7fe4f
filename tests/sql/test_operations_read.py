"""The newest operations are found in order, whatever their age, and a key finds all of its own."""

from datetime import timedelta
from typing import Any

from fix_world import Conn, one
from seed_ledger import INPUT, envelope
from semel.core.ledger_reads import list_operations, operation_of_key
from semel.core.operations import Identity, base_id, operation_begin
from semel.db.execute import run

MINUTE = timedelta(minutes=1)
BASE = base_id("p", "alice", "k")


def put(
    conn: Conn, request: str, ago: timedelta = timedelta(0), operation: str = "pay"
) -> None:
    identity = Identity(
        project="p",
        request_id=request,
        event_type=operation,
        actor="alice",
        envelopes=[envelope(INPUT)],
    )
    now = one(conn, "select clock_timestamp()") - ago
    assert run(conn, operation_begin(identity, now=now)).outcome == "claimed"


def newest(conn: Conn, **more: Any) -> list[Any]:
    return [each["request_id"] for each in run(conn, list_operations("p", **more))]


def test_pages_hold_each_operation_once_however_far_apart_they_are(conn: Conn) -> None:
    ages = [0, 1, 1, 2, 12, 60, 61, 5_000, 80_000, 2_000_000, 20_000_000]
    for n, age in enumerate(ages):
        put(conn, f"r{n:02}", age * MINUTE)

    expected = [f"r{n:02}" for n in range(len(ages))]
    assert sorted(newest(conn)) == expected
    pages: list[Any] = []
    while page := newest(conn, limit=2, before=pages[-1] if pages else None):
        pages += page
    assert pages == newest(conn)


def test_of_one_moment_the_id_is_the_order(conn: Conn) -> None:
    for request in ("a", "c", "b"):
        put(conn, request)
    conn.execute("update semel.operation set created_at = '2026-01-01'")

    assert newest(conn) == ["c", "b", "a"]
    assert newest(conn, before="b") == ["a"]


def test_what_is_filtered_is_looked_for_to_the_beginning(conn: Conn) -> None:
    put(conn, "old", 9_000_000 * MINUTE, operation="refund")
    put(conn, "new")
    conn.execute("update semel.operation set status = 'FAILED' where request_id = 'old'")

    assert newest(conn, status="FAILED", limit=1) == ["old"]
    assert newest(conn, operation="refund", limit=1) == ["old"]
    assert newest(conn, operation="refund", status="SUCCEEDED") == []


def test_a_cursor_that_is_gone_ends_the_list(conn: Conn) -> None:
    put(conn, "a")

    assert newest(conn, before="none") == []


def test_a_key_finds_its_operation_and_those_of_its_paths(conn: Conn) -> None:
    for request in (BASE, f"{BASE}:pay", f"{BASE}:pay:batch:1", f"{BASE}0", BASE[:-1], "http:"):
        put(conn, request)

    assert run(conn, operation_of_key("p", BASE)) == [
        BASE,
        f"{BASE}:pay",
        f"{BASE}:pay:batch:1",
    ]
    assert run(conn, operation_of_key("q", BASE)) == []
