"""Waits: a parked run holds nobody, comes back once, and is told what it waited for."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from durable import (
    ANYWHERE,
    asked,
    asking,
    begin,
    cancel,
    claim,
    claim_all,
    complete,
    decide,
    due,
    everything,
    fail,
    hear,
    journal,
    park,
    record,
    result,
    retry,
    say,
    sleep,
)
from fix_world import DEAD, LEASE, NOW, Conn, one, row, second, start_run, status
from semel.core import claims, recovery, runs, transitions, workers
from semel.core.waits import Wait, run_park
from semel.db.execute import run
from semel.errors import BadRequest
from semel.model import Claim

DAY = 86_400.0
MOMENT = 0.000001


def test_a_parked_run_holds_no_worker_and_no_lease(conn: Conn) -> None:
    held = begin(conn)

    assert [("nap", "parked", None)] == park(conn, held, sleep(due=60), at=1)

    parked = row(conn, held.run_id)
    assert ("WAITING_TOOL", None, None, second(61)) == (
        parked["status"],
        parked["worker_id"],
        parked["lease_until"],
        parked["due_at"],
    )
    assert parked["fence"] > held.fence
    assert [("parked", "w1", second(1))] == conn.execute(
        "select outcome, worker_id, ended_at from semel.attempts where run_id = %s",
        (held.run_id,),
    ).fetchall()
    assert [] == claim_all(conn)
    assert [(held.run_id, held.fence)] == run(
        conn, workers.run_beat("p", "w1", [(held.run_id, held.fence)], lease=LEASE)
    )


def test_a_sleep_is_over_at_its_time_and_not_before(conn: Conn) -> None:
    held = begin(conn)
    park(conn, held, sleep(due=60))

    assert [0, "WAITING_TOOL"] == [due(conn, 60 - MOMENT), status(conn, held.run_id)]
    assert [1, "RESUMED"] == [due(conn, 60), status(conn, held.run_id)]
    assert [("nap", "result", None)] == journal(conn, held.run_id)
    assert [0, 0] == [due(conn, 60), one(conn, "select count(*) from semel.waits")]


def test_a_resumed_run_goes_ahead_and_its_claim_is_no_new_attempt(conn: Conn) -> None:
    held = begin(conn, max_attempts=1, priority=0)
    park(conn, held, sleep(due=1))
    first = start_run(conn, priority=9)
    due(conn, 1)

    again, fresh = claim_all(conn, at=1)

    assert (held.run_id, first) == (again.run_id, fresh.run_id)
    assert (1, held.attempt) == (again.attempt, held.attempt)
    assert again.fence > held.fence
    assert [["nap", "result", "sleep", None, 1, None, None]] == json.loads(again.journal or "")


def test_a_wait_whose_time_is_over_already_does_not_park(conn: Conn) -> None:
    held = begin(conn)

    assert [("nap", "ready", "null")] == park(conn, held, sleep(due=0))
    assert [("s", "ready", None)] == park(conn, held, retry(due=-1))
    assert "RUNNING" == status(conn, held.run_id)
    assert "won" == complete(conn, held)


def test_a_retry_leaves_no_answer_so_that_its_step_is_tried_again(conn: Conn) -> None:
    held = begin(conn)
    for n in range(2):
        park(conn, held, retry("s", due=10), at=n * 10)
        assert 1 == due(conn, (n + 1) * 10)
        held = claim(conn, at=(n + 1) * 10)
        assert [] == journal(conn, held.run_id)
    record(conn, held, result("s"))
    assert "won" == complete(conn, held)


@pytest.mark.parametrize("kind", ["signal", "child"])
def test_a_wait_that_nobody_answers_is_told_so_when_its_time_is_over(
    conn: Conn, kind: Any
) -> None:
    held = begin(conn)
    other = start_run(conn, "other")
    wait = Wait(key="x", kind=kind, name="x", child=other, due=timedelta(seconds=30))
    park(conn, held, wait)

    assert [0, 1] == [due(conn, 30 - MOMENT), due(conn, 30)]
    assert [("x", "result", {"timed_out": True})] == journal(conn, held.run_id)


def test_a_child_of_whom_nothing_is_kept_has_gone(conn: Conn) -> None:
    held = begin(conn)
    stranger = one(conn, "select gen_random_uuid()")

    assert [("x", "ready")] == [
        told[:2] for told in park(conn, held, Wait(key="x", kind="child", child=stranger))
    ]
    [(_, _, answer)] = journal(conn, held.run_id)
    assert ("GONE", "E-RUN-001") == (answer["status"], answer["code"])


def test_a_wait_that_the_handler_gave_up_goes_and_its_question_is_void(conn: Conn) -> None:
    held = begin(conn)
    park(conn, held, hear("stop", "stop"), asking("ok"))
    assert "won" == say(conn, held.run_id, "stop")
    held = claim(conn)

    given_up = Wait(key="ok", kind="approval", dropped=True)
    [told] = park(conn, held, given_up, hear("go"))

    assert ("go", "parked") == told[:2]
    assert "WAITING_TOOL" == status(conn, held.run_id)
    assert ["go"] == [k for [k] in conn.execute("select step_key from semel.waits")]
    assert "VOID" == one(conn, "select state from semel.approvals")


def test_a_wait_keeps_the_place_of_its_step(conn: Conn) -> None:
    held = begin(conn)
    park(conn, held, Wait(key="nap", kind="sleep", place=3, due=timedelta(seconds=1)))
    assert 1 == due(conn, 1)
    assert 3 == one(conn, "select place from semel.step where step_key = 'nap'")


def test_a_wait_without_an_end_waits_for_its_answer_alone(conn: Conn) -> None:
    held = begin(conn)
    park(conn, held, hear())

    assert 0 == due(conn, 10_000 * DAY)
    assert ("WAITING_TOOL", None) == (
        status(conn, held.run_id),
        row(conn, held.run_id)["due_at"],
    )


# -- several at once -------------------------------------------------------------------------


def test_one_wait_that_is_ready_leaves_the_other_pending_and_the_run_at_work(
    conn: Conn,
) -> None:
    held = begin(conn)
    say(conn, held.run_id, "go", 7)

    answers = park(conn, held, sleep(due=60), hear())

    assert [("nap", "pending", None), ("go", "ready")] == [answers[0], answers[1][:2]]
    assert 7 == json.loads(answers[1][2] or "")["content"]
    assert "RUNNING" == status(conn, held.run_id)
    assert 0 == due(conn, 60), "a run at work is not resumed"
    assert [("nap", "ready", "null")] == park(conn, held, sleep(due=60), at=60)


def test_the_first_of_two_waits_resumes_and_the_other_keeps_its_time(conn: Conn) -> None:
    held = begin(conn)
    both = [sleep("short", due=10), sleep("long", due=60)]
    assert ["parked", "parked"] == [o for _, o, _ in park(conn, held, *both)]
    assert second(10) == row(conn, held.run_id)["due_at"]

    assert 1 == due(conn, 10)
    again = claim(conn, at=10)
    assert [("long", "parked", None)] == park(conn, again, both[1], at=40)

    assert second(60) == row(conn, held.run_id)["due_at"]
    assert [0, 1] == [due(conn, 60 - MOMENT), due(conn, 60)]


def test_two_waits_that_are_over_at_once_resume_once(conn: Conn) -> None:
    held = begin(conn)
    park(conn, held, sleep("a", due=10), sleep("b", due=20), retry("c", due=5))
    fence = row(conn, held.run_id)["fence"]

    assert [1, 0] == [due(conn, 30), due(conn, 30)]

    assert fence + 1 == row(conn, held.run_id)["fence"]
    assert ["a", "b"] == [key for key, _, _ in journal(conn, held.run_id)]


def test_what_was_answered_while_the_run_was_back_for_another_is_not_asked_again(
    conn: Conn,
) -> None:
    """A decision, a child's end or a signal may come while another wait's answer is at work."""
    held = begin(conn)
    question = asking(notify=("bob",))
    park(conn, held, question, hear())
    say(conn, held.run_id)
    again = claim(conn)
    assert "won" == decide(conn, asked(question)).outcome
    before = everything(conn)

    [(key, outcome, content)] = park(conn, again, asking(notify=("bob",)))

    assert ("ok", "ready", "approve") == (key, outcome, json.loads(content or "")["decision"])
    assert before == everything(conn), "no second question, no second notification"


def test_a_run_waits_for_approval_as_long_as_one_of_its_waits_is_one(conn: Conn) -> None:
    held = begin(conn)
    question = asking()
    park(conn, held, sleep(due=10), question)
    assert "WAITING_APPROVAL" == status(conn, held.run_id)

    assert 1 == due(conn, 10)
    again = claim(conn, at=10)
    assert [("ok", "parked", None)] == park(conn, again, question, at=10)
    assert "WAITING_APPROVAL" == status(conn, held.run_id)


def test_a_wait_outlives_an_attempt_that_fails(conn: Conn) -> None:
    held = begin(conn)
    park(conn, held, sleep("a", due=10), sleep("b", due=60))
    due(conn, 10)
    again = claim(conn, at=10)
    assert "retry" == fail(conn, again, retryable=True, at=20)
    third = claim(conn, at=20)

    assert [("b", "parked", None)] == park(conn, third, sleep("b", due=60), at=20)
    assert second(60) == row(conn, held.run_id)["due_at"]


# -- parked runs are left alone --------------------------------------------------------------


@pytest.mark.parametrize("wait", [sleep(due=DAY), hear(), asking(ttl=DAY)])
def test_acceptance_4_a_parked_run_is_never_reaped_and_needs_no_beat(
    conn: Conn, wait: Wait
) -> None:
    held = begin(conn)
    park(conn, held, wait)
    before = everything(conn)

    for at in (31, 301, 3600, DAY - 1):
        for trust in (True, False):
            swept = recovery.run_reap("p", dead_after=DEAD, trust=trust, now=second(at))
            assert set() == {lost.run_id for lost in run(conn, swept)} - {None}
    assert [] == run(conn, recovery.worker_lost("p", "w1", now=second(DAY - 1)))
    run(conn, workers.worker_stop("p", "w1"))
    assert before == everything(conn)


def test_a_parked_run_takes_no_slot_of_a_limit(conn: Conn) -> None:
    limited = [("a", 3, 1, "async")]
    run(conn, workers.worker_register("p", "w", host="h", pid=1, slots=1, agents=limited))
    held = begin(conn)
    start_run(conn)
    assert [] == claim_all(conn)

    park(conn, held, hear())

    assert 1 == len(claim_all(conn))


def test_due_looks_after_the_agent_that_it_is_asked_for(conn: Conn) -> None:
    for agent in ("a", "b"):
        park(conn, begin(conn, agent=agent), sleep(due=10))

    assert 1 == run(conn, claims.run_due("p", "b", now=second(10)))
    assert 0 == run(conn, claims.run_due("q", now=second(10)))
    assert [("a", "WAITING_TOOL"), ("b", "RESUMED")] == conn.execute(
        "select agent, status from semel.runs order by agent"
    ).fetchall()


def test_the_hint_and_upkeep_see_a_parked_run_when_its_time_comes(conn: Conn) -> None:
    park(conn, begin(conn), sleep(due=10))

    def hints(at: float) -> int:
        return len(run(conn, claims.run_hint(["a"], now=second(at))))

    assert [0, 1] == [hints(10 - MOMENT), hints(10)]


# -- how a run's waits end with it -----------------------------------------------------------


def by_cancel(conn: Conn, held: Claim) -> None:
    assert "won" == cancel(conn, held.run_id)[0]


def by_deadline(conn: Conn, held: Claim) -> None:
    conn.execute("update semel.run set deadline_at = %s where run_id = %s", (NOW, held.run_id))
    assert [held.run_id] == run(conn, transitions.run_overdue("p", now=NOW))


def by_completion(conn: Conn, held: Claim) -> None:
    say(conn, held.run_id)
    assert "won" == complete(conn, claim(conn))


def by_failure(conn: Conn, held: Claim) -> None:
    say(conn, held.run_id)
    assert "failed" == fail(conn, claim(conn))


def by_a_lost_worker(conn: Conn, held: Claim) -> None:
    say(conn, held.run_id)
    claim(conn)
    assert ["failed"] == [r.outcome for r in run(conn, recovery.worker_lost("p", "w1"))]


@pytest.mark.parametrize(
    "end",
    [by_cancel, by_deadline, by_completion, by_failure, by_a_lost_worker],
    ids=lambda end: end.__name__,
)
def test_when_a_run_ends_its_waits_are_gone_and_its_questions_void(
    conn: Conn, end: Callable[[Conn, Claim], None]
) -> None:
    held, neighbour = begin(conn, max_attempts=1), begin(conn, "w2", agent="b")
    question, other = asking(), asking()
    park(conn, held, question, hear(), sleep(due=60))
    park(conn, neighbour, other)

    end(conn, held)

    assert [neighbour.run_id] == [i for [i] in conn.execute("select run_id from semel.waits")]
    states = dict(conn.execute("select approval_id, state from semel.approvals").fetchall())
    assert {asked(question): "VOID", asked(other): "PENDING"} == states
    assert "void" == decide(conn, asked(question)).outcome
    assert 0 == due(conn, 60)


def test_a_retried_run_waits_anew(conn: Conn) -> None:
    held = begin(conn)
    first = asking()
    park(conn, held, first)
    cancel(conn, held.run_id)
    assert "won" == run(conn, transitions.run_retry("p", held.run_id, now=second(100)))[0]
    again = claim(conn, at=100)

    second_ = asking()
    assert [("ok", "parked", None)] == park(conn, again, second_, at=100)

    assert "void" == decide(conn, asked(first), at=101).outcome
    assert "won" == decide(conn, asked(second_), at=101).outcome


def test_a_parked_run_is_neither_retried_nor_released_nor_completed(conn: Conn) -> None:
    held = begin(conn)
    park(conn, held, hear())
    before = everything(conn)

    assert ("refused", "WAITING_TOOL") == run(conn, transitions.run_retry("p", held.run_id))[:2]
    assert "lost" == complete(conn, held)
    pair = [(held.run_id, held.fence)]
    assert "lost" == run(conn, runs.run_release("p", "w1", pair))[0].outcome
    assert before == everything(conn)


# -- bad input -------------------------------------------------------------------------------


def test_a_run_that_would_wait_for_nothing_is_not_parked(conn: Conn) -> None:
    held = begin(conn)
    with pytest.raises(BadRequest, match="waits for nothing"):
        park(conn, held)
    assert "RUNNING" == status(conn, held.run_id)


@pytest.mark.parametrize("kind", ["sleep", "retry", "approval"])
def test_a_wait_that_must_end_says_when(conn: Conn, kind: Any) -> None:
    held = begin(conn)
    with pytest.raises(psycopg.Error):
        park(conn, held, Wait(key="x", kind=kind, question=asking().question))
    assert "RUNNING" == status(conn, held.run_id)
    assert 0 == one(conn, "select count(*) from semel.waits")


def test_parking_is_part_of_the_callers_transaction(conn: Conn) -> None:
    held = begin(conn)
    before = everything(conn)
    with conn.transaction(force_rollback=True):
        call = run_park("p", "w1", held.run_id, held.fence, [asking(notify=("bob",))])
        run(conn, call)
    assert before == everything(conn)
    assert [] == run(
        conn, claims.run_claim("p", "semel.notify", "w", limit=9, lease=LEASE, lanes=ANYWHERE)
    )
