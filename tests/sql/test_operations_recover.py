"""What became of an attempt whose COMMIT was not answered. SPEC C5."""

from typing import Any
from uuid import UUID

import pytest

from fix_world import NOW, Conn
from keyed import (
    DONE,
    asked,
    at,
    begin,
    close,
    envelope,
    fail,
    failed,
    put,
    recover,
    rows,
    state,
    stored,
    succeed,
    unchanged,
)
from semel.core.operations import operation_beat
from semel.db.execute import run
from semel.errors import BadRequest, TransactionUnfit


def lost(conn: Conn, *, times: int = 0, commit: bool = False, error: str | None = None) -> str:
    """An attempt after *times* failures, whose transaction committed or was rolled back."""
    failed(conn, times=times)
    conn.execute("begin")
    begun = begin(conn)
    if error is None:
        close(conn, begun)
    else:
        fail(conn, begun, error)
    conn.execute("commit" if commit else "rollback")
    assert begun.xid
    return begun.xid


@pytest.mark.parametrize("times", [0, 1, 3])
def test_what_was_committed_is_answered(conn: Conn, times: int) -> None:
    xid = lost(conn, times=times, commit=True)
    before = rows(conn)

    found = recover(conn, times + 1, xid)

    assert ("succeeded", times + 1, DONE) == (found.outcome, found.attempts, found.reply)
    assert [row[:-2] for row in before] == [row[:-2] for row in rows(conn)]


@pytest.mark.parametrize("times", [0, 1, 3])
def test_what_was_rolled_back_is_a_failure_and_counted_once(conn: Conn, times: int) -> None:
    xid = lost(conn, times=times)
    assert (("FAILED", times) if times else None) == state(conn)

    found = [recover(conn, times + 1, xid, now=at(5)) for _ in range(3)]

    assert ["recorded"] * 3 == [each.outcome for each in found]
    kept = stored(conn)
    assert kept
    assert ("FAILED", times + 1, "LOST", "connection lost", at(5), envelope()) == (
        *(kept["status"], kept["attempts"], kept["error_code"], kept["error"]),
        *(kept["completed_at"], kept["payload"]),
    )
    succeed(conn)
    assert ("SUCCEEDED", times + 2) == state(conn)


def test_a_failure_that_was_committed_keeps_its_own_error(conn: Conn) -> None:
    xid = lost(conn, times=1, commit=True, error="no funds")
    found = recover(conn, 2, xid)
    assert ("recorded", 2, "no funds") == (found.outcome, found.attempts, found.error)
    assert ("FAILED", 2) == state(conn)


def test_a_legacy_failure_is_adopted_by_its_recorder(conn: Conn) -> None:
    put(conn, status="FAILED", attempts=3, payload="{}")
    xid = lost(conn)
    assert "recorded" == recover(conn, 4, xid).outcome
    kept = stored(conn)
    assert kept
    assert (4, envelope()) == (kept["attempts"], kept["payload"])


def test_a_success_of_another_execution_is_never_overwritten(conn: Conn) -> None:
    xid = lost(conn)
    succeed(conn)
    found = recover(conn, 1, xid)
    assert ("succeeded", DONE) == (found.outcome, found.reply)
    assert ("SUCCEEDED", 1) == state(conn)


def test_a_success_whose_reply_is_not_kept_is_one(conn: Conn) -> None:
    conn.execute("begin")
    begun = begin(conn)
    close(conn, begun, gone=True)
    conn.execute("commit")
    found = recover(conn, 1, begun.xid)
    assert ("succeeded", None) == (found.outcome, found.reply)


def test_a_failure_of_another_execution_is_not_counted_again(conn: Conn) -> None:
    xid = lost(conn, times=1)
    failed(conn)
    with unchanged(conn):
        assert "other" == recover(conn, 2, xid).outcome
    assert ("FAILED", 2) == state(conn)


@pytest.mark.parametrize(
    "row",
    [
        {"status": "FAILED", "attempts": 0},
        {"status": "FAILED", "attempts": 2},
        {"status": "FAILED", "attempts": 3},
        {"status": "PENDING", "attempts": 2},
        {"status": "PROCESSING", "attempts": 1},
        {"status": "PROCESSING", "attempts": 2},
        {"status": "FAILED", "attempts": 1, "target": "ENGINE"},
        {"status": "FAILED", "attempts": 1, "event_type": "refund"},
        {"status": "FAILED", "attempts": 1, "actor_user_id": "bob"},
        {"status": "FAILED", "attempts": 1, "payload": '{"version":2,"digest":"sha256:0"}'},
        {"status": "PENDING", "attempts": 1, "payload": "{}"},
        {"status": "SUCCEEDED", "attempts": 1, "payload": "{}"},
        {"status": "SUCCEEDED", "attempts": 2, "event_type": "refund", "reply_status": 200},
    ],
)
@pytest.mark.parametrize("fate", ["aborted", None])
def test_what_is_not_its_own_is_left_alone(
    conn: Conn, row: dict[str, Any], fate: str | None
) -> None:
    xid = lost(conn) if fate else None
    put(conn, **row)
    with unchanged(conn):
        assert "other" == recover(conn, 2, xid).outcome


@pytest.mark.parametrize("status", ["FAILED", "PENDING"])
def test_the_attempt_before_its_own_is_moved_on(conn: Conn, status: str) -> None:
    xid = lost(conn)
    put(conn, status=status, attempts=1)
    assert "recorded" == recover(conn, 2, xid).outcome
    assert ("FAILED", 2) == state(conn)


def test_a_fate_that_cannot_be_asked_for_is_read_from_the_row(conn: Conn) -> None:
    assert "recorded" == recover(conn, 1, None).outcome
    assert ("FAILED", 1) == state(conn)
    succeed(conn)
    assert "succeeded" == recover(conn, 2, None).outcome


def test_a_transaction_of_another_server_came_to_nothing_here(conn: Conn) -> None:
    """After a failover to a standby that was behind."""
    assert "recorded" == recover(conn, 1, "999999999").outcome
    assert ("FAILED", 1) == state(conn)


def test_a_committed_attempt_without_a_row_is_not_failed(conn: Conn) -> None:
    xid = lost(conn, commit=True)
    conn.execute("delete from semel.operation")
    assert "other" == recover(conn, 1, xid).outcome
    assert state(conn) is None
    put(conn, status="FAILED", attempts=1)
    assert "other" == recover(conn, 2, xid).outcome
    assert ("FAILED", 1) == state(conn)


def test_a_recorded_execution_that_goes_on_is_in_flight(conn: Conn) -> None:
    xid = lost(conn)
    put(conn, status="PROCESSING", attempts=1, mode="recorded", holder=UUID(int=1))
    assert "other" == recover(conn, 1, xid).outcome
    run(conn, operation_beat("p", UUID(int=1), "web", now=NOW))
    assert "in_flight" == recover(conn, 1, xid).outcome
    assert ("PROCESSING", 1) == state(conn)


def test_a_failure_after_a_recorded_one_has_no_holder(conn: Conn) -> None:
    xid = lost(conn)
    put(conn, status="FAILED", attempts=1, mode="recorded", holder=UUID(int=1))
    assert "recorded" == recover(conn, 2, xid).outcome
    kept = stored(conn)
    assert kept
    assert ("atomic", None) == (kept["mode"], kept["holder"])


def test_it_looks_again_in_read_committed_only(conn: Conn) -> None:
    conn.execute("begin isolation level repeatable read")
    with pytest.raises(TransactionUnfit):
        recover(conn, 1, None)
    conn.execute("rollback")


def test_what_identifies_nothing_is_refused(conn: Conn) -> None:
    with pytest.raises(BadRequest):
        recover(conn, 1, None, asked(key=""))
    assert [] == rows(conn)


def test_lock_timeout_is_what_it_was(conn: Conn) -> None:
    conn.execute("set lock_timeout = '1234ms'")
    with conn.transaction():
        recover(conn, 1, None)
        assert [("1234ms",)] == conn.execute("show lock_timeout").fetchall()
