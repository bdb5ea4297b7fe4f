"""A wait and its answer, a decision and its rival, in every order of their transactions.

Whoever comes first, the other finds it: no run waits for what has come, none comes back twice, and
of two that decide one is told that it has.
"""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from durable import (
    TTL,
    asked,
    asking,
    begin,
    cancel,
    claim,
    claim_all,
    complete,
    decide,
    due,
    fail,
    hear,
    intent,
    join,
    journal,
    mint,
    park,
    record,
    result,
    say,
    sleep,
    spawn,
    undo_of,
)
from fix_world import NOW, Conn, one, row, second, status, until, until_blocked
from modelling import TIMEOUT
from schedules import Calls, Did, every_schedule
from semel.core import approvals, runs, transitions, undo
from semel.core.approvals import Link
from semel.db.execute import run
from semel.db.pool import connect
from semel.model import Claim

pytestmark = pytest.mark.timeout(TIMEOUT)


@dataclass
class Play:
    """What there is, and what its actors were answered."""

    run_id: UUID
    fence: int
    said: dict[str, Any]

    @classmethod
    def over(cls, conn: Conn, done: list[Did]) -> "Play":
        [(run_id, fence)] = conn.execute(
            "select run_id, fence from semel.runs where kind = 'work' and agent = 'a' and attempt_count > 0"
        ).fetchall()
        return cls(run_id, fence, {did.name: did.answer for did in done})


Scene = Callable[[Conn], dict[str, Calls]]
Check = Callable[[Conn, Play], None]


def does(name: str, work: Callable[[Conn], Any]) -> Calls:
    return [(name, work)]


# -- scenes, each with what holds after it in every order -------------------------------------


def parking_and_a_signal(conn: Conn) -> dict[str, Calls]:
    held = begin(conn)
    return {
        "worker": does("park", lambda c: park(c, held, hear())),
        "friend": [
            ("first", lambda c: say(c, held.run_id, "go", 1)),
            ("second", lambda c: say(c, held.run_id, "go", 2)),
        ],
    }


def the_first_signal_is_taken(conn: Conn, play: Play) -> None:
    assert ("won", "won") == (play.said["first"], play.said["second"])
    [(_, outcome, _)] = play.said["park"]
    assert {"ready": "RUNNING", "parked": "RESUMED"}[outcome] == status(conn, play.run_id)
    [(_, _, content)] = journal(conn, play.run_id)
    assert 1 == content["content"]
    assert 1 == one(conn, "select count(*) from semel.signals where taken_by is null")


def parking_and_a_decision(conn: Conn) -> dict[str, Calls]:
    held = begin(conn)
    question = asking()
    return {
        "worker": does("park", lambda c: park(c, held, question)),
        "person": does("decide", lambda c: decide(c, asked(question)).outcome),
    }


def a_decision_is_of_what_is_committed(conn: Conn, play: Play) -> None:
    assert [("ok", "parked", None)] == play.said["park"]
    then = {"won": "RESUMED", "unknown": "WAITING_APPROVAL"}[play.said["decide"]]
    assert then == status(conn, play.run_id)
    assert (then == "RESUMED") == bool(journal(conn, play.run_id))


def asking_again_and_a_decision(conn: Conn) -> dict[str, Calls]:
    """The run came back for another wait; it asks again while the decision is on its way."""
    held = begin(conn)
    question = asking(notify=("bob",))
    park(conn, held, question, hear())
    say(conn, held.run_id)
    again = claim(conn)
    return {
        "worker": does("park", lambda c: park(c, again, asking(notify=("bob",)))),
        "person": does("decide", lambda c: decide(c, asked(question)).outcome),
    }


def it_is_asked_once_and_decided_once(conn: Conn, play: Play) -> None:
    assert "won" == play.said["decide"]
    [(_, outcome, _)] = play.said["park"]
    assert {"ready": "RUNNING", "parked": "RESUMED"}[outcome] == status(conn, play.run_id)
    assert [("APPROVED",)] == conn.execute("select state from semel.approvals").fetchall()
    assert 1 == one(conn, "select count(*) from semel.runs where kind = 'notify'")


def a_decision_and_expiry(conn: Conn) -> dict[str, Calls]:
    held = begin(conn)
    record(conn, held, intent("s"))
    question = asking()
    park(conn, held, question)
    return {
        "person": does("decide", lambda c: decide(c, asked(question), at=TTL - 1).outcome),
        "upkeep": does("due", lambda c: due(c, TTL)),
    }


def it_is_decided_or_expired(conn: Conn, play: Play) -> None:
    state, undone = one(conn, "select state from semel.approvals"), undo_of(conn, play.run_id)
    compensations = one(conn, "select count(*) from semel.runs where run_id = %s", undone)
    seen = (play.said["decide"], play.said["due"], state, status(conn, play.run_id), compensations)
    assert seen in {
        ("won", 0, "APPROVED", "RESUMED", 0),
        ("expired", 1, "EXPIRED", "FAILED", 1),
    }


def a_decision_and_a_cancel(conn: Conn) -> dict[str, Calls]:
    held = begin(conn)
    question = asking()
    park(conn, held, question)
    link = mint(conn, asked(question))
    return {
        "person": does("decide", lambda c: decide(c, link).outcome),
        "operator": does("cancel", lambda c: cancel(c, held.run_id)),
    }


def it_is_decided_before_or_void(conn: Conn, play: Play) -> None:
    assert "CANCELLED" == status(conn, play.run_id)
    seen = (play.said["decide"], play.said["cancel"], one(conn, "select state from semel.approvals"))
    assert seen in {
        ("won", ("won", "RESUMED"), "APPROVED"),
        ("void", ("won", "WAITING_APPROVAL"), "VOID"),
    }


def approving_and_rejecting(conn: Conn) -> dict[str, Calls]:
    held = begin(conn)
    question = asking()
    park(conn, held, question)
    return {
        "ann": does("approve", lambda c: decide(c, asked(question), "approve", "ann")),
        "bob": does("reject", lambda c: decide(c, asked(question), "reject", "bob")),
    }


def one_decides_and_the_other_is_told(conn: Conn, play: Play) -> None:
    told = [play.said["approve"], play.said["reject"]]
    assert {"won", "already"} == {one_.outcome for one_ in told}
    assert {one(conn, "select state from semel.approvals")} == {one_.state for one_ in told}
    assert 1 == one(conn, "select count(*) from semel.approval_vote")
    assert 1 == len(journal(conn, play.run_id))


def two_that_must_agree(conn: Conn) -> dict[str, Calls]:
    held = begin(conn)
    question = asking(need=2)
    park(conn, held, question)
    return {
        "ann": does("ann", lambda c: decide(c, asked(question), "approve", "ann").outcome),
        "bob": does("bob", lambda c: decide(c, asked(question), "approve", "bob").outcome),
    }


def the_second_decides(conn: Conn, play: Play) -> None:
    assert {"voted", "won"} == set(play.said.values())
    assert "RESUMED" == status(conn, play.run_id)


def minting_and_deciding(conn: Conn) -> dict[str, Calls]:
    held = begin(conn)
    question = asking(notify=("ann",))
    park(conn, held, question)
    sender = claim(conn, "w2", agent="semel.notify")
    minted = approvals.approval_mint(
        "p", "w2", sender.run_id, sender.fence,
        approval_id=asked(question), recipient="ann", link=Link.mint("p"), now=NOW,
    )  # fmt: skip
    return {
        "sender": does("mint", lambda c: run(c, minted)),
        "person": does("decide", lambda c: decide(c, asked(question)).outcome),
    }


def no_link_is_sent_after_the_decision(conn: Conn, play: Play) -> None:
    assert "won" == play.said["decide"]
    links = one(conn, "select count(*) from semel.approval_token")
    assert (play.said["mint"], links) in {("won", 1), ("gone", 0)}


def parking_and_the_end_of_a_child(conn: Conn) -> dict[str, Calls]:
    parent, child = _family(conn)
    return {
        "worker": does("park", lambda c: park(c, parent, join("kid", child.run_id))),
        "child": does("end", lambda c: complete(c, child, 7)),
    }


def parking_and_the_cancel_of_a_child(conn: Conn) -> dict[str, Calls]:
    parent, child = _family(conn)
    return {
        "worker": does("park", lambda c: park(c, parent, join("kid", child.run_id))),
        "operator": does("end", lambda c: cancel(c, child.run_id)[0]),
    }


def the_end_is_found(conn: Conn, play: Play) -> None:
    assert "won" == play.said["end"]
    [(_, outcome, _)] = play.said["park"]
    assert {"ready": "RUNNING", "parked": "RESUMED"}[outcome] == status(conn, play.run_id)
    assert ["child", "kid"] == [key for key, _, _ in journal(conn, play.run_id)]
    assert 0 == one(conn, "select count(*) from semel.waits")


def parking_and_two_children_that_end(conn: Conn) -> dict[str, Calls]:
    parent = begin(conn)
    for key in ("one", "two"):
        spawn(conn, parent, key)
    first, last = claim_all(conn, "w2", agent="kid")
    waits = [join("1", first.run_id), join("2", last.run_id)]
    return {
        "worker": does("park", lambda c: park(c, parent, *waits)),
        "first": does("end 1", lambda c: complete(c, first)),
        "last": does("end 2", lambda c: complete(c, last)),
    }


def both_ends_are_found(conn: Conn, play: Play) -> None:
    outcomes = {outcome for _, outcome, _ in play.said["park"]}
    assert ("RESUMED" if "parked" in outcomes else "RUNNING") == status(conn, play.run_id)
    found = {key for key, _, _ in journal(conn, play.run_id)}
    ready = {key for key, outcome, _ in play.said["park"] if outcome == "ready"}
    assert {"one", "two"} | ready <= found
    left = {key for [key] in conn.execute("select step_key from semel.waits")}
    assert {"1", "2"} == (found - {"one", "two"}) | left
    if "RESUMED" == status(conn, play.run_id):
        again = claim(conn)
        keys = [join(key, UUID(int=0)) for key in sorted(left)] or [sleep(due=-1)]
        assert "parked" not in {outcome for _, outcome, _ in park(conn, again, *keys)}


def a_signal_and_the_end_of_its_time(conn: Conn) -> dict[str, Calls]:
    held = begin(conn)
    park(conn, held, hear(due=10))
    return {
        "friend": does("say", lambda c: say(c, held.run_id, "go", 1, at=10)),
        "upkeep": does("due", lambda c: due(c, 10)),
    }


def it_is_heard_or_kept(conn: Conn, play: Play) -> None:
    [(_, _, content)] = journal(conn, play.run_id)
    assert (play.said["say"], status(conn, play.run_id)) == ("won", "RESUMED")
    kept = one(conn, "select count(*) from semel.signals where taken_by is null")
    assert (play.said["due"], content.get("content"), kept) in {(0, 1, 0), (1, None, 1)}


def promising_and_a_cancel(conn: Conn) -> dict[str, Calls]:
    held = begin(conn)
    return {
        "worker": does("record", lambda c: record(c, held, intent("s"))),
        "operator": does("cancel", lambda c: cancel(c, held.run_id)[0]),
    }


def what_was_promised_is_undone(conn: Conn, play: Play) -> None:
    assert ("CANCELLED", "won") == (status(conn, play.run_id), play.said["cancel"])
    undone = one(conn, "select count(*) from semel.runs where kind = 'undo'")
    assert (play.said["record"][0][0], undone) in {("won", 1), ("lost", 0)}


def a_held_run_and_two_operators(conn: Conn) -> dict[str, Calls]:
    held = begin(conn)
    record(conn, held, intent("s"))
    fail(conn, held, "E-STEP-001")
    begun = undo.run_compensate("p", held.run_id, now=NOW)
    again = transitions.run_retry("p", held.run_id, now=NOW)
    return {
        "one": does("begin", lambda c: run(c, begun)[0]),
        "two": does("also", lambda c: run(c, begun)[0]),
        "three": does("retry", lambda c: run(c, again)[0]),
    }


def it_goes_on_or_is_undone(conn: Conn, play: Play) -> None:
    undone = one(conn, "select count(*) from semel.runs where kind = 'undo'")
    asked_ = Counter((play.said["begin"], play.said["also"]))
    seen = (play.said["retry"], undone, status(conn, play.run_id))
    if play.said["retry"] == "won":
        assert (Counter(refused=2), ("won", 0, "PENDING")) == (asked_, seen)
    else:
        assert asked_ == Counter(won=1, already=1)
        assert ("new", 1, "FAILED") == seen


def undoing_and_skipping(conn: Conn) -> dict[str, Calls]:
    held = begin(conn)
    record(conn, held, intent("s"))
    fail(conn, held)
    working = claim(conn)
    skipped = undo.undo_skip("p", held.run_id, "s", reason="r", who="ann", now=NOW)
    return {
        "worker": [
            ("record", lambda c: record(c, working, result("s"))[0][0]),
            ("complete", lambda c: complete(c, working)),
        ],
        "operator": does("skip", lambda c: run(c, skipped)[0]),
    }


def it_is_undone_or_skipped(conn: Conn, play: Play) -> None:
    assert {"won", "already"} == {play.said["record"], play.said["skip"]}
    assert "won" == play.said["complete"]
    assert 1 == len(journal(conn, undo_of(conn, play.run_id)))


def stopping_and_the_time_for_it(conn: Conn) -> dict[str, Calls]:
    held = begin(conn)
    record(conn, held, intent("s"))
    cancel(conn, held.run_id)
    stopped = undo.run_stopped("p", "w1", [held.run_id], now=second(30))
    return {
        "worker": does("stopped", lambda c: len(run(c, stopped))),
        "upkeep": does("due", lambda c: due(c, 30)),
        "other": does("claim", lambda c: len(claim_all(c, "w2", at=30))),
    }


def it_is_made_ready_once(conn: Conn, play: Play) -> None:
    assert 1 == play.said["stopped"] + play.said["due"]
    claimed = play.said["claim"] + len(claim_all(conn, "w3", at=30))
    assert 1 == claimed


def _family(conn: Conn) -> tuple[Claim, Claim]:
    parent = begin(conn)
    spawn(conn, parent)
    return parent, claim(conn, "w2", agent="kid")


SCENES: list[tuple[Scene, Check]] = [
    (parking_and_a_signal, the_first_signal_is_taken),
    (parking_and_a_decision, a_decision_is_of_what_is_committed),
    (asking_again_and_a_decision, it_is_asked_once_and_decided_once),
    (a_decision_and_expiry, it_is_decided_or_expired),
    (a_decision_and_a_cancel, it_is_decided_before_or_void),
    (approving_and_rejecting, one_decides_and_the_other_is_told),
    (two_that_must_agree, the_second_decides),
    (minting_and_deciding, no_link_is_sent_after_the_decision),
    (parking_and_the_end_of_a_child, the_end_is_found),
    (parking_and_the_cancel_of_a_child, the_end_is_found),
    (parking_and_two_children_that_end, both_ends_are_found),
    (a_signal_and_the_end_of_its_time, it_is_heard_or_kept),
    (promising_and_a_cancel, what_was_promised_is_undone),
    (a_held_run_and_two_operators, it_goes_on_or_is_undone),
    (undoing_and_skipping, it_is_undone_or_skipped),
    (stopping_and_the_time_for_it, it_is_made_ready_once),
]


@pytest.mark.parametrize(("scene", "check"), SCENES, ids=[s.__name__ for s, _ in SCENES])
def test_whoever_comes_first_the_other_finds_it(
    dsn: str, conn: Conn, scene: Scene, check: Check
) -> None:
    count = 0
    for schedule, done, _ in every_schedule(dsn, conn, scene, lambda _: None):
        try:
            check(conn, Play.over(conn, done))
        except (AssertionError, KeyError) as wrong:
            wrong.add_note(f"in the schedule {schedule}: {done}")
            raise
        count += 1
    assert count >= 4


def test_two_that_end_children_of_each_others_runs_do_not_wait_for_each_other(
    dsn: str, conn: Conn
) -> None:
    """Each ends its own run and a child of the other's, and both have their runs when they go on."""
    parents = [begin(conn, worker) for worker in ("w0", "w1")]
    for parent in parents:
        spawn(conn, parent)
    ended: dict[str, list[Any]] = {parent.worker: [parent] for parent in parents}
    for child in claim_all(conn, "w9", agent="kid"):
        [worker] = [p.worker for p in parents if p.run_id != child.parent]
        conn.execute(
            "update semel.run set worker_id = %s where run_id = %s", (worker, child.run_id)
        )
        ended[worker].append(child)
    calls = {
        worker: runs.run_complete("p", worker, [(c.run_id, c.fence, "1") for c in held])
        for worker, held in ended.items()
    }

    with ExitStack() as opened:
        gate = opened.enter_context(connect(dsn))
        pool = opened.enter_context(ThreadPoolExecutor(2))
        actors = {worker: opened.enter_context(connect(dsn)) for worker in calls}
        with gate.transaction():
            gate.execute("lock table semel.run_history in exclusive mode")
            told = [pool.submit(run, actors[w], call) for w, call in calls.items()]
            for actor in actors.values():
                until_blocked(conn, actor.info.backend_pid)
        outcomes = [answer.outcome for future in told for answer in future.result(30)]

    assert ["won"] * 4 == outcomes


def test_of_eight_that_decide_at_once_one_wins_and_seven_are_told(dsn: str, conn: Conn) -> None:
    held = begin(conn)
    question = asking()
    park(conn, held, question)
    fence = row(conn, held.run_id)["fence"]
    told: list[approvals.Decided] = []
    racers = [connect(dsn) for _ in range(8)]
    pids = [racer.info.backend_pid for racer in racers]

    def race(n: int) -> None:
        decision = "approve" if n % 2 else "reject"
        told.append(decide(racers[n], asked(question), decision, f"racer {n}"))

    threads = [threading.Thread(target=race, args=(n,)) for n in range(8)]
    with connect(dsn) as gate, gate.transaction():
        gate.execute("select from semel.run for update")
        for thread in threads:
            thread.start()
        until(
            lambda: one(
                conn,
                "select bool_and(pg_blocking_pids(pid) <> '{}') from unnest(%s::int[]) as pid",
                pids,
            )
        )
    for thread in threads:
        thread.join()
    for racer in racers:
        racer.close()

    assert Counter(won=1, already=7) == Counter(one_.outcome for one_ in told)
    assert {one(conn, "select state from semel.approvals")} == {one_.state for one_ in told}
    assert ("RESUMED", fence + 1) == (status(conn, held.run_id), row(conn, held.run_id)["fence"])
    assert 1 == one(conn, "select count(*) from semel.approval_vote")
    assert 1 == len(journal(conn, held.run_id))
