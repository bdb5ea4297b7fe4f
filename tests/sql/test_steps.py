"""The journal: what is written once stands, and only who holds the run writes."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest

from durable import (
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
    intent,
    join,
    journal,
    park,
    record,
    result,
    retry,
    say,
    sleep,
    spawn,
)
from fix_world import DEAD, Conn, one, row, second, start_run
from semel.core import approvals, recovery, runs, steps, transitions
from semel.core.steps import Entry
from semel.db.execute import run
from semel.errors import BadRequest
from semel.model import Claim


def test_a_result_stands_and_whoever_comes_later_is_told_it(conn: Conn) -> None:
    held = begin(conn)

    assert [("won", None)] == record(conn, held, result("s", {"n": 1}))
    assert [("already", '{"n": 1}')] == record(conn, held, result("s", 2))
    assert [("s", "result", {"n": 1})] == journal(conn, held.run_id)


def test_of_two_results_in_one_call_the_first_stands(conn: Conn) -> None:
    held = begin(conn)

    assert [("won", None), ("already", "1")] == record(
        conn, held, result("s", 1), result("s", 2)
    )
    assert [("s", "result", 1)] == journal(conn, held.run_id)


def test_other_entries_are_kept_as_often_as_they_come(conn: Conn) -> None:
    held = begin(conn)
    kinds: list[Any] = ["intent", "error", "error", "caught", "patch"]

    answers = record(conn, held, *[Entry("s", kind, content="1") for kind in kinds])

    assert [("won", None)] * 5 == answers
    assert [("s", kind, 1) for kind in kinds] == journal(conn, held.run_id)


def test_one_call_writes_for_many_runs_and_each_entry_has_its_own_answer(conn: Conn) -> None:
    mine, lost, other = begin(conn), begin(conn), begin(conn, "w2")
    cancel(conn, lost.run_id)
    entries = [
        (held.run_id, held.fence, result(key))
        for held, key in [(mine, "b"), (lost, "s"), (mine, "a"), (other, "s"), (mine, "b")]
    ]

    answers = run(conn, steps.step_record("p", "w1", entries))

    assert ["won", "lost", "won", "lost", "already"] == [outcome for outcome, _ in answers]
    assert ["b", "a"] == [key for key, _, _ in journal(conn, mine.run_id)]
    assert [] == journal(conn, lost.run_id) == journal(conn, other.run_id)


def test_entries_are_numbered_within_their_run_whatever_the_clock_does(conn: Conn) -> None:
    held, other = begin(conn), begin(conn)
    for key, at in (("first", 0.0), ("second", -3600.0), ("third", 60.0)):
        record(conn, held, result(key), at=at)
        record(conn, other, result(key), at=at)

    for run_id in (held.run_id, other.run_id):
        assert ["first", "second", "third"] == [key for key, _, _ in journal(conn, run_id)]
    assert [1, 2, 3] == [
        n
        for [n] in conn.execute(
            "select position from semel.steps where run_id = %s order by 1", (held.run_id,)
        )
    ]


def test_a_claim_brings_the_journal_of_a_run_that_was_claimed_before(conn: Conn) -> None:
    held = begin(conn)
    assert None is held.journal
    record(
        conn,
        held,
        Entry("s", "error", place=1, content='"e"'),
        Entry("s", "result", "transaction", 1, "1", "[2]"),
        Entry("t", "result"),
    )
    assert "retry" == fail(conn, held, retryable=True)

    again = claim(conn)

    assert again.journal
    assert [
        ["s", "error", "step", 1, 1, "e", None],
        ["s", "result", "transaction", 1, 1, 1, [2]],
        ["t", "result", "step", None, 1, None, None],
    ] == json.loads(again.journal)


def test_saga_steps_show_the_results_of_every_attempt_also_when_the_run_is_over(
    conn: Conn,
) -> None:
    held = begin(conn)
    record(conn, held, Entry("s", "error", content='"boom"'), at=1)
    fail(conn, held, retryable=True)
    again = claim(conn)
    record(conn, again, result("s", 7), at=2)
    live = row(conn, held.run_id)["saga_steps"]
    complete(conn, again)

    assert [("s", "error", 1, "boom"), ("s", "result", 2, 7)] == [
        (step["step"], step["entry"], step["attempt"], step["content"]) for step in live
    ]
    assert live == row(conn, held.run_id)["saga_steps"]


def test_a_step_is_part_of_the_callers_transaction(conn: Conn) -> None:
    held = begin(conn)
    with conn.transaction(force_rollback=True):
        record(conn, held, result("s", 1))

    assert [("won", None)] == record(conn, held, result("s", 2))
    assert [("s", "result", 2)] == journal(conn, held.run_id)


def test_whether_a_worker_holds_a_run_is_asked_without_a_lock(conn: Conn, other: Conn) -> None:
    held = begin(conn)
    conn.execute("set lock_timeout = '300ms'")

    def holds(worker: str, fence: int) -> bool:
        return run(conn, steps.run_holds("p", worker, held.run_id, fence))

    with other.transaction():
        other.execute("select from semel.run for update")
        assert [True, False, False] == [
            holds("w1", held.fence),
            holds("w2", held.fence),
            holds("w1", held.fence + 1),
        ]
    complete(conn, held)
    assert not holds("w1", held.fence)


@pytest.mark.parametrize("key", ["", "k" * 256, "é" * 128])
def test_a_key_that_the_journal_cannot_hold_is_refused_whole(conn: Conn, key: str) -> None:
    held = begin(conn)
    before = everything(conn)

    for write in (
        lambda: record(conn, held, result("good"), result(key)),
        lambda: park(conn, held, sleep(), sleep(key)),
        lambda: spawn(conn, held, key),
    ):
        with pytest.raises(BadRequest, match="shorter name"):
            write()
    assert before == everything(conn)
    assert [("won", None)] == record(conn, held, result("k" * 255))


def test_an_entry_of_no_known_kind_is_refused(conn: Conn) -> None:
    held = begin(conn)
    with pytest.raises(psycopg.errors.CheckViolation, match="step_entry_is_known"):
        record(conn, held, Entry("s", "guess"))  # type: ignore[arg-type]
    assert [] == journal(conn, held.run_id)


# -- zombies ---------------------------------------------------------------------------------


def reaped(conn: Conn, held: Claim) -> None:
    run(conn, recovery.run_reap("p", dead_after=DEAD, trust=True, now=second(3600)))


def reaped_and_claimed(conn: Conn, held: Claim) -> None:
    reaped(conn, held)
    claim(conn, "w2", at=3600)


def parked(conn: Conn, held: Claim) -> None:
    park(conn, held, hear())


def resumed(conn: Conn, held: Claim) -> None:
    parked(conn, held)
    say(conn, held.run_id)


def resumed_and_claimed_by_its_name(conn: Conn, held: Claim) -> None:
    """The same worker in the same attempt: the fence alone tells them apart."""
    resumed(conn, held)
    again = claim(conn, held.worker)
    assert (held.worker, held.attempt) == (again.worker, again.attempt)


def released_and_claimed_by_its_name(conn: Conn, held: Claim) -> None:
    run(conn, runs.run_release("p", held.worker, [(held.run_id, held.fence)]))
    claim(conn, held.worker)


def retried_and_claimed_by_its_name(conn: Conn, held: Claim) -> None:
    cancel(conn, held.run_id)
    run(conn, transitions.run_retry("p", held.run_id))
    claim(conn, held.worker)


def completed(conn: Conn, held: Claim) -> None:
    complete(conn, held)


def cancelled(conn: Conn, held: Claim) -> None:
    cancel(conn, held.run_id)


LOSSES: list[Callable[[Conn, Claim], None]] = [
    reaped,
    reaped_and_claimed,
    parked,
    resumed,
    resumed_and_claimed_by_its_name,
    released_and_claimed_by_its_name,
    retried_and_claimed_by_its_name,
    completed,
    cancelled,
]


def mint_as(conn: Conn, held: Claim, approval: UUID) -> str:
    call = approvals.approval_mint(
        "p", held.worker, held.run_id, held.fence,
        approval_id=approval, recipient="mallory", link=approvals.Link.mint("p"),
    )  # fmt: skip
    return run(conn, call)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_r1_a_zombie_journals_parks_asks_spawns_and_mints_nothing(
    conn: Conn, loss: Callable[[Conn, Claim], None]
) -> None:
    held = begin(conn)
    asker = begin(conn, "w9", agent="asker")
    question = asking()
    park(conn, asker, question)
    loss(conn, held)
    before = everything(conn)

    assert [("lost", None)] * 2 == record(conn, held, intent("s"), result("s"))
    for wait in (sleep(), retry(), hear(), join("c", held.run_id), asking(notify=("bob",))):
        assert [(wait.key, "lost", None)] == park(conn, held, wait)
    assert [("nap", "lost", None), ("go", "lost", None)] == park(conn, held, sleep(), hear())
    assert (None, "lost") == spawn(conn, held)
    assert "lost" == mint_as(conn, held, asked(question))
    assert before == everything(conn)


def test_a_fence_in_another_workers_hands_opens_nothing(conn: Conn) -> None:
    """An asynchronous failover can hand the same fence out twice."""
    held = begin(conn)
    asker = begin(conn, "w9", agent="asker")
    question = asking()
    park(conn, asker, question)
    before = everything(conn)

    for worker in ("w2", ""):
        thief = replace(held, worker=worker)
        assert [("lost", None)] == record(conn, thief, result("s"))
        assert [("nap", "lost", None)] == park(conn, thief, sleep(due=-1))
        assert [("go", "lost", None)] == park(conn, thief, hear())
        assert (None, "lost") == spawn(conn, thief)
        assert "lost" == mint_as(conn, thief, asked(question))
    assert before == everything(conn)


def test_a_call_with_two_holds_of_one_run_writes_for_the_good_one(conn: Conn) -> None:
    old = begin(conn)
    resumed_and_claimed_by_its_name(conn, old)
    fence = one(conn, "select fence from semel.run")
    new = replace(old, fence=fence)
    entries = [(hold.run_id, hold.fence, result(key)) for key, hold in (("s", old), ("t", new))]

    assert [("lost", None), ("won", None)] == run(
        conn, steps.step_record("p", old.worker, entries)
    )
    assert ["go", "t"] == [key for key, _, _ in journal(conn, old.run_id)]


def test_a_project_never_sees_the_journal_of_another(conn: Conn) -> None:
    held = begin(conn)
    record(conn, held, result("s"))
    rows = [(held.run_id, held.fence, result("t"))]

    assert [("lost", None)] == run(conn, steps.step_record("q", "w1", rows))
    assert [] == run(conn, steps.step_list("q", held.run_id))
    assert 1 == one(conn, "select count(*) from semel.steps")


def test_a_run_that_never_parked_costs_no_look_at_waits(conn: Conn) -> None:
    """What ending must look after is in the run's own row."""
    start_run(conn)
    [held] = claim_all(conn)
    assert (False, False) == conn.execute(
        "select has_undo, has_wait from semel.run where run_id = %s", (held.run_id,)
    ).fetchone()
    record(conn, held, intent("s"))
    assert ["ready"] == [outcome for _, outcome, _ in park(conn, held, sleep(due=-1))]
    assert (True, True) == conn.execute("select has_undo, has_wait from semel.run").fetchone()


def caught(key: str) -> Entry:
    return Entry(key, "caught", content='{"message": "given up"}')


def test_what_a_handler_went_on_without_is_waited_for_no_more(conn: Conn) -> None:
    for one_of in (begin(conn), begin(conn, worker="w2")):
        park(conn, one_of, asking("ok"), asking("sure"), hear("go"), hear("stop"), sleep(due=1))
    due(conn, 1)
    held, _ = claim_all(conn, at=1)
    ours, theirs = (
        "select array_agg(t.step_key order by t.step_key) from semel.waits as t where run_id = %s",
        "select count(*) from semel.waits where run_id <> %s",
    )

    answers = record(conn, held, caught("ok"), caught("go"), at=1)

    assert [("won", None)] * 2 == answers
    assert ["stop", "sure"] == one(conn, ours, held.run_id)
    assert 4 == one(conn, theirs, held.run_id)
    states = conn.execute(
        "select state, step_key from semel.approvals order by 1, 2"
    ).fetchall()
    assert states == [
        ("PENDING", "ok"),
        ("PENDING", "sure"),
        ("PENDING", "sure"),
        ("VOID", "ok"),
    ]
    assert "won" == say(conn, held.run_id, "go")
    assert "void" == decide(conn, voided(conn), at=1).outcome


def test_who_lost_a_run_ends_no_wait_of_it(conn: Conn) -> None:
    held = begin(conn)
    park(conn, held, asking("ok"), hear("go"))

    assert [("lost", None)] == record(conn, held, caught("ok"))
    assert [("lost", None)] == record(conn, held, caught("go"))

    assert 2 == one(conn, "select count(*) from semel.waits")
    assert "PENDING" == one(conn, "select state from semel.approvals")


def voided(conn: Conn) -> UUID:
    found: UUID = one(conn, "select approval_id from semel.approvals where state = 'VOID'")
    return found
