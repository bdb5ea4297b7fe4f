"""
A worker is killed at every place where it could be: another goes on, and nothing is done by both.

What commits with the journal happens exactly once. What a step does elsewhere happens once too, and
a second time only where the worker died between doing and journaling; then under the same key.
"""

import signal
from collections import Counter
from uuid import UUID

import pytest

from fix_world import Conn, Programs, one, row, start_run, status, until
from programs.kills import KILLS, UNDONE, UNKILLED, agent
from semel.core.transitions import run_cancel
from semel.db.execute import run

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]

QUICK = {"worker_lease": "3s", "worker_poll": "50ms"}  # dead after 1.5 s
#: Processes that start at a time.
AT_ONCE = 5
#: The step whose effect is repeated, by the stop point that loses its result.
REPEATED = {
    f"worker.step.before#{n}": step
    for n, step in [(1, "one"), (2, "two"), (3, "four"), (5, "five")]
}


def test_a_run_survives_a_kill_at_every_stop_point(conn: Conn, programs: Programs) -> None:
    conn.execute("create table public.business (run_id uuid, value int)")
    conn.execute("create table public.effect (run_id uuid, step text, key text)")
    runs = {kill: start_run(conn, agent(*kill)) for kill in [*KILLS, *UNKILLED]}
    doom(programs, list(runs))
    unkilled = [runs[kill] for kill in UNKILLED]
    until(lambda: {"COMPLETED"} == {status(conn, run_id) for run_id in unkilled})
    assert [1, 1, 6] == [row(conn, run_id)["attempt_count"] for run_id in unkilled]

    programs.upkeep(**QUICK)
    cancelled = [runs["undone", stop] for stop in UNDONE]
    until(lambda: {"PENDING"} == {status(conn, run_id) for run_id in cancelled})
    for run_id in cancelled:
        assert "won" == run(conn, run_cancel("p", run_id))[0]
    programs.worker(program="kills.py:every", **QUICK)
    until(
        lambda: not one(conn, "select count(*) from semel.runs where finished_at is null"), 120
    )

    for (kind, stop), run_id in runs.items():
        if kind == "beside":
            check_beside(conn, run_id)
        elif kind != "undone":
            check_done(conn, run_id, stop)
    check_undone(conn, {stop: runs["undone", stop] for stop in UNDONE})


def doom(programs: Programs, kills: list[tuple[str, str]]) -> None:
    """A worker for each of *kills*, which dies of it."""
    for start in range(0, len(kills), AT_ONCE):
        part = list(enumerate(kills))[start : start + AT_ONCE]
        workers = [
            (
                kill,
                programs.worker(
                    program=f"kills.py:app{n}", testing="1", stop_at=kill[1], worker_poll="50ms"
                ),
            )
            for n, kill in part
        ]
        for kill, worker in workers:
            if kill not in UNKILLED:
                assert (kill, -signal.SIGKILL) == (kill, worker.wait(30))


def check_done(conn: Conn, run_id: UUID, stop: str) -> None:
    """The result is right, and each effect is there as often as the stop point allows."""
    done = row(conn, run_id)
    assert (stop, "COMPLETED", [2, 4, 5, 10, "FIVE"]) == (stop, done["status"], done["result"])
    assert [(4,)] == conn.execute(
        "select value from public.business where run_id = %s", (run_id,)
    ).fetchall()
    effects = conn.execute(
        "select step, key from public.effect where run_id = %s", (run_id,)
    ).fetchall()
    want = Counter(["one", "two", "four", "five"])
    if stop in REPEATED:
        want[REPEATED[stop]] += 1
    assert (stop, want) == (stop, Counter(step for step, _ in effects))
    assert 4 == len(set(effects)) == len({key for _, key in effects})
    assert 1 == one(conn, "select count(*) from semel.runs where run_id = %s", run_id)


def check_beside(conn: Conn, run_id: UUID) -> None:
    """Of steps at once any may be repeated by the kill, under its own key."""
    assert ("COMPLETED", [2, 4, 12]) == (status(conn, run_id), row(conn, run_id)["result"])
    effects = Counter(
        conn.execute(
            "select step, key from public.effect where run_id = %s", (run_id,)
        ).fetchall()
    )
    assert ["last", "left", "right"] == sorted(step for step, _ in effects)
    assert {1, 2} >= set(effects.values())


def check_undone(conn: Conn, cancelled: dict[str, UUID]) -> None:
    """What may have been done is undone, and nothing else."""
    for stop, run_id in cancelled.items():
        undone = conn.execute(
            "select step from public.effect where run_id = %s and step like 'undo%%'", (run_id,)
        ).fetchall()
        assert (stop, [(UNDONE[stop],)] if UNDONE[stop] else []) == (stop, undone)
        compensations = conn.execute(
            "select status from semel.runs where parent_run_id = %s", (run_id,)
        ).fetchall()
        assert (stop, [("COMPLETED",)] if UNDONE[stop] else []) == (stop, compensations)
        assert "CANCELLED" == status(conn, run_id)
