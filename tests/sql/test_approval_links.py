"""Links: minted for the notification of a question, shown to who has one, dead with the decision."""

import json
from typing import Any
from uuid import uuid4

import pytest

from durable import (
    TTL,
    ask,
    asked,
    asking,
    begin,
    cancel,
    claim,
    claim_all,
    complete,
    decide,
    everything,
    fail,
    mint,
    park,
    read,
)
from fix_world import Conn, one, row, second, status
from semel.core import approvals
from semel.core.approvals import Link
from semel.db.execute import run
from semel.model import Claim

NOTIFY = "semel.notify"


def test_a_notification_for_each_recipient_is_made_with_the_question(conn: Conn) -> None:
    held, question = ask(conn, notify=("ann", "bob"))

    sent = claim_all(conn, agent=NOTIFY)

    told = [json.loads(claim.text) for claim in sent]
    assert [
        {"approval_id": str(asked(question)), "recipient": name} for name in ("ann", "bob")
    ] == sorted(told, key=lambda one: one["recipient"])
    assert {("notify", held.run_id, 9)} == {(c.kind, c.parent, c.priority) for c in sent}
    assert {second(TTL)} == {row(conn, c.run_id)["deadline_at"] for c in sent}


def test_the_end_of_a_notification_does_not_wake_the_run(conn: Conn) -> None:
    held, _ = ask(conn, notify=("ann", "bob"))
    first, last = claim_all(conn, agent=NOTIFY)
    complete(conn, first)
    fail(conn, last)
    assert "WAITING_APPROVAL" == status(conn, held.run_id)


def mint_as(conn: Conn, held: Claim, approval: Any, link: Link, at: float = 0) -> str:
    return run(
        conn,
        approvals.approval_mint(
            "p", held.worker, held.run_id, held.fence,
            approval_id=approval, recipient="ann", link=link, now=second(at),
        ),
    )  # fmt: skip


def test_a_link_is_kept_as_a_hash_and_shows_what_it_asks(conn: Conn) -> None:
    held, question = ask(conn, notify=("ann",), need=2)
    sender = claim(conn, agent=NOTIFY)
    link = Link.mint("p")

    assert ["won", "won"] == [mint_as(conn, sender, asked(question), link) for _ in range(2)]

    kept = conn.execute(
        "select token_hash::text, recipient from semel.approval_token"
    ).fetchall()
    assert [("\\x" + link.hash.hex(), "ann")] == kept
    assert link.secret not in str(everything(conn))
    shown = read(conn, link, at=60)
    assert shown
    assert (
        asked(question),
        held.run_id,
        "a",
        "restart",
        {"pod": "x"},
        "PENDING",
        2,
        "ann",
        840.0,
    ) == (
        shown.approval_id,
        shown.run_id,
        shown.agent,
        shown.title,
        shown.action,
        shown.state,
        shown.need,
        shown.recipient,
        shown.seconds_left,
    )


def test_reading_changes_nothing(conn: Conn) -> None:
    _, question = ask(conn)
    link = mint(conn, asked(question))
    before = everything(conn)
    for at in (0, TTL, 10 * TTL):
        read(conn, link, at=at)
    assert before == everything(conn)


@pytest.mark.parametrize("fate", ["decided", "expired", "void", "no such"])
def test_for_a_question_that_is_over_nothing_is_sent(conn: Conn, fate: str) -> None:
    held, question = ask(conn, notify=("ann",))
    sender = claim(conn, agent=NOTIFY)
    at, about = 0.0, asked(question)
    match fate:
        case "decided":
            decide(conn, about)
        case "expired":
            at = TTL
        case "void":
            cancel(conn, held.run_id)
        case _:
            about = uuid4()

    assert "gone" == mint_as(conn, sender, about, Link.mint("p"), at)
    assert 0 == one(conn, "select count(*) from semel.approval_token")


def test_all_links_are_dead_with_the_decision_and_tell_it(conn: Conn) -> None:
    _, question = ask(conn)
    links = [mint(conn, asked(question), name) for name in ("ann", "bob")]

    assert ["won", "already", "already"] == [
        decide(conn, link, decision).outcome
        for link, decision in [
            (links[0], "approve"),
            (links[0], "reject"),
            (links[1], "reject"),
        ]
    ]
    shown = read(conn, links[1])
    assert shown
    assert ("APPROVED", ["ann"]) == (shown.state, shown.decided_by)


def test_a_link_of_one_run_decides_no_other(conn: Conn) -> None:
    first, question = ask(conn)
    link = mint(conn, asked(question))
    held = begin(conn)
    park(conn, held, asking())

    assert "won" == decide(conn, link).outcome
    assert ("RESUMED", "WAITING_APPROVAL") == (
        status(conn, first.run_id),
        status(conn, held.run_id),
    )


@pytest.mark.parametrize(
    "token", ["", "p", "p.short", "P." + "a" * 43, "p." + "a" * 44, "p.é" + "a" * 42]
)
def test_what_is_no_token_is_no_link(token: str) -> None:
    assert None is Link.read(token)
    link = Link.mint("p")
    assert link == Link.read(link.token)
