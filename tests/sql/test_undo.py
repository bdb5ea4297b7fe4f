"""Sagas: what a failed run promised to undo is undone once, in reverse, after its handler stopped."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from durable import (
    asking,
    begin,
    cancel,
    claim,
    claim_all,
    complete,
    due,
    everything,
    fail,
    hear,
    intent,
    park,
    record,
    result,
    saga,
    say,
    undo_of,
)
from fix_world import DEAD, NOW, Conn, one, row, second, status
from semel.core import recovery, transitions, undo
from semel.core.undo import Undo
from semel.db.execute import run
from semel.model import Claim

MOMENT = 0.000001


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


# -- when there is one -----------------------------------------------------------------------


def test_a_failed_run_with_intents_is_undone_by_a_linked_run_at_once(conn: Conn) -> None:
    held = saga(conn, value={"n": 1})

    assert "failed" == fail(conn, held)

    assert "started" == row(conn, held.run_id)["undo"]
    again = claim(conn)
    assert (undo_of(conn, held.run_id), "undo", held.run_id, 9, 10) == (
        again.run_id,
        again.kind,
        again.parent,
        again.priority,
        again.max_attempts,
    )
    told = {"run_id": str(held.run_id), "status": "FAILED", "code": "E-RUN-006"}
    assert told == json.loads(again.text)
    assert 1 == undos(conn)


def test_a_run_without_intents_or_without_fault_is_not_undone(conn: Conn) -> None:
    fine, plain = saga(conn), begin(conn)
    record(conn, plain, result("s"))

    complete(conn, fine)
    fail(conn, plain)
    cancel(conn, begin(conn).run_id)

    assert [] == claim_all(conn)
    assert 0 == undos(conn)


def test_a_failure_that_is_tried_again_undoes_nothing_yet(conn: Conn) -> None:
    held = saga(conn, max_attempts=2)
    assert "retry" == fail(conn, held, retryable=True)
    assert 0 == undos(conn)

    again = claim(conn)
    assert "failed" == fail(conn, again, retryable=True)
    assert 1 == undos(conn)


def test_a_rolled_back_intent_is_none(conn: Conn) -> None:
    held = begin(conn)
    with conn.transaction(force_rollback=True):
        record(conn, held, intent("s"))
    fail(conn, held)
    assert 0 == undos(conn)


def test_the_id_of_a_compensation_is_its_runs_and_as_old(conn: Conn) -> None:
    for _ in range(50):
        run_id = one(conn, "select semel.uuid_at(clock_timestamp())")
        found = undo_of(conn, run_id)
        assert found == undo_of(conn, run_id) != run_id
        assert (run_id.bytes[:6], 7) == (found.bytes[:6], found.version)
        assert "specified in RFC 4122" == found.variant


# -- R5: cancelled in every state ------------------------------------------------------------


def as_pending(conn: Conn) -> tuple[Claim, float]:
    held = saga(conn)
    fail(conn, held, retryable=True)
    return held, 0


def as_running(conn: Conn) -> tuple[Claim, float]:
    return saga(conn), DEAD.total_seconds()


def as_waiting_tool(conn: Conn) -> tuple[Claim, float]:
    held = saga(conn)
    park(conn, held, hear())
    return held, 0


def as_waiting_approval(conn: Conn) -> tuple[Claim, float]:
    held = saga(conn)
    park(conn, held, asking())
    return held, 0


def as_resumed(conn: Conn) -> tuple[Claim, float]:
    held, _ = as_waiting_tool(conn)
    say(conn, held.run_id)
    return held, 0


def as_running_again(conn: Conn) -> tuple[Claim, float]:
    as_resumed(conn)
    return claim(conn), DEAD.total_seconds()


@pytest.mark.parametrize(
    "state",
    [
        as_pending,
        as_running,
        as_waiting_tool,
        as_waiting_approval,
        as_resumed,
        as_running_again,
    ],
    ids=lambda state: state.__name__,
)
def test_r5_a_cancel_in_every_state_makes_one_compensation(conn: Conn, state: Any) -> None:
    held, wait = state(conn)

    assert ["won", "already"] == [cancel(conn, held.run_id)[0] for _ in range(2)]

    made = row(conn, undo_of(conn, held.run_id))
    assert ("PENDING", "CANCELLED", "E-RUN-005") == (
        made["status"],
        made["input"]["status"],
        made["input"]["code"],
    )
    assert 1 == undos(conn)
    if wait:
        assert [] == claim_all(conn)
        assert [0, 1] == [due(conn, wait - MOMENT), due(conn, wait)]
    assert made["run_id"] == claim(conn, at=wait).run_id
    assert "lost" == complete(conn, held), "a late success is refused"
    assert [("lost", None)] == record(conn, held, result("s2"))


def test_a_compensation_is_ready_as_soon_as_the_handler_has_stopped(conn: Conn) -> None:
    held = saga(conn)
    cancel(conn, held.run_id)
    before = everything(conn)

    assert [] == stopped(conn, "w2", held.run_id), "not that worker's to say"
    assert [] == stopped(conn, "w1", uuid4()) == stopped(conn, "w1")
    assert before == everything(conn)
    assert [undo_of(conn, held.run_id)] == stopped(conn, "w1", uuid4(), held.run_id)
    assert [] == stopped(conn, "w1", held.run_id)
    assert undo_of(conn, held.run_id) == claim(conn).run_id


def test_who_says_so_late_disturbs_no_compensation_that_waits_for_its_own_retry(
    conn: Conn,
) -> None:
    held = saga(conn)
    cancel(conn, held.run_id)
    due(conn, 30)
    again = claim(conn, at=30)
    conn.execute(
        "select * from semel.run_fail('p', 'w1', %s, %s, 'E-RUN-006', 'boom', '1 hour', true, %s)",
        (again.run_id, again.fence, second(30)),
    )
    assert [] == stopped(conn, "w1", held.run_id, at=31)


def test_a_compensation_that_waits_for_the_handler_is_not_hurried(conn: Conn) -> None:
    held = saga(conn)
    cancel(conn, held.run_id)
    assert "refused" == retry(conn, undo_of(conn, held.run_id))[0]
    assert [] == claim_all(conn)


def test_a_deadline_undoes_after_the_handler_has_stopped_too(conn: Conn) -> None:
    working, waiting = saga(conn), saga(conn)
    park(conn, waiting, hear())
    conn.execute("update semel.run set deadline_at = %s", (NOW,))
    assert 2 == len(run(conn, transitions.run_overdue("p", now=NOW)))

    assert undo_of(conn, waiting.run_id) == claim(conn).run_id
    assert [undo_of(conn, working.run_id)] == stopped(conn, "w1", working.run_id)


def test_a_lost_worker_at_the_last_attempt_is_undone(conn: Conn) -> None:
    held = saga(conn, max_attempts=1)
    run(conn, recovery.run_reap("p", dead_after=DEAD, trust=True, now=second(31)))
    assert "FAILED" == status(conn, held.run_id)
    assert undo_of(conn, held.run_id) == claim(conn, "w2", at=31).run_id


def test_a_completed_run_is_not_cancelled_and_not_undone(conn: Conn) -> None:
    held = saga(conn)
    complete(conn, held)
    assert ("refused", "COMPLETED") == cancel(conn, held.run_id)
    assert ("refused", "COMPLETED") == compensate(conn, held.run_id)[:2]
    assert 0 == undos(conn)


# -- what is undone --------------------------------------------------------------------------


def test_a_plan_is_the_reverse_of_the_intents_whatever_the_clock_did(conn: Conn) -> None:
    held = begin(conn)
    for n, at in enumerate((0.0, -3600.0, 100.0, -7200.0)):
        record(conn, held, intent(f"s{n}", "u", n), result(f"s{n}", n), at=at)
    fail(conn, held)

    assert ["s3", "s2", "s1", "s0"] == [one_.key for one_ in plan(conn, held.run_id)]


def test_a_plan_tells_what_each_step_answered_and_none_where_it_may_have_taken_effect(
    conn: Conn,
) -> None:
    held = saga(conn)
    record(conn, held, intent("s3"), result("s3", None))
    fail(conn, held)

    assert [
        Undo(key="s3", name="u", args=[], kwargs={}, result=None, finished=True, done=False),
        Undo(
            key="s2",
            name="unsend",
            args=[2],
            kwargs={},
            result=None,
            finished=False,
            done=False,
        ),
        Undo(
            key="s1",
            name="unmake",
            args=[1],
            kwargs={},
            result="made",
            finished=True,
            done=False,
        ),
    ] == plan(conn, held.run_id)


def test_an_intent_of_several_attempts_is_undone_once_in_the_place_of_its_first(
    conn: Conn,
) -> None:
    held = begin(conn, max_attempts=2)
    record(conn, held, intent("a"), intent("b"))
    fail(conn, held, retryable=True)
    again = claim(conn)
    record(conn, again, intent("a"), result("a"), intent("c"))
    fail(conn, again, retryable=True)

    assert ["c", "b", "a"] == [one_.key for one_ in plan(conn, held.run_id)]


def test_a_run_that_promised_nothing_has_an_empty_plan(conn: Conn) -> None:
    held = begin(conn)
    record(conn, held, result("s"))
    assert [] == plan(conn, held.run_id) == plan(conn, uuid4())


def test_r5_a_compensation_goes_on_after_a_crash_and_undoes_each_step_once(conn: Conn) -> None:
    held = saga(conn)
    fail(conn, held)
    first = claim(conn, "w2")
    record(conn, first, result("s2", "unsent"))
    run(conn, recovery.worker_lost("p", "w2", now=NOW))

    again = claim(conn, "w3")

    assert [("s2", True), ("s1", False)] == [(o.key, o.done) for o in plan(conn, held.run_id)]
    assert [("lost", None)] == record(conn, first, result("s1"))
    assert [("already", '"unsent"')] == record(conn, again, result("s2"))
    record(conn, again, result("s1"))
    assert {True} == {o.done for o in plan(conn, held.run_id)}
    assert "won" == complete(conn, again)
