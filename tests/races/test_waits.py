"""A wait and its answer, a decision and its rival, in every order of their transactions.

Whoever comes first, the other finds it: no run waits for what has come, none comes back twice, and
of two that decide one is told that it has.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest

from durable import (
    begin,
    cancel,
    claim,
    claim_all,
    complete,
    due,
    fail,
    hear,
    intent,
    join,
    journal,
    park,
    record,
    result,
    say,
    sleep,
    spawn,
    undo_of,
)
from fix_world import NOW, Conn, one, second, status, until_blocked
from modelling import TIMEOUT
from plays import Check, Play, Scene, does, every_order
from schedules import Calls
from semel.core import runs, transitions, undo
from semel.db.execute import run
from semel.db.pool import connect
from semel.model import Claim

pytestmark = pytest.mark.timeout(TIMEOUT)


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
    every_order(dsn, conn, scene, check)


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
            # They come to the questions of a run that ended before they tell its parent.
            gate.execute("update semel.run set has_wait = true")
        with gate.transaction():
            gate.execute("lock table semel.approval in exclusive mode")
            told = [pool.submit(run, actors[w], call) for w, call in calls.items()]
            for actor in actors.values():
                until_blocked(conn, actor.info.backend_pid)
        outcomes = [answer.outcome for future in told for answer in future.result(30)]

    assert ["won"] * 4 == outcomes
