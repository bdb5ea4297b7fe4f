"""Handlers with steps, waits and undos, on a real worker process."""

from collections import Counter
from typing import Any

import pytest

from fix_world import Conn, Programs, one, row, start_run, status, until
from semel.core import transitions, waits
from semel.core.approvals import approval_decide
from semel.core.undo import run_compensate, undo_skip
from semel.db.execute import run

FAST = {"worker_poll": "50ms"}


@pytest.fixture
def durable(programs: Programs, conn: Conn) -> Programs:
    """A worker of programs/durable.py, and upkeep."""
    conn.execute(
        "create table public.business (run_id uuid, value int, primary key (run_id, value))"
    )
    programs.worker(program="durable.py", **FAST)
    programs.upkeep()
    return programs


def ended(conn: Conn, run_id: Any) -> dict[str, Any]:
    until(lambda: status(conn, run_id) in {"COMPLETED", "FAILED", "CANCELLED"})
    return row(conn, run_id)


def waiting(conn: Conn, run_id: Any, state: str = "WAITING_TOOL") -> None:
    until(lambda: status(conn, run_id) == state)


def words(conn: Conn, run_id: Any) -> list[str]:
    rows = conn.execute(
        "select word from public.started where run_id = %s order by at", (run_id,)
    )
    return [word for [word] in rows]


def said(conn: Conn, run_id: Any, name: str, content: Any = None) -> str:
    return run(conn, waits.signal_send("p", run_id, name, content))[0]


def test_steps_are_executed_once_and_answer_their_results(
    conn: Conn, durable: Programs
) -> None:
    async_, thread = start_run(conn, "five"), start_run(conn, "five-in-thread")

    assert [2, 4, 5, 10, 2, "FIVE"] == ended(conn, async_)["result"]
    assert [2, 4, 5, 6] == ended(conn, thread)["result"]
    assert Counter(["one", "two in semel-run", "four", "four-b", "five"]) == Counter(
        words(conn, async_)
    )
    steps = row(conn, async_)["saga_steps"]
    assert {"one", "two", "three", "four", "four-b", "five"} == {step["step"] for step in steps}
    assert ["intent", "result"] == [s["entry"] for s in steps if s["step"] == "five"]


def test_a_repeated_name_has_a_key_for_each_turn(conn: Conn, durable: Programs) -> None:
    run_id = start_run(conn, "repeats")

    assert [0, 2, 4] == ended(conn, run_id)["result"]
    assert ["again", "again#2", "again#3"] == [
        s["step"] for s in row(conn, run_id)["saga_steps"]
    ]


@pytest.mark.parametrize("park", [False, True])
def test_a_step_is_tried_again_in_place_or_parked(
    conn: Conn, durable: Programs, park: bool
) -> None:
    run_id = start_run(conn, "retries", {"attempts": 4, "until": 3, "park": park})

    done = ended(conn, run_id)

    assert (3, 1) == (done["result"], done["attempt_count"])
    assert ["error", "error", "result"] == [s["entry"] for s in done["saga_steps"]]
    parked = one(
        conn,
        "select count(*) from semel.attempts where run_id = %s and outcome = 'parked'",
        run_id,
    )
    assert parked == (2 if park else 0)


def test_an_exhausted_step_fails_its_attempt_and_begins_anew_in_the_next(
    conn: Conn, durable: Programs
) -> None:
    run_id = start_run(conn, "retries", {"attempts": 2, "until": 4})

    done = ended(conn, run_id)

    assert ("COMPLETED", 2, 4) == (done["status"], done["attempt_count"], done["result"])


def test_what_a_handler_went_on_without_stands(conn: Conn, durable: Programs) -> None:
    run_id = start_run(conn, "goes-on")

    assert "caught no" == ended(conn, run_id)["result"]
    assert ["fails", "after"] == words(conn, run_id)


def test_waits_free_the_worker_and_find_what_came_before(conn: Conn, durable: Programs) -> None:
    run_id = start_run(conn, "waits")
    assert "won" == said(conn, run_id, "go", 1)
    until(lambda: one(conn, "select count(*) from semel.waits where name = 'go'"))
    assert "won" == said(conn, run_id, "go", {"second": True})

    done = ended(conn, run_id)

    assert [1, {"second": True}, True] == done["result"]
    assert ["before"] == words(conn, run_id)
    assert 1 == done["attempt_count"]


def test_the_first_of_two_waits_resumes_and_the_other_is_kept(
    conn: Conn, durable: Programs
) -> None:
    run_id = start_run(conn, "both")
    waiting(conn, run_id)
    said(conn, run_id, "right", "R")
    until(lambda: one(conn, "select count(*) from semel.waits") == 1)
    said(conn, run_id, "left", "L")

    assert ["L", 4, "R"] == ended(conn, run_id)["result"]
    assert ["beside"] == words(conn, run_id)


def test_a_handler_in_a_process_has_steps_and_waits_too(conn: Conn, durable: Programs) -> None:
    run_id = start_run(conn, "five-in-process")
    waiting(conn, run_id)
    said(conn, run_id, "go", "now")

    assert [2, "now"] == ended(conn, run_id)["result"]


def test_children_are_started_once_and_waited_for(conn: Conn, durable: Programs) -> None:
    run_id = start_run(conn, "parent")

    good, failed = ended(conn, run_id)["result"]

    assert 2 == good
    assert "FAILED" in failed
    assert "below zero" in failed
    assert 2 == one(conn, "select count(*) from semel.runs where parent_run_id = %s", run_id)


@pytest.mark.parametrize(("decision", "result"), [("approve", ["alice"]), ("reject", None)])
def test_an_approval_is_waited_for_and_decided_once(
    conn: Conn, durable: Programs, decision: Any, result: Any
) -> None:
    run_id = start_run(conn, "asks")
    waiting(conn, run_id, "WAITING_APPROVAL")
    asked = one(conn, "select approval_id from semel.approvals where run_id = %s", run_id)

    decided = run(
        conn,
        approval_decide("p", decision, via="cli", approval_id=asked, voter="alice", reason="r"),
    )

    assert "won" == decided.outcome
    done = ended(conn, run_id)
    assert "COMPLETED" == done["status"]
    if decision == "approve":
        assert (["alice"], ["before", "act"]) == (done["result"], words(conn, run_id))
    else:
        assert "rejected" in done["result"]
        assert ["before"] == words(conn, run_id)


def test_a_failed_saga_is_undone_in_reverse(conn: Conn, durable: Programs) -> None:
    run_id = start_run(conn, "saga")

    assert "FAILED" == ended(conn, run_id)["status"]
    undo = one(conn, "select run_id from semel.runs where parent_run_id = %s", run_id)
    done = ended(conn, undo)

    assert ("undo", "COMPLETED", {"undone": ["s3", "s2", "s1"]}) == (
        done["kind"],
        done["status"],
        done["result"],
    )
    assert ["s1", "s2", "s3", "undo s3 S3", "undo s2 S2", "undo s1 S1"] == words(conn, run_id)


def test_a_running_saga_that_is_cancelled_is_undone_once_its_handler_has_stopped(
    conn: Conn, durable: Programs
) -> None:
    run_id = start_run(conn, "saga", {"hang": "s2"})
    until(lambda: "s2" in words(conn, run_id))
    until(lambda: one(conn, "select count(*) from semel.steps where run_id = %s", run_id) == 4)

    assert "won" == run(conn, transitions.run_cancel("p", run_id))[0]

    undo = one(conn, "select run_id from semel.runs where parent_run_id = %s", run_id)
    assert "COMPLETED" == ended(conn, undo)["status"]
    assert ["s1", "s2", "undo s2 S2", "undo s1 S1"] == words(conn, run_id)
    assert "refused" == said(conn, run_id, "go on")


def test_an_undo_that_fails_is_retried_and_the_rest_follows(
    conn: Conn, durable: Programs
) -> None:
    run_id = start_run(conn, "saga", {"badly": ["s2"]})
    ended(conn, run_id)
    undo = one(conn, "select run_id from semel.runs where parent_run_id = %s", run_id)

    done = ended(conn, undo)

    assert ("COMPLETED", 3) == (done["status"], done["attempt_count"])
    assert ["undo s3 S3", *["try undo s2"] * 3, "undo s1 S1"] == words(conn, run_id)[3:]


def test_a_changed_journal_is_named_and_its_compensation_held(
    conn: Conn, durable: Programs
) -> None:
    run_id = start_run(conn, "mismatch")

    failed = ended(conn, run_id)

    assert ("FAILED", "E-STEP-001", "held") == (
        failed["status"],
        failed["failure_code"],
        failed["undo"],
    )
    assert "'old' in the journal, the code calls 'new'" in failed["failure_reason"]
    assert 1 == one(conn, "select count(*) from semel.runs")
    assert "won" == run(conn, run_compensate("p", run_id))[0]
    undo = one(conn, "select run_id from semel.runs where parent_run_id = %s", run_id)
    assert "COMPLETED" == ended(conn, undo)["status"]
    assert ["old", "undo old OLD"] == words(conn, run_id)
    assert "already" == run(conn, undo_skip("p", run_id, "old", reason="r", who="w"))[0]


def test_a_step_that_the_code_dropped_is_noticed_at_the_end(
    conn: Conn, durable: Programs
) -> None:
    failed = ended(conn, start_run(conn, "drops"))

    assert "E-STEP-001" == failed["failure_code"]
    assert "'dropped'" in failed["failure_reason"]


@pytest.mark.parametrize(("value", "more"), [("past", False), ("fresh", False)])
def test_a_patch_keeps_old_runs_on_their_way(
    conn: Conn, durable: Programs, value: str, more: bool
) -> None:
    run_id = start_run(conn, "patched", value)

    assert "done" == ended(conn, run_id)["result"]
    assert more == ("more" in words(conn, run_id))


@pytest.mark.parametrize(
    ("value", "code", "said_"),
    [
        ("no-json", "E-STEP-002", "'bad' is no JSON"),
        ("caught", "E-STEP-002", "'bad' is no JSON"),
        ("too-large", "E-STEP-002", "1048578 bytes"),
        ("no-undo", "E-STEP-003", "'nobody' is not registered"),
        ("undo-arguments", "E-STEP-003", "cannot be called"),
        ("parallel", "E-STEP-004", "'same' is under way"),
    ],
)
def test_a_bad_step_ends_the_run_with_the_reason(
    conn: Conn, durable: Programs, value: str, code: str, said_: str
) -> None:
    failed = ended(conn, start_run(conn, "bad-steps", value))

    assert ("FAILED", code, 1) == (
        failed["status"],
        failed["failure_code"],
        failed["attempt_count"],
    )
    assert said_ in failed["failure_reason"]


def test_a_step_is_given_a_key_to_pass_outward(conn: Conn, durable: Programs) -> None:
    given, asked = ended(conn, start_run(conn, "keys"))["result"]

    assert given != asked
    assert [36, 36] == [len(given), len(asked)]


def test_a_run_is_completed_by_its_own_transaction(conn: Conn, durable: Programs) -> None:
    run_id = start_run(conn, "completes")

    assert "in the transaction" == ended(conn, run_id)["result"]
    assert 1 == one(conn, "select count(*) from public.business where run_id = %s", run_id)


def test_runs_of_a_transaction_are_started_once(conn: Conn, durable: Programs) -> None:
    run_id = start_run(conn, "starts")

    assert 2 == len(set(ended(conn, run_id)["result"]))
    assert 2 == one(conn, "select count(*) from semel.runs where agent = 'child'")


def test_a_transaction_that_raises_leaves_no_rows(conn: Conn, durable: Programs) -> None:
    run_id = start_run(conn, "rolls-back")

    assert "rolled back" == ended(conn, run_id)["result"]
    assert 0 == one(conn, "select count(*) from public.business where run_id = %s", run_id)


@pytest.mark.parametrize(
    ("value", "code", "told"),
    [
        ("hash", "E-STEP-004", "'a#2'"),
        ("wait-inside", "E-STEP-007", "inside 'out'"),
        ("step-inside", "E-STEP-007", "'in' was asked for inside 'out'"),
        ("block", "E-STEP-007", "inside 'block'"),
        ("stop", "E-RUN-003", ""),
    ],
)
def test_an_odd_step_ends_the_run_and_hangs_nobody(
    conn: Conn, durable: Programs, value: str, code: str, told: str
) -> None:
    run_id = start_run(conn, "odd-steps", value, max_attempts=1)

    failed = ended(conn, run_id)

    assert (failed["status"], failed["failure_code"]) == ("FAILED", code)
    assert told in failed["failure_reason"]


def test_what_a_handler_gave_up_stays_given_up(conn: Conn, durable: Programs) -> None:
    run_id = start_run(conn, "gives-up")

    assert ended(conn, run_id)["result"] == ["gave up"]
    assert words(conn, run_id) == ["slow", "after"]


def test_steps_that_begin_in_an_order_of_chance_are_found_again(
    conn: Conn, durable: Programs
) -> None:
    run_id = start_run(conn, "limited")

    assert ended(conn, run_id)["result"] == [0, 2, 4, 6, 8, 10]
    assert len(words(conn, run_id)) == 6


def test_a_caught_error_is_of_its_own_class_in_every_attempt(
    conn: Conn, durable: Programs
) -> None:
    run_id = start_run(conn, "fallback")

    assert ended(conn, run_id)["result"] == ["JSONDecodeError", "Declined"]


def test_a_patch_before_a_wait_keeps_old_runs_on_their_way(
    conn: Conn, durable: Programs
) -> None:
    run_id = start_run(conn, "patched-wait")

    assert ended(conn, run_id)["result"] == "done"
    assert "more" not in words(conn, run_id)
