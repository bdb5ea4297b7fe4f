"""Two requests under one key at the same moment: one executes, whatever becomes of it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from beside import Beside, blocked
from fix_world import Conn, one
from keyed import (
    DONE,
    LONG,
    asked,
    begin,
    close,
    fail,
    failed,
    nothing_written,
    recover,
    rows,
    state,
)
from modelling import TIMEOUT
from semel.core.operations import Begun, Identity
from semel.db.pool import connect

pytestmark = pytest.mark.timeout(TIMEOUT)

SHORT = timedelta(milliseconds=50)


@pytest.fixture
def other(dsn: str) -> Iterator[Conn]:
    with connect(dsn) as connection:
        yield connection


@contextmanager
def executing(conn: Conn, request: Identity | None = None) -> Iterator[Begun]:
    """A claim that is not committed yet; who enters says how it ends."""
    conn.execute("begin")
    begun = begin(conn, request)
    assert "claimed" == begun.outcome
    yield begun


def wait_and_execute(conn: Conn) -> Begun:
    with conn.transaction():
        begun = begin(conn, wait=LONG)
        if begun.outcome == "claimed":
            close(conn, begun)
    return begun


@pytest.mark.parametrize("before", [0, 3])
def test_who_waits_for_a_success_replays_it(conn: Conn, other: Conn, before: int) -> None:
    failed(conn, times=before)
    with executing(conn) as begun:
        waiting = blocked(conn, other, wait_and_execute)
        close(conn, begun)
        conn.execute("commit")
    told = waiting.said()
    assert ("replay", before + 1, DONE) == (told.outcome, told.attempts, told.reply)
    assert ("SUCCEEDED", before + 1) == state(conn)


@pytest.mark.parametrize("before", [0, 3])
def test_who_waits_for_a_failure_tries_again(conn: Conn, other: Conn, before: int) -> None:
    failed(conn, times=before)
    with executing(conn) as begun:
        waiting = blocked(conn, other, wait_and_execute)
        fail(conn, begun)
        conn.execute("commit")
    told = waiting.said()
    assert ("claimed", before + 2) == (told.outcome, told.attempts)
    assert ("SUCCEEDED", before + 2) == state(conn)


@pytest.mark.parametrize("before", [0, 3])
def test_who_waits_for_what_is_rolled_back_executes_it(
    conn: Conn, other: Conn, before: int
) -> None:
    failed(conn, times=before)
    with executing(conn):
        waiting = blocked(conn, other, wait_and_execute)
        conn.execute("rollback")
    told = waiting.said()
    assert ("claimed", before + 1) == (told.outcome, told.attempts)
    assert ("SUCCEEDED", before + 1) == state(conn)


@pytest.mark.parametrize("before", [0, 3])
def test_who_waits_with_another_input_conflicts_at_last(
    conn: Conn, other: Conn, before: int
) -> None:
    """Of a first execution nothing is to be seen before it commits; of a retry its row is."""
    failed(conn, times=before)

    def differ(on: Conn) -> str:
        return begin(on, asked(value=2), wait=LONG).outcome

    with executing(conn) as begun:
        if before:
            with nothing_written(other):
                assert "mismatch" == differ(other)
        else:
            waiting = blocked(conn, other, differ)
        close(conn, begun)
        conn.execute("commit")
    if not before:
        assert "mismatch" == waiting.said()
    assert ("SUCCEEDED", before + 1) == state(conn)


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("wait", [None, timedelta(0), SHORT, -SHORT])
def test_a_wait_is_bounded_and_leaves_nothing(
    conn: Conn, other: Conn, wait: timedelta | None, before: int
) -> None:
    failed(conn, times=before)
    other.execute("set lock_timeout = '7s'; set statement_timeout = '20s'")
    with executing(conn) as begun:
        seen = rows(other)
        with other.transaction():
            assert "in_flight" == begin(other, wait=wait).outcome
            assert "7s" == one(other, "show lock_timeout")
            assert seen == rows(other)
            other.execute("create table still_alive (id int)")
        close(conn, begun)
        conn.execute("commit")
    assert "replay" == begin(other, wait=wait).outcome


def test_ten_first_requests_are_one_execution(conn: Conn, dsn: str) -> None:
    together = threading.Barrier(10)

    def ask(on: Conn) -> str:
        together.wait(30)
        return str(wait_and_execute(on).outcome)

    conns = [connect(dsn) for _ in range(10)]
    said = [each.said() for each in [Beside(each, ask) for each in conns]]
    for each in conns:
        each.close()
    assert ["claimed", *["replay"] * 9] == sorted(said)
    assert ("SUCCEEDED", 1) == state(conn)


def test_two_that_join_and_cross_are_told_to_come_again(conn: Conn, other: Conn) -> None:
    """A deadlock is in flight for one of them, never an error of its transaction."""
    for each, key in ((conn, "a"), (other, "b")):
        each.execute("set deadlock_timeout = '10ms'")
        each.execute("begin")
        assert "claimed" == begin(each, asked(key)).outcome
    crossing = blocked(
        conn, other, lambda c: begin(c, asked("a"), join=True, wait=LONG).outcome
    )
    here = begin(conn, asked("b"), join=True, wait=timedelta(seconds=2)).outcome
    conn.execute("commit")
    there = crossing.said()
    other.execute("commit")
    assert "in_flight" in {here, there}
    assert {here, there} <= {"in_flight", "unknown"}


# -- looking again ---------------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize(
    ("end", "outcome"),
    [("success", "succeeded"), ("failure", "recorded"), ("rollback", "recorded")],
)
def test_a_recorder_waits_for_the_transaction_it_asks_about(
    conn: Conn, other: Conn, before: int, end: str, outcome: str
) -> None:
    """Its row, and its attempt, may not be visible yet."""
    failed(conn, times=before)
    with executing(conn) as begun:
        recorder = blocked(conn, other, lambda c: recover(c, before + 1, begun.xid, wait=LONG))
        if end == "rollback":
            conn.execute("rollback")
        else:
            close(conn, begun) if end == "success" else fail(conn, begun)
            conn.execute("commit")
    told = recorder.said()
    assert (outcome, before + 1) == (told.outcome, told.attempts)
    status = "SUCCEEDED" if end == "success" else "FAILED"
    assert (status, before + 1) == state(conn)
    error = {"success": None, "failure": "no funds", "rollback": "connection lost"}[end]
    assert error == one(conn, "select error from semel.operation")


@pytest.mark.parametrize("before", [0, 2])
def test_a_recorder_says_when_that_transaction_is_still_open(
    conn: Conn, other: Conn, before: int
) -> None:
    failed(conn, times=before)
    with executing(conn) as begun:
        with other.transaction():
            assert "in_progress" == recover(other, before + 1, begun.xid, wait=SHORT).outcome
            assert "0" == one(other, "show lock_timeout")
        close(conn, begun)
        conn.execute("commit")
    assert "succeeded" == recover(other, before + 1, begun.xid).outcome


@pytest.mark.parametrize("before", [0, 2])
def test_a_recorder_never_disturbs_another_execution(
    conn: Conn, other: Conn, before: int
) -> None:
    failed(conn, times=before)
    with executing(conn) as lost:
        conn.execute("rollback")
    with executing(conn) as begun:
        assert "in_flight" == recover(other, before + 1, lost.xid, wait=SHORT).outcome
        recorder = blocked(conn, other, lambda c: recover(c, before + 1, lost.xid, wait=LONG))
        close(conn, begun)
        conn.execute("commit")
    assert "succeeded" == recorder.said().outcome
    assert ("SUCCEEDED", before + 1) == state(conn)


def test_an_attempt_that_another_failed_meanwhile_is_not_counted(
    conn: Conn, other: Conn
) -> None:
    with executing(conn) as lost:
        conn.execute("rollback")
    with executing(conn) as begun:
        recorder = blocked(conn, other, lambda c: recover(c, 1, lost.xid, wait=LONG))
        fail(conn, begun)
        conn.execute("commit")
    assert "other" == recorder.said().outcome
    assert ("FAILED", 1) == state(conn)
