"""Recorded operations: claimed and committed before the work, by a holder that beats."""

from typing import Any
from uuid import UUID

import pytest

from fix_world import NOW, Conn, one
from keyed import DONE, asked, at, begin, fail, put, rows, state, stored
from semel.core.operations import (
    Begun,
    Reply,
    operation_beat,
    operation_finish,
    operation_release,
)
from semel.db.execute import run
from semel.errors import BadRequest, TransactionEnded

HOLDER = UUID(int=1)
OTHER = UUID(int=2)


def claim(conn: Conn, key: str = "k", **more: Any) -> Begun:
    begun = begin(conn, asked(key), mode="recorded", holder=HOLDER, **more)
    assert "claimed" == begun.outcome
    return begun


def finish(conn: Conn, begun: Begun, holder: UUID | None = HOLDER, **more: Any) -> None:
    assert begun.attempts
    run(
        conn,
        operation_finish("p", "k", begun.attempts, None, DONE, holder=holder, now=NOW, **more),
    )


def beat(conn: Conn, seconds: float, name: str = "web-1", holder: UUID = HOLDER) -> None:
    run(conn, operation_beat("p", holder, name, now=at(seconds)))


def beat_at(conn: Conn) -> Any:
    return one(conn, "select beat_at from semel.operation_holder where holder_id = %s", HOLDER)


@pytest.mark.parametrize(("silent", "outcome"), [(29.999, "in_flight"), (30, "unknown")])
def test_it_is_in_flight_while_its_holder_beats(
    conn: Conn, silent: float, outcome: str
) -> None:
    claim(conn)
    assert "in_flight" == begin(conn, now=at(5)).outcome
    beat(conn, 20)

    before = rows(conn)
    assert outcome == begin(conn, now=at(20 + silent)).outcome
    assert "mismatch" == begin(conn, asked(value=2), now=at(20 + silent)).outcome
    assert before == rows(conn)


def test_another_holders_beat_says_nothing_of_it(conn: Conn) -> None:
    claim(conn)
    beat(conn, 60, holder=OTHER)
    run(conn, operation_beat("q", HOLDER, "x", now=at(60)))
    assert "unknown" == begin(conn, now=at(60)).outcome


def test_an_atomic_claim_has_no_holder_to_beat_for_it(conn: Conn) -> None:
    beat(conn, 0)
    put(conn, status="PROCESSING", attempts=1, holder=HOLDER)
    assert "unknown" == begin(conn).outcome


def test_its_holder_finishes_it_in_another_transaction(conn: Conn) -> None:
    begun = claim(conn)

    finish(conn, begun)

    assert ("replay", DONE) == ((told := begin(conn)).outcome, told.reply)
    finish(conn, begun)  # whose answer was lost
    assert ("SUCCEEDED", 1) == state(conn)


def test_its_holder_fails_it_and_it_is_claimed_again(conn: Conn) -> None:
    begun = claim(conn)
    assert "lost" == fail(conn, begun, holder=OTHER)
    assert "lost" == fail(conn, begun)  # as if it were atomic
    assert "won" == fail(conn, begun, holder=HOLDER)
    assert ("FAILED", 1) == state(conn)
    assert 2 == claim(conn).attempts


def test_nobody_else_finishes_it(conn: Conn) -> None:
    begun = claim(conn)
    later = Begun(outcome="claimed", attempts=2)
    for other, holder in ((begun, OTHER), (begun, None), (later, HOLDER)):
        with pytest.raises(TransactionEnded):
            finish(conn, other, holder)
    assert ("PROCESSING", 1) == state(conn)
    with pytest.raises(TransactionEnded):
        run(conn, operation_finish("p", "k", 1, begun.xid, DONE))


def test_a_finished_one_is_finished_again_by_its_holder_alone(conn: Conn) -> None:
    begun = claim(conn)
    finish(conn, begun)
    later = Begun(outcome="claimed", attempts=2)
    for other, holder in ((begun, OTHER), (later, HOLDER)):
        with pytest.raises(TransactionEnded):
            finish(conn, other, holder)
    put(conn, "failed", status="FAILED", attempts=1, mode="recorded", holder=HOLDER)
    with pytest.raises(TransactionEnded):
        run(conn, operation_finish("p", "failed", 1, None, DONE, holder=HOLDER))
    put(conn, "atomic", status="SUCCEEDED", attempts=1, holder=HOLDER)
    with pytest.raises(TransactionEnded):
        run(conn, operation_finish("p", "atomic", 1, None, DONE, holder=HOLDER))


def test_an_atomic_claim_is_not_finished_by_a_holder(conn: Conn) -> None:
    with conn.transaction():
        begun = begin(conn)
        with pytest.raises(TransactionEnded), conn.transaction():
            finish(conn, begun)
        assert "lost" == fail(conn, begun, holder=HOLDER)


def test_an_earlier_attempt_of_its_holder_ends_nothing(conn: Conn) -> None:
    first = claim(conn)
    fail(conn, first, holder=HOLDER)
    assert 2 == claim(conn).attempts
    assert "lost" == fail(conn, first, holder=HOLDER)
    with pytest.raises(TransactionEnded):
        finish(conn, first)
    assert ("PROCESSING", 2) == state(conn)


def test_its_own_transaction_is_not_its_holder(conn: Conn) -> None:
    with conn.transaction():
        begun = claim(conn)
        with pytest.raises(TransactionEnded), conn.transaction():
            run(conn, operation_finish("p", "k", 1, begun.xid, DONE))
        assert "lost" == fail(conn, begun)
        finish(conn, begun)


def test_a_claim_is_a_beat(conn: Conn) -> None:
    claim(conn)
    assert NOW == beat_at(conn)
    beat(conn, 3, name="web-1")
    assert "web-1" == one(conn, "select name from semel.operation_holder")
    claim(conn, "k2", now=at(20))
    assert at(20) == beat_at(conn)
    assert "web-1" == one(conn, "select name from semel.operation_holder")


def test_beats_are_written_every_five_seconds_at_most_and_never_go_back(conn: Conn) -> None:
    seen = []
    for seconds in (0, 5, 5.001, 10, 12, 3):
        beat(conn, seconds)
        seen.append((beat_at(conn) - NOW).total_seconds())
    assert [0, 0, 5.001, 5.001, 12, 12] == seen


def test_a_holder_is_shown_beside_what_it_holds(conn: Conn) -> None:
    beat(conn, 0)
    claim(conn)
    put(conn, "atomic")
    found = conn.execute(
        "select request_id, mode, holder_name, holder_beat_at from semel.operations order by 1"
    ).fetchall()
    assert [("atomic", "atomic", None, None), ("k", "recorded", "web-1", NOW)] == found


def test_a_later_attempt_may_be_atomic(conn: Conn) -> None:
    fail(conn, claim(conn), holder=HOLDER)
    with conn.transaction():
        begin(conn)
        kept = stored(conn)
        assert kept
        assert ("atomic", None) == (kept["mode"], kept["holder"])


def test_an_empty_reply_is_one(conn: Conn) -> None:
    begun = claim(conn)
    nothing = Reply(status=204, headers=[], body=b"")
    run(conn, operation_finish("p", "k", begun.attempts or 0, None, nothing, holder=HOLDER))
    assert nothing == begin(conn).reply


def release(conn: Conn, begun: Begun, outcome: Any, holder: UUID = HOLDER) -> str:
    assert begun.attempts
    return run(conn, operation_release("p", "k", begun.attempts, holder, outcome, now=NOW))


def test_a_claim_handed_back_untouched_never_happened(conn: Conn) -> None:
    first = claim(conn)
    fail(conn, first, holder=HOLDER)
    again = claim(conn)
    assert "lost" == release(conn, first, "untouched")
    assert "lost" == release(conn, again, "untouched", OTHER)
    assert "won" == release(conn, again, "untouched")
    assert ("PENDING", 1) == state(conn)
    kept = stored(conn)
    assert kept
    assert ("atomic", None) == (kept["mode"], kept["holder"])
    assert "lost" == release(conn, again, "untouched")
    with pytest.raises(TransactionEnded):
        finish(conn, again)
    assert ("claimed", 2) == ((told := begin(conn)).outcome, told.attempts)


def test_a_claim_handed_back_as_unknown_is_for_a_person_while_its_holder_beats(
    conn: Conn,
) -> None:
    begun = claim(conn)
    assert "won" == release(conn, begun, "unknown")
    assert ("PROCESSING", 1) == state(conn)
    assert "unknown" == begin(conn).outcome
    with pytest.raises(TransactionEnded):
        finish(conn, begun)


def test_a_claim_is_handed_back_for_a_known_reason(conn: Conn) -> None:
    begun = claim(conn)
    for odd in ("done", "", None):
        with pytest.raises(BadRequest):
            release(conn, begun, odd)
    assert ("PROCESSING", 1) == state(conn)


def test_only_a_recorded_claim_that_has_not_ended_is_handed_back(conn: Conn) -> None:
    begun = claim(conn)
    conn.execute("update semel.operation set mode = 'atomic'")
    assert "lost" == release(conn, begun, "untouched")
    conn.execute("update semel.operation set mode = 'recorded', status = 'FAILED'")
    assert "lost" == release(conn, begun, "untouched")
    assert ("FAILED", 1) == state(conn)
