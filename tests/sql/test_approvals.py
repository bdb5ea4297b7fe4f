"""Approvals: asked once, decided once, by who may, in time, about what was shown."""

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from durable import (
    MOMENT,
    TTL,
    ask,
    asked,
    asking,
    begin,
    cancel,
    claim,
    claim_all,
    decide,
    due,
    everything,
    hear,
    intent,
    journal,
    mint,
    park,
    read,
    record,
    say,
    undo_of,
)
from fix_world import Conn, one, row, second, status
from semel.core import approvals
from semel.core.approvals import Link
from semel.db.execute import run
from semel.errors import BadRequest

NOTIFY = "semel.notify"


def votes(conn: Conn) -> list[tuple[Any, ...]]:
    return conn.execute(
        "select voter, decision from semel.approval_vote order by voted_at, voter"
    ).fetchall()


# -- deciding --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "state"), [("approve", "APPROVED"), ("reject", "REJECTED")]
)
def test_a_decision_resumes_the_run_with_what_was_decided(
    conn: Conn, decision: str, state: str
) -> None:
    held, question = ask(conn)
    assert "WAITING_APPROVAL" == status(conn, held.run_id)

    won = decide(conn, asked(question), decision, "ann", reason="so it is", at=5)

    assert ("won", state, held.run_id, "a", second(5)) == (
        won.outcome,
        won.state,
        won.run_id,
        won.agent,
        won.decided_at,
    )
    again = claim(conn, at=5)
    assert 1 == again.attempt
    [(key, entry, content)] = journal(conn, held.run_id)
    assert ("ok", "result", decision, ["ann"], "so it is", "sha256:aa") == (
        key,
        entry,
        content["decision"],
        content["by"],
        content["reason"],
        content["digest"],
    )
    assert 0 == one(conn, "select count(*) from semel.waits")


@pytest.mark.parametrize("later", ["approve", "reject"])
def test_the_first_decision_wins_and_the_next_is_told_it(conn: Conn, later: str) -> None:
    _, question = ask(conn)
    decide(conn, asked(question), "approve", "ann", at=1)
    before = everything(conn)

    for voter in ("ann", "bob"):
        told = decide(conn, asked(question), later, voter, at=2)
        assert ("already", "APPROVED", second(1)) == (told.outcome, told.state, told.decided_at)
    assert before == everything(conn)


def test_a_decision_before_the_question_is_committed_is_about_nothing(
    conn: Conn, other: Conn
) -> None:
    held = begin(conn)
    question = asking()
    with other.transaction():
        park(other, held, question)
        assert "unknown" == decide(conn, asked(question)).outcome
        assert None is read(conn, asked(question))
    assert "won" == decide(conn, asked(question)).outcome


def test_an_id_or_a_link_that_nobody_has_is_unknown(conn: Conn) -> None:
    _, question = ask(conn)
    link = mint(conn, asked(question))
    altered = Link(project="p", secret=link.secret[::-1])
    before = everything(conn)

    for by in (uuid4(), altered, Link.mint("p")):
        told = decide(conn, by)
        assert ("unknown", None, None, None) == (
            told.outcome,
            told.state,
            told.run_id,
            told.agent,
        )
        assert None is read(conn, by)
    assert before == everything(conn)


def test_another_project_has_no_such_approval(conn: Conn) -> None:
    _, question = ask(conn)
    link = mint(conn, asked(question))
    for how in ({"link": link}, {"approval_id": asked(question)}):
        call = approvals.approval_decide("q", "approve", via="cli", voter="bob", **how)
        assert "unknown" == run(conn, call).outcome


# -- time ------------------------------------------------------------------------------------


def test_a_decision_is_in_time_until_the_moment_of_expiry_and_not_at_it(conn: Conn) -> None:
    for at, outcome in ((TTL - MOMENT.total_seconds(), "won"), (TTL, "expired")):
        held, question = ask(conn)
        assert outcome == decide(conn, asked(question), at=at).outcome
        cancel(conn, held.run_id)


def test_an_approval_expires_at_its_moment_and_not_before(conn: Conn) -> None:
    held, question = ask(conn)

    assert [0, "PENDING"] == [
        due(conn, TTL - MOMENT.total_seconds()),
        read(conn, asked(question)).state,  # type: ignore[union-attr]
    ]
    assert "EXPIRED" == read(conn, asked(question), TTL).state  # type: ignore[union-attr]
    assert 1 == due(conn, TTL)

    ended = row(conn, held.run_id)
    assert ("FAILED", "E-APPROVAL-002") == (ended["status"], ended["failure_code"])
    assert "'restart' was not decided before" in ended["failure_reason"]
    assert "EXPIRED" == one(conn, "select state from semel.approvals")
    assert [0, 0] == [due(conn, TTL), one(conn, "select count(*) from semel.waits")]


def test_an_expired_approval_is_decided_by_nobody(conn: Conn) -> None:
    held, question = ask(conn)
    assert "expired" == decide(conn, asked(question), at=TTL).outcome
    assert "WAITING_APPROVAL" == status(conn, held.run_id), "a late decision ends nothing"
    due(conn, TTL)
    before = everything(conn)

    told = decide(conn, asked(question), at=1)

    assert ("expired", "EXPIRED") == (told.outcome, told.state)
    assert before == everything(conn)


def test_expiry_undoes_what_the_run_did(conn: Conn) -> None:
    held = begin(conn)
    record(conn, held, intent("s"))
    park(conn, held, asking())

    due(conn, TTL)

    undo = row(conn, undo_of(conn, held.run_id))
    assert (
        "PENDING",
        "undo",
        {"run_id": str(held.run_id), "status": "FAILED", "code": "E-APPROVAL-002"},
    ) == (
        undo["status"],
        undo["kind"],
        undo["input"],
    )
    assert undo["run_id"] == claim(conn, at=TTL).run_id


def test_an_approval_expires_while_its_run_is_back_for_another_wait(conn: Conn) -> None:
    """The run is not failed at work; it is when it waits again."""
    held = begin(conn)
    question = asking()
    park(conn, held, question, hear())
    say(conn, held.run_id)
    again = claim(conn)

    assert 0 == due(conn, TTL)
    assert "expired" == decide(conn, asked(question), at=TTL).outcome
    assert [("ok", "parked", None)] == park(conn, again, question, at=TTL)
    assert [1, "FAILED"] == [due(conn, TTL), status(conn, held.run_id)]


def test_a_decision_in_time_beats_the_sweep_that_comes_late(conn: Conn) -> None:
    held, question = ask(conn)
    decide(conn, asked(question), at=TTL - 1)

    assert 0 == due(conn, TTL + 100)
    assert "RESUMED" == status(conn, held.run_id)


# -- what is decided upon, and by whom -------------------------------------------------------


def test_who_saw_something_else_decides_nothing(conn: Conn) -> None:
    _, question = ask(conn, digest="sha256:shown")
    before = everything(conn)

    assert "void" == decide(conn, asked(question), digest="sha256:other").outcome

    assert before == everything(conn)
    assert "won" == decide(conn, asked(question), digest="sha256:shown").outcome


def test_the_same_question_asked_again_is_the_same_and_sends_nothing(conn: Conn) -> None:
    held = begin(conn)
    first = asking(notify=("ann", "bob"))
    park(conn, held, first, hear())
    say(conn, held.run_id)
    again = claim(conn)

    park(conn, again, asking(notify=("ann", "bob")), at=100)

    assert [(asked(first), "PENDING", second(TTL))] == conn.execute(
        "select approval_id, state, expires_at from semel.approvals"
    ).fetchall()
    assert 2 == len(claim_all(conn, agent=NOTIFY))


def test_another_question_in_its_place_makes_the_old_one_void(conn: Conn) -> None:
    held = begin(conn)
    first, other = asking(digest="sha256:1"), asking(digest="sha256:2")
    park(conn, held, first, hear())
    say(conn, held.run_id)
    again = claim(conn)

    park(conn, again, other, at=100)

    assert second(TTL + 100) == row(conn, held.run_id)["due_at"]
    assert "void" == decide(conn, asked(first), at=101).outcome
    assert [0, "WAITING_APPROVAL"] == [due(conn, TTL), status(conn, held.run_id)]
    assert "won" == decide(conn, asked(other), at=TTL + 99).outcome


@pytest.mark.parametrize("end", ["CANCELLED", "FAILED"])
def test_after_the_run_has_ended_its_question_is_void(conn: Conn, end: str) -> None:
    held, question = ask(conn)
    link = mint(conn, asked(question))
    if end == "CANCELLED":
        cancel(conn, held.run_id)
    else:
        conn.execute("update semel.run set deadline_at = %s", (second(0),))
        conn.execute("select semel.run_overdue('p', p_now => %s)", (second(1),))
    before = everything(conn)

    for by in (link, asked(question)):
        told = decide(conn, by, at=2)
        assert ("void", "VOID") == (told.outcome, told.state)
    assert end == status(conn, held.run_id)
    assert before == everything(conn)


def test_only_who_is_named_may_decide(conn: Conn) -> None:
    _, question = ask(conn, approvers=("ann", "bob"))
    before = everything(conn)

    for decision in ("approve", "reject"):
        assert "refused" == decide(conn, asked(question), decision, "eve").outcome
    assert before == everything(conn)
    assert "won" == decide(conn, asked(question), "approve", "bob").outcome


def test_four_eyes_who_asked_may_not_decide(conn: Conn) -> None:
    _, question = ask(conn, requester="ann")
    link = mint(conn, asked(question), "ann")

    assert ["refused", "refused"] == [
        decide(conn, by, "approve", "ann").outcome for by in (asked(question), link)
    ]
    assert [] == votes(conn)
    assert "won" == decide(conn, asked(question), "approve", "bob").outcome


def test_a_question_to_nobody_in_particular_may_be_decided_by_anyone(conn: Conn) -> None:
    _, question = ask(conn)
    assert "won" == decide(conn, asked(question), "reject", "whoever").outcome


def test_n_of_m_takes_n_people_and_not_one_of_them_twice(conn: Conn) -> None:
    held, question = ask(conn, need=2, approvers=("ann", "bob", "cho"))

    told = [
        decide(conn, asked(question), "approve", v, at=n) for n, v in enumerate(["ann", "ann"])
    ]
    assert [("voted", "PENDING")] * 2 == [(t.outcome, t.state) for t in told]
    assert 1 == read(conn, asked(question)).approvals  # type: ignore[union-attr]
    assert "WAITING_APPROVAL" == status(conn, held.run_id)

    assert "won" == decide(conn, asked(question), "approve", "cho", at=2).outcome
    assert ["ann", "cho"] == journal(conn, held.run_id)[0][2]["by"]
    assert "already" == decide(conn, asked(question), "approve", "bob", at=3).outcome
    assert [("ann", "approve"), ("cho", "approve")] == votes(conn)


def test_one_rejection_is_enough_also_by_who_approved_before(conn: Conn) -> None:
    for voter in ("ann", "bob"):
        held, question = ask(conn, need=2)
        decide(conn, asked(question), "approve", "ann", at=1)

        told = decide(conn, asked(question), "reject", voter, reason="no", at=2)

        assert ("won", "REJECTED") == (told.outcome, told.state)
        assert ("reject", "no") == tuple(
            journal(conn, held.run_id)[0][2][k] for k in ("decision", "reason")
        )
        cancel(conn, held.run_id)


def test_who_decided_is_kept_with_how_and_from_where(conn: Conn) -> None:
    _, question = ask(conn)
    link = mint(conn, asked(question), "bob", at=1)

    decide(conn, link, "approve", "mallory", address="192.0.2.1", user_agent="UA", at=2)

    [(voted, links)] = conn.execute("select votes, links from semel.approvals").fetchall()
    [vote] = voted
    assert ("bob", "approve", "192.0.2.1") == (vote["voter"], vote["decision"], vote["address"])
    assert ["bob"] == [sent["recipient"] for sent in links]
    assert "UA" == one(conn, "select user_agent from semel.approval_vote")


# -- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ["", "yes", "APPROVE", None])
def test_a_decision_is_one_of_two_words(conn: Conn, decision: Any) -> None:
    _, question = ask(conn)
    before = everything(conn)
    with pytest.raises(BadRequest, match="Decide approve or reject"):
        decide(conn, asked(question), decision)
    assert before == everything(conn)


def test_a_decision_by_an_id_says_who_decides(conn: Conn) -> None:
    _, question = ask(conn)
    with pytest.raises(BadRequest, match="Say who decides"):
        decide(conn, asked(question), "approve", None)
    assert [] == votes(conn)


def test_a_question_needs_at_least_one_person(conn: Conn) -> None:
    held = begin(conn)
    with pytest.raises(psycopg.errors.CheckViolation, match="approval_needs_someone"):
        park(conn, held, asking(need=0))
    assert "RUNNING" == status(conn, held.run_id)
