"""Versions: what one version of an agent's code began, that version alone goes on with."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from durable import begin, claim, complete, due, fail, hear, intent, park, record, say, undo_of
from fix_world import DEAD, LEASE, Conn, one, row, second, start_run
from semel.core import claims, recovery, runs, transitions, workers
from semel.db.execute import run
from semel.errors import BadRequest
from semel.model import Claim, Hint

LANES = (*range(11), *range(100, 111))


def take(
    conn: Conn, version: str = "", worker: str = "w", *, limit: int = 9, **more: Any
) -> list[Claim]:
    """Claim as a worker of *version* does: in each lane its own, then those that none began."""
    lanes = [lane for lane in LANES for _ in ("own", "fresh")] if version else LANES
    own = [True, False] * len(LANES) if version else []
    call = claims.run_claim(
        "p",
        "a",
        worker,
        limit=limit,
        lease=LEASE,
        lanes=lanes,
        version=version,
        own=own,
        **more,
    )
    return run(conn, call)


def ids(taken: Sequence[Claim]) -> list[UUID]:
    return [claim.run_id for claim in taken]


def version(conn: Conn, run_id: UUID) -> str:
    return str(row(conn, run_id)["version"])


def release(conn: Conn, held: Claim) -> None:
    run(conn, runs.run_release("p", held.worker, [(held.run_id, held.fence)]))


def looked(conn: Conn, told: str = "", **more: Any) -> list[Hint]:
    return run(conn, claims.run_hint(["a"], versions=[told], **more))


# -- pinning ---------------------------------------------------------------------------------


def test_the_first_claim_pins_a_run_to_the_version_of_its_worker(conn: Conn) -> None:
    run_id = start_run(conn)
    assert "" == version(conn, run_id)

    [held] = take(conn, "2")

    assert ("", "2") == (held.version, version(conn, run_id))
    release(conn, held)
    [again] = take(conn, "2")
    assert (run_id, "2") == (again.run_id, again.version)


def test_a_pinned_run_is_claimed_by_no_other_version_and_by_none_without(conn: Conn) -> None:
    run_id = start_run(conn)
    [held] = take(conn, "1")
    release(conn, held)

    assert [] == take(conn, "2") == take(conn, "") == take(conn, "10")
    assert ("PENDING", "1") == (row(conn, run_id)["status"], version(conn, run_id))
    assert [run_id] == ids(take(conn, "1"))


def test_what_a_worker_without_a_version_began_is_claimed_by_any_and_pinned_then(
    conn: Conn,
) -> None:
    run_id = start_run(conn)
    [held] = take(conn)
    assert "" == version(conn, run_id)
    release(conn, held)

    assert [run_id] == ids(take(conn, "2"))
    assert "2" == version(conn, run_id)


def test_a_run_keeps_its_version_through_waits_failures_and_lost_workers(conn: Conn) -> None:
    run_id = start_run(conn)
    [held] = take(conn, "1", now=second(0))
    park(conn, held, hear(), at=0)
    say(conn, run_id, at=1)
    assert [] == take(conn, "2", now=second(2))
    [held] = take(conn, "1", now=second(2))
    fail(conn, held, retryable=True, at=3)
    assert [] == take(conn, "2", now=second(4))
    [held] = take(conn, "1", now=second(4))
    run(conn, recovery.run_reap("p", dead_after=DEAD, trust=True, now=second(5000)))
    assert [] == take(conn, "2", now=second(5001))
    [held] = take(conn, "1", now=second(5001))
    assert "won" == complete(conn, held, at=5002)

    assert ("COMPLETED", "1") == (row(conn, run_id)["status"], version(conn, run_id))


def test_an_operators_retry_goes_to_the_version_that_began_it(conn: Conn) -> None:
    run_id = start_run(conn)
    [held] = take(conn, "1")
    fail(conn, held)

    assert "won" == run(conn, transitions.run_retry("p", run_id))[0]
    assert [] == take(conn, "2")
    assert [run_id] == ids(take(conn, "1"))


def test_a_compensation_has_the_version_of_its_run_and_a_new_start_has_none(conn: Conn) -> None:
    run_id = start_run(conn)
    [held] = take(conn, "1")
    record(conn, held, intent("pay"))
    fail(conn, held)

    assert [] == take(conn, "2")
    [undo] = take(conn, "1")
    assert (undo_of(conn, run_id), "undo", "1") == (undo.run_id, undo.kind, undo.version)
    outcome, _ = run(conn, transitions.run_retry("p", run_id))[:2]
    assert "new" == outcome
    [anew] = take(conn, "2")
    assert ("", "2") == (anew.version, version(conn, anew.run_id))


def test_an_agent_without_versions_knows_nothing_of_them(conn: Conn) -> None:
    held = begin(conn)
    assert ("", "") == (held.version, version(conn, held.run_id))
    complete(conn, held)
    assert "" == version(conn, held.run_id)


# -- order -----------------------------------------------------------------------------------


def test_what_is_resumed_goes_first_though_it_waits_in_another_queue(conn: Conn) -> None:
    waiting = start_run(conn, priority=0)
    [held] = take(conn, "1")
    park(conn, held, hear())
    urgent, late = start_run(conn, priority=9), start_run(conn, priority=1)
    say(conn, waiting)

    assert [waiting, urgent, late] == ids(take(conn, "1"))


def test_in_one_lane_what_has_begun_goes_ahead_and_a_limit_counts_both(conn: Conn) -> None:
    begun = start_run(conn)
    [held] = take(conn, "1")
    fresh = [start_run(conn), start_run(conn)]
    release(conn, held)

    assert [begun, fresh[0]] == ids(take(conn, "1", limit=2))
    assert [fresh[1]] == ids(take(conn, "1", limit=2))


def test_the_oldest_first_is_the_oldest_of_both_queues(conn: Conn) -> None:
    old = start_run(conn, priority=0)
    start_run(conn, priority=9)
    [held] = take(conn, "1", limit=1)
    release(conn, held)

    assert [old, held.run_id] == ids(take(conn, "1", oldest=True))


# -- hints -----------------------------------------------------------------------------------


def test_a_hint_tells_of_its_own_version_and_of_none(conn: Conn) -> None:
    for name in ("1", "2"):
        start_run(conn)
        [held] = take(conn, name)
        release(conn, held)
    start_run(conn)

    assert {""} == {hint.version for hint in looked(conn)}
    assert {"", "1"} == {hint.version for hint in looked(conn, "1")}
    assert {""} == {hint.version for hint in looked(conn, "3")}
    assert {"", "2"} == {
        hint.version for hint in run(conn, claims.run_hint(["b", "a"], versions=["1", "2"]))
    }
    assert {""} == {hint.version for hint in run(conn, claims.run_hint(["a"]))}


def test_a_hint_from_the_marks_looks_into_each_queue_apart(conn: Conn) -> None:
    start_run(conn)
    [held] = take(conn, "1")
    release(conn, held)
    now = one(conn, "select ready_at from semel.runs")
    marks = {("p", "a", "1", 5): now, ("p", "a", "", 5): now, ("p", "a", "2", 5): now}

    assert [("1", 5)] == [(h.version, h.lane) for h in looked(conn, "1", marks=marks)]
    start_run(conn)
    assert {"1", ""} == {hint.version for hint in looked(conn, "1", marks=marks)}


def test_what_is_due_is_made_ready_for_the_version_that_began_it(conn: Conn) -> None:
    run_id = start_run(conn)
    [held] = take(conn, "1", now=second(0))
    run(conn, runs.run_fail(held, "E-RUN-006", "boom", delay=LEASE, now=second(0)))

    assert 1 == due(conn, 400)
    assert [] == take(conn, "2", now=second(400))
    assert [run_id] == ids(take(conn, "1", now=second(400)))


# -- announcing ------------------------------------------------------------------------------


def register(conn: Conn, worker: str, versions: Sequence[str], **more: Any) -> None:
    served = [("a", 3, None, "async"), ("b", 3, None, "async")]
    call = workers.worker_register(
        "p", worker, host="h", pid=1, slots=4, agents=served, versions=versions, **more
    )
    run(conn, call)


def test_a_worker_announces_the_versions_it_serves_and_who_joins(conn: Conn) -> None:
    def said(worker: str) -> Any:
        return one(conn, "select versions from semel.workers where worker_id = %s", worker)

    def joining() -> list[str]:
        return [
            a for [a] in conn.execute("select agent from semel.agents where joins order by 1")
        ]

    register(conn, "w1", ["1", ""], joins=[False, True])
    assert (["a@1"], ["b"]) == (said("w1"), joining())
    register(conn, "w1", ["2", "x.y-z_0"], joins=[True, False])
    assert (["a@2", "b@x.y-z_0"], ["a"]) == (said("w1"), joining())
    register(conn, "w2", [])
    assert ([], []) == (said("w2"), joining())


@pytest.mark.parametrize("bad", ["a b", "v" * 65, "ä", "1@2", "\n", None])
def test_a_version_that_is_none_is_refused(conn: Conn, bad: str | None) -> None:
    start_run(conn)
    with pytest.raises(BadRequest, match="is no version"):
        register(conn, "w", [bad, ""])  # type: ignore[list-item]
    with pytest.raises(BadRequest, match="is no version"):
        take(conn, bad)  # type: ignore[arg-type]
    assert 1 == len(take(conn, "v" * 64))


def test_a_run_of_an_agent_that_nobody_knows_is_left_alone(conn: Conn) -> None:
    run_id = start_run(conn, "nobody")

    assert ([], [], []) == (take(conn), take(conn, "1"), looked(conn))
    run(conn, recovery.run_reap("p", dead_after=DEAD, trust=True))
    assert ("PENDING", 0) == (row(conn, run_id)["status"], row(conn, run_id)["attempt_count"])
    assert run_id == claim(conn, agent="nobody").run_id
