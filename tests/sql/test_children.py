"""Children: started once for a step, and their end wakes the parent once, however they end."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from durable import (
    asked,
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
    join,
    journal,
    park,
    record,
    say,
    sleep,
    spawn,
    undo_of,
)
from fix_world import NOW, Conn, one, row, second, status
from semel.core import recovery, runs, transitions
from semel.db.execute import run
from semel.errors import BadRequest
from semel.model import Claim


def family(conn: Conn, **more: Any) -> tuple[Claim, Claim]:
    """A parent at work, and its child at work."""
    parent = begin(conn)
    child, outcome = spawn(conn, parent, **more)
    assert "won" == outcome
    held = claim(conn, "w2", agent="kid")
    assert (child, parent.run_id, "child") == (held.run_id, held.parent, held.kind)
    return parent, held


def test_a_step_starts_its_child_once(conn: Conn) -> None:
    parent = begin(conn)

    first, again = spawn(conn, parent), spawn(conn, parent)
    assert ("won", "already") == (first[1], again[1])
    assert first[0] == again[0]
    assert spawn(conn, parent, "other")[0] != first[0]
    assert 2 == len(claim_all(conn, agent="kid"))
    assert [("child", "result", {"run_id": str(first[0]), "agent": "kid"})] == journal(
        conn, parent.run_id
    )[:1]


def test_a_later_attempt_is_told_the_child_of_the_first(conn: Conn) -> None:
    parent = begin(conn)
    child, _ = spawn(conn, parent)
    fail(conn, parent, retryable=True)

    assert (child, "already") == spawn(conn, claim(conn))
    assert 1 == one(conn, "select count(*) from semel.runs where agent = 'kid'")


def test_a_child_has_what_it_was_given(conn: Conn) -> None:
    parent = begin(conn)
    hour = timedelta(hours=1)
    child, _ = spawn(conn, parent, priority=7, max_attempts=2, delay=hour, deadline=2 * hour)
    assert child

    made = row(conn, child)
    assert (7, 2, second(3600), second(7200), parent.run_id, "child", 1) == (
        made["priority"],
        made["max_attempts"],
        made["due_at"],
        made["deadline_at"],
        made["parent_run_id"],
        made["kind"],
        made["input"],
    )
    assert [] == claim_all(conn, agent="kid")
    due(conn, 3600)
    assert child == claim(conn, agent="kid", at=3600).run_id


def test_a_large_input_reaches_the_child(conn: Conn) -> None:
    parent = begin(conn)
    large = json.dumps("x" * 5000)
    conn.execute(
        "select * from semel.child_start('p', 'w1', %s, %s, 'c', null, 'kid', %s)",
        (parent.run_id, parent.fence, large),
    )
    assert large == claim(conn, agent="kid").text


# -- its end ---------------------------------------------------------------------------------


def by_completion(conn: Conn, child: Claim) -> dict[str, Any]:
    complete(conn, child, {"n": 1})
    return {"status": "COMPLETED", "result": {"n": 1}, "code": None, "reason": None}


def by_failure(conn: Conn, child: Claim) -> dict[str, Any]:
    fail(conn, child)
    return {"status": "FAILED", "result": None, "code": "E-RUN-006", "reason": "boom"}


def by_its_last_attempt(conn: Conn, child: Claim) -> dict[str, Any]:
    conn.execute("update semel.run set max_attempts = 1 where run_id = %s", (child.run_id,))
    fail(conn, child, retryable=True)
    reason = "Max retry attempts exceeded"
    return {"status": "FAILED", "result": None, "code": "E-RUN-003", "reason": reason}


def by_lost_workers(conn: Conn, child: Claim) -> dict[str, Any]:
    conn.execute("update semel.run set max_attempts = 1 where run_id = %s", (child.run_id,))
    run(conn, recovery.worker_lost("p", "w2", now=NOW))
    reason = "Max retry attempts exceeded"
    return {"status": "FAILED", "result": None, "code": "E-RUN-003", "reason": reason}


def by_cancel(conn: Conn, child: Claim) -> dict[str, Any]:
    cancel(conn, child.run_id)
    reason = "cancelled by an operator"
    return {"status": "CANCELLED", "result": None, "code": "E-RUN-005", "reason": reason}


def by_deadline(conn: Conn, child: Claim) -> dict[str, Any]:
    conn.execute("update semel.run set deadline_at = %s where run_id = %s", (NOW, child.run_id))
    run(conn, transitions.run_overdue("p", now=NOW))
    return {"status": "FAILED", "result": None, "code": "E-RUN-004"}


def by_expiry(conn: Conn, child: Claim) -> dict[str, Any]:
    park(conn, child, asking(ttl=0))
    assert 1 == due(conn, 0)
    return {"status": "FAILED", "result": None, "code": "E-APPROVAL-002"}


ENDS: list[Callable[[Conn, Claim], dict[str, Any]]] = [
    by_completion,
    by_failure,
    by_its_last_attempt,
    by_lost_workers,
    by_cancel,
    by_deadline,
    by_expiry,
]
EVERY_END = pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)


@EVERY_END
def test_a_child_that_ends_resumes_its_parent_once(
    conn: Conn, end: Callable[[Conn, Claim], dict[str, Any]]
) -> None:
    parent, child = family(conn)
    assert [("kid", "parked", None)] == park(conn, parent, join("kid", child.run_id))
    fence = row(conn, parent.run_id)["fence"]

    told = end(conn, child)

    woken = row(conn, parent.run_id)
    assert ("RESUMED", fence + 1) == (woken["status"], woken["fence"])
    [_, (key, _, content)] = journal(conn, parent.run_id)
    assert ("kid", str(child.run_id)) == (key, content["run_id"])
    assert told == {name: content[name] for name in told}
    assert parent.run_id == claim(conn).run_id


@EVERY_END
def test_a_child_that_ends_before_its_parent_waits_is_found(
    conn: Conn, end: Callable[[Conn, Claim], dict[str, Any]]
) -> None:
    parent, child = family(conn)
    told = end(conn, child)
    assert "RUNNING" == status(conn, parent.run_id)

    [(_, outcome, content)] = park(conn, parent, join("kid", child.run_id))

    found = json.loads(content or "")
    assert ("ready", told) == (outcome, {name: found[name] for name in told})
    assert "won" == complete(conn, parent)


def test_a_child_that_fails_and_is_tried_again_has_not_ended(conn: Conn) -> None:
    parent, child = family(conn)
    park(conn, parent, join("kid", child.run_id))
    assert "retry" == fail(conn, child, retryable=True)
    assert "WAITING_TOOL" == status(conn, parent.run_id)

    complete(conn, claim(conn, "w2", agent="kid"))
    assert "RESUMED" == status(conn, parent.run_id)


def test_a_child_that_an_operator_retries_is_waited_for_again(conn: Conn) -> None:
    parent, child = family(conn)
    fail(conn, child)
    run(conn, transitions.run_retry("p", child.run_id))

    assert [("kid", "parked", None)] == park(conn, parent, join("kid", child.run_id))
    complete(conn, claim(conn, agent="kid"), 2)
    assert 2 == journal(conn, parent.run_id)[1][2]["result"]


def test_a_parent_that_is_at_work_or_over_is_not_disturbed_by_its_child(conn: Conn) -> None:
    parent, child = family(conn)
    park(conn, parent, join("kid", child.run_id), hear())
    say(conn, parent.run_id)
    working = claim(conn)
    complete(conn, child, 5)
    assert "RUNNING" == status(conn, parent.run_id)

    [(_, outcome, content)] = park(conn, working, join("kid", child.run_id))
    assert ("ready", 5) == (outcome, json.loads(content or "")["result"])

    other, orphan = family(conn, key="second")
    complete(conn, other)
    assert "won" == complete(conn, orphan)
    assert "COMPLETED" == status(conn, other.run_id)


def test_of_two_children_each_end_is_told_and_the_first_wakes(conn: Conn) -> None:
    parent = begin(conn)
    for key in ("one", "two"):
        spawn(conn, parent, key)
    first, last = claim_all(conn, "w2", agent="kid")
    waits = [join("1", first.run_id), join("2", last.run_id)]
    park(conn, parent, *waits)

    complete(conn, first)
    assert "RESUMED" == status(conn, parent.run_id)
    again = claim(conn)
    assert ["ready", "pending"] == [outcome for _, outcome, _ in park(conn, again, *waits)]
    assert [("2", "parked", None)] == park(conn, again, waits[1])
    complete(conn, last)
    assert "RESUMED" == status(conn, parent.run_id)


def test_many_children_that_end_in_one_call_wake_their_parents_once(conn: Conn) -> None:
    parents = [begin(conn, f"w{n}") for n in range(3)]
    for parent in parents:
        for key in ("one", "two"):
            spawn(conn, parent, key)
    children = claim_all(conn, "w9", agent="kid")
    fences = {}
    for parent in parents:
        own = [child.run_id for child in children if child.parent == parent.run_id]
        park(conn, parent, *[join(str(n), run_id) for n, run_id in enumerate(own)])
        fences[parent.run_id] = row(conn, parent.run_id)["fence"]

    ended = [(child.run_id, child.fence, "1") for child in children]
    run(conn, runs.run_complete("p", "w9", ended))

    for run_id, fence in fences.items():
        assert ("RESUMED", fence + 1) == (status(conn, run_id), row(conn, run_id)["fence"])
        assert 4 == len(journal(conn, run_id))


def test_the_end_of_a_compensation_wakes_nobody(conn: Conn) -> None:
    parent, child = family(conn)
    record(conn, child, intent("s"))
    park(conn, parent, join("kid", child.run_id))
    fail(conn, child)
    undo = claim(conn, agent="kid")
    assert undo_of(conn, child.run_id) == undo.run_id
    again = claim(conn)
    park(conn, again, sleep())
    before = everything(conn, but=("run", "run_history"))

    complete(conn, undo)
    assert "WAITING_TOOL" == status(conn, parent.run_id)
    assert before == everything(conn, but=("run", "run_history"))


# -- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [{"agent": "a b"}, {"agent": ""}, {"priority": 10}, {"max_attempts": 0}]
)
def test_a_child_that_no_claim_would_find_is_refused(conn: Conn, bad: dict[str, Any]) -> None:
    parent = begin(conn)
    before = everything(conn)
    with pytest.raises(BadRequest):
        spawn(conn, parent, **bad)
    assert before == everything(conn)


# -- both at once ----------------------------------------------------------------------------


def with_a_lower_id(conn: Conn, parent: Claim, child: Claim) -> UUID:
    """Sweeps go by id, and a clock that stepped back makes a child's id the lower one."""
    low = UUID(int=1)
    conn.execute("update semel.run set run_id = %s where run_id = %s", (low, child.run_id))
    for table in ("wait", "approval"):
        conn.execute(
            f"update semel.{table} set run_id = %s where run_id = %s", (low, child.run_id)
        )
    conn.execute("update semel.wait set child_id = %s where child_id = %s", (low, child.run_id))
    return low


def test_a_parent_that_its_child_wakes_is_not_failed_by_the_same_sweep(conn: Conn) -> None:
    parent, child = family(conn)
    park(conn, child, asking(ttl=10))
    question = asking(ttl=10)
    park(conn, parent, join("kid", child.run_id), question)
    low = with_a_lower_id(conn, parent, child)

    assert 1 == due(conn, 10)

    assert ("FAILED", "RESUMED") == (status(conn, low), status(conn, parent.run_id))
    assert "PENDING" == one(
        conn, "select state from semel.approvals where approval_id = %s", asked(question)
    )
    assert [("ok", "parked", None)] == park(conn, claim(conn, at=10), question, at=10)
    assert [1, "FAILED"] == [due(conn, 10), status(conn, parent.run_id)]


def test_a_parent_that_its_child_wakes_is_over_with_its_own_deadline(conn: Conn) -> None:
    parent, child = family(conn)
    park(conn, child, hear())
    park(conn, parent, join("kid", child.run_id))
    low = with_a_lower_id(conn, parent, child)
    conn.execute("update semel.run set deadline_at = %s", (NOW,))

    assert {low, parent.run_id} == set(run(conn, transitions.run_overdue("p", now=NOW)))

    assert ["FAILED", "FAILED"] == [status(conn, i) for i in (low, parent.run_id)]
    assert [] == claim_all(conn)
