"""What an operator may do about an undoing: let it begin, let the run go on, try again, pass over."""

import json
from uuid import UUID, uuid4

import pytest

from durable import (
    begin,
    claim,
    claim_all,
    complete,
    due,
    everything,
    fail,
    journal,
    park,
    record,
    result,
    saga,
    sleep,
    undo_of,
)
from fix_world import NOW, Conn, one, row, second, start_run
from semel.core import transitions, undo
from semel.core.undo import Undo
from semel.db.execute import run
from semel.model import Claim


def plan(conn: Conn, run_id: UUID) -> list[Undo]:
    return run(conn, undo.undo_plan("p", run_id))


def compensate(conn: Conn, run_id: UUID) -> tuple[str, str | None, UUID]:
    return run(conn, undo.run_compensate("p", run_id, now=NOW))


def stopped(conn: Conn, worker: str, *run_ids: UUID, at: float = 1) -> list[UUID]:
    return run(conn, undo.run_stopped("p", worker, run_ids, now=second(at)))


def retry(conn: Conn, run_id: UUID, at: float = 0) -> tuple[str, str | None, UUID]:
    return run(conn, transitions.run_retry("p", run_id, now=second(at)))


def skip(conn: Conn, run_id: UUID, key: str) -> str:
    return run(conn, undo.undo_skip("p", run_id, key, reason="by hand", who="ann", now=NOW))[0]


def undos(conn: Conn) -> int:
    return int(one(conn, "select count(*) from semel.runs where kind = 'undo'"))


def held_for_an_operator(conn: Conn) -> Claim:
    held = saga(conn)
    record(conn, held, result("s2"))
    assert "failed" == fail(conn, held, "E-STEP-001")
    return held


def test_a_changed_code_holds_the_compensation_until_it_is_let_begin_once(conn: Conn) -> None:
    held = held_for_an_operator(conn)
    assert ("held", 0) == (row(conn, held.run_id)["undo"], undos(conn))
    assert 0 == due(conn, 10_000_000)

    made = undo_of(conn, held.run_id)
    assert [("won", "FAILED", made), ("already", "FAILED", made)] == [
        compensate(conn, held.run_id) for _ in range(2)
    ]
    assert ("started", 1) == (row(conn, held.run_id)["undo"], undos(conn))
    assert made == claim(conn).run_id


def test_a_changed_code_lets_the_same_run_go_on_instead(conn: Conn) -> None:
    held = held_for_an_operator(conn)

    assert ("won", "FAILED", held.run_id) == retry(conn, held.run_id)

    assert ("refused", "PENDING") == compensate(conn, held.run_id)[:2]
    again = claim(conn)
    assert ["s1", "s1", "s2", "s2"] == [entry[0] for entry in json.loads(again.journal or "")]
    assert ("won", 0) == (complete(conn, again), undos(conn))


def test_a_run_that_went_on_and_fails_again_is_undone_then(conn: Conn) -> None:
    held = held_for_an_operator(conn)
    retry(conn, held.run_id)
    fail(conn, claim(conn))
    assert [undo_of(conn, held.run_id)] == [c.run_id for c in claim_all(conn)]


@pytest.mark.parametrize("state", ["unknown", "live", "nothing to undo"])
def test_what_is_not_held_is_not_let_begin(conn: Conn, state: str) -> None:
    held = begin(conn)
    expected = {
        "unknown": ("unknown", None),
        "live": ("refused", "RUNNING"),
        "nothing to undo": ("refused", "FAILED"),
    }[state]
    run_id = uuid4() if state == "unknown" else held.run_id
    if state == "nothing to undo":
        fail(conn, held)
    before = everything(conn)

    assert (*expected, run_id) == compensate(conn, run_id)
    assert before == everything(conn)


def test_a_retry_of_a_run_that_is_undone_starts_a_new_one(conn: Conn) -> None:
    held = saga(conn, value="x" * 2000, priority=7, max_attempts=2)
    fail(conn, held)
    old = row(conn, held.run_id)

    outcome, was, fresh = retry(conn, held.run_id)

    assert ("new", "FAILED") == (outcome, was)
    made = row(conn, fresh)
    same = ("agent", "input", "priority", "max_attempts", "kind", "unique_key")
    assert {name: old[name] for name in same} == {name: made[name] for name in same}
    assert ("PENDING", 0, []) == (made["status"], made["attempt_count"], made["saga_steps"])
    assert old == row(conn, held.run_id)
    assert {fresh, undo_of(conn, held.run_id)} == {c.run_id for c in claim_all(conn)}


def test_a_new_run_into_a_held_unique_key_is_refused(conn: Conn) -> None:
    held = saga(conn, unique="u")
    fail(conn, held)
    start_run(conn, unique="u")

    assert "refused" == retry(conn, held.run_id)[0]
    assert 3 == one(conn, "select count(*) from semel.runs")


def test_a_retry_of_a_run_that_is_undone_asked_twice_starts_one(conn: Conn) -> None:
    held = saga(conn)
    fail(conn, held)

    first, again = (retry(conn, held.run_id) for _ in range(2))

    assert first == again
    assert 3 == one(conn, "select count(*) from semel.runs")


def test_a_compensation_that_fails_says_so_and_is_tried_again_by_an_operator(
    conn: Conn,
) -> None:
    held = saga(conn)
    fail(conn, held)
    first = claim(conn)
    record(conn, first, result("s2"))
    assert "failed" == fail(conn, first, "E-STEP-006")
    assert ("FAILED", "E-STEP-006", None) == tuple(
        row(conn, first.run_id)[name] for name in ("status", "failure_code", "undo")
    )

    assert ("won", "FAILED", first.run_id) == retry(conn, first.run_id)

    again = claim(conn)
    assert (first.run_id, "undo") == (again.run_id, again.kind)
    assert [("s2", True), ("s1", False)] == [(o.key, o.done) for o in plan(conn, held.run_id)]
    assert 1 == undos(conn)


@pytest.mark.parametrize("over", [False, True], ids=["at work", "over"])
def test_a_step_that_is_skipped_is_passed_over(conn: Conn, over: bool) -> None:
    held = saga(conn)
    fail(conn, held)
    first = claim(conn)
    if over:
        fail(conn, first, "E-STEP-006")

    assert ["won", "already"] == [skip(conn, held.run_id, "s1") for _ in range(2)]

    assert [("s2", False), ("s1", True)] == [(o.key, o.done) for o in plan(conn, held.run_id)]
    told = {"skipped": True, "reason": "by hand", "by": "ann"}
    assert [("s1", "result", told)] == journal(conn, first.run_id)
    if over:
        retry(conn, first.run_id)
        first = claim(conn)
    assert "already" == record(conn, first, result("s1"))[0][0]
    assert [("won", None)] == record(conn, first, result("s2"))


def test_what_was_undone_is_not_skipped(conn: Conn) -> None:
    held = saga(conn)
    fail(conn, held)
    record(conn, claim(conn), result("s2", "unsent"))
    assert "already" == skip(conn, held.run_id, "s2")
    assert "unsent" == journal(conn, undo_of(conn, held.run_id))[0][2]


def test_what_promised_no_undo_or_is_not_being_undone_is_not_skipped(conn: Conn) -> None:
    held, live = saga(conn), saga(conn)
    record(conn, held, result("plain"))
    fail(conn, held)
    before = everything(conn)

    assert ["refused", "refused"] == [skip(conn, held.run_id, k) for k in ("plain", "none")]
    assert ["unknown", "unknown"] == [skip(conn, i, "s1") for i in (live.run_id, uuid4())]
    assert before == everything(conn)


def test_a_compensation_may_wait_itself(conn: Conn) -> None:
    held = saga(conn)
    fail(conn, held)
    first = claim(conn)
    park(conn, first, sleep(due=10))
    due(conn, 10)
    again = claim(conn, at=10)
    assert (first.run_id, "undo", 1) == (again.run_id, again.kind, again.attempt)
