"""A decision and its rival - parking, expiry, a cancel, another decision - in every order."""

import threading
from collections import Counter

import pytest

from durable import (
    TTL,
    asked,
    asking,
    begin,
    cancel,
    claim,
    decide,
    due,
    hear,
    intent,
    journal,
    mint,
    park,
    record,
    say,
    undo_of,
)
from fix_world import NOW, Conn, one, row, status, until
from modelling import TIMEOUT
from plays import Check, Play, Scene, does, every_order
from schedules import Calls
from semel.core import approvals
from semel.core.approvals import Link
from semel.db.execute import run
from semel.db.pool import connect

pytestmark = pytest.mark.timeout(TIMEOUT)


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
    seen = (
        play.said["decide"],
        play.said["due"],
        state,
        status(conn, play.run_id),
        compensations,
    )
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
    seen = (
        play.said["decide"],
        play.said["cancel"],
        one(conn, "select state from semel.approvals"),
    )
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
    late = next(iter(play.said)) == "decide"
    assert (("gone", 0) if late else ("won", 1)) == (play.said["mint"], links)


SCENES: list[tuple[Scene, Check]] = [
    (parking_and_a_decision, a_decision_is_of_what_is_committed),
    (asking_again_and_a_decision, it_is_asked_once_and_decided_once),
    (a_decision_and_expiry, it_is_decided_or_expired),
    (a_decision_and_a_cancel, it_is_decided_before_or_void),
    (approving_and_rejecting, one_decides_and_the_other_is_told),
    (two_that_must_agree, the_second_decides),
    (minting_and_deciding, no_link_is_sent_after_the_decision),
]


@pytest.mark.parametrize(("scene", "check"), SCENES, ids=[s.__name__ for s, _ in SCENES])
def test_whoever_comes_first_the_other_finds_it(
    dsn: str, conn: Conn, scene: Scene, check: Check
) -> None:
    every_order(dsn, conn, scene, check)


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
    assert ("RESUMED", fence + 1) == (
        status(conn, held.run_id),
        row(conn, held.run_id)["fence"],
    )
    assert 1 == one(conn, "select count(*) from semel.approval_vote")
    assert 1 == len(journal(conn, held.run_id))
