"""Approvals on real workers: asked once, sent once, decided once, whatever dies and whoever's clock is wrong."""

import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from fix_world import PROGRAMS, Conn, Programs, one, row, start_run, status, until
from provider import provider
from semel.core.approvals import Decided, Link, approval_decide
from semel.db.execute import run
from semel.db.pool import connect

pytestmark = pytest.mark.crash

QUICK = {"worker_lease": "3s", "worker_poll": "50ms"}  # dead after 1.5 s
ASKS = str(PROGRAMS / "durable.py")


def words(conn: Conn, run_id: UUID) -> list[str]:
    rows = conn.execute(
        "select word from public.started where run_id = %s order by at", (run_id,)
    )
    return [word for [word] in rows]


def question(conn: Conn, run_id: UUID) -> UUID:
    """What *run_id* asks, once it does."""
    until(lambda: status(conn, run_id) == "WAITING_APPROVAL")
    found: UUID = one(conn, "select approval_id from semel.approvals where run_id = %s", run_id)
    return found


def ended(conn: Conn, run_id: UUID) -> dict[str, Any]:
    until(lambda: row(conn, run_id)["finished_at"])
    return row(conn, run_id)


@pytest.mark.parametrize("stop", ["worker.park.before", "worker.park.after"])
def test_a_worker_that_dies_between_asking_and_sending_leaves_one_request(
    conn: Conn, programs: Programs, tmp_path: Path, stop: str
) -> None:
    run_id = start_run(conn, "asks")
    with provider() as here:
        here.answer(200)
        config = tmp_path / "semel.toml"
        config.write_text(
            f'[notifiers.ops]\nkind = "webhook"\nurl = "{here.url}/hook"\n'
            "allow_private = true\nallow_http = true\n"
            '[approvals]\nnotify = ["ops"]\n'
        )
        told = {"config": str(config), **QUICK}
        doomed = programs.semel("worker", ASKS, testing="1", stop_at=stop, **told)
        assert -signal.SIGKILL == doomed.wait(30)
        asked = 1 if stop == "worker.park.after" else 0
        assert asked == one(conn, "select count(*) from semel.approvals")
        assert asked == one(
            conn, "select count(*) from semel.runs where agent = 'semel.notify'"
        )
        assert [] == here.got

        programs.upkeep(**QUICK)
        programs.semel("worker", ASKS, **told)

        notice = "select status from semel.runs where agent = 'semel.notify'"
        until(lambda: conn.execute(notice).fetchall() == [("COMPLETED",)])
        [got] = here.got
        sent = got.json()["data"]
        assert str(question(conn, run_id)) == sent["approval_id"]
        link = Link.read(sent["link"].rpartition("/")[2])
        decided = run(conn, approval_decide("p", "approve", via="link", link=link))
        assert "won" == decided.outcome
        assert ("COMPLETED", ["ops"]) == (
            ended(conn, run_id)["status"],
            row(conn, run_id)["result"],
        )
        assert 1 == len(here.got)
    assert ["before", "act"] == words(conn, run_id)
    assert 1 == one(conn, "select count(*) from semel.approvals")


def test_of_many_that_decide_at_once_one_wins_and_the_run_goes_on_once(
    dsn: str, conn: Conn, programs: Programs
) -> None:
    """Two clicks of each of four people, of whom two approve and two reject."""
    programs.worker(program="durable.py", **QUICK)
    runs = [start_run(conn, "asks") for _ in range(4)]
    asked = [question(conn, run_id) for run_id in runs]

    def decide(nth: int, approval: UUID) -> Decided:
        with connect(dsn) as mine:
            return run(
                mine,
                approval_decide(
                    "p",
                    "approve" if nth % 2 else "reject",
                    via="api",
                    approval_id=approval,
                    voter=f"person {nth % 4}",
                ),
            )

    for run_id, approval in zip(runs, asked, strict=True):
        with ThreadPoolExecutor(8) as people:
            told = list(people.map(lambda nth, of=approval: decide(nth, of), range(8)))
        assert Counter(won=1, already=7) == Counter(one.outcome for one in told)
        [state] = {one.state for one in told}
        done = ended(conn, run_id)
        if state == "APPROVED":
            assert (["before", "act"], 1) == (words(conn, run_id), len(done["result"]))
        else:
            assert ["before"] == words(conn, run_id)
            assert "was rejected by" in done["result"]
        assert 1 == one(
            conn,
            "select count(*) from semel.steps where run_id = %s and kind = 'approval'",
            run_id,
        )


@pytest.mark.parametrize("ahead", [600, -600])
def test_the_clock_of_the_worker_says_nothing_of_when_an_approval_is_over(
    conn: Conn, programs: Programs, ahead: int
) -> None:
    programs.skewed(ahead, "durable.py", **QUICK)
    programs.upkeep(**QUICK)
    short = start_run(conn, "asks", {"seconds": 1})
    long = start_run(conn, "asks", {"seconds": 300})

    late = ended(conn, short)
    assert ("FAILED", "E-APPROVAL-002") == (late["status"], late["failure_code"])
    assert ["before"] == words(conn, short)
    lasted = "select extract(epoch from expires_at - created_at), decided_at >= expires_at from semel.approvals where run_id = %s"
    assert (1, True) == conn.execute(lasted, (short,)).fetchone()
    expired = one(conn, "select approval_id from semel.approvals where run_id = %s", short)
    told = approval_decide("p", "approve", via="cli", approval_id=expired, voter="alice")
    assert "expired" == run(conn, told).outcome

    told = approval_decide(
        "p", "approve", via="cli", approval_id=question(conn, long), voter="alice"
    )
    assert "won" == run(conn, told).outcome
    assert ("COMPLETED", ["alice"]) == (
        ended(conn, long)["status"],
        row(conn, long)["result"],
    )
    assert (300, False) == conn.execute(lasted, (long,)).fetchone()
