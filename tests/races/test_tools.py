"""A call's answer and its rivals - another answer, the timeout, a cancel - in every order."""

import pytest

from durable import begin, cancel, claim, complete, due, fail, journal, park
from fix_world import Conn, one, status
from modelling import TIMEOUT
from plays import Check, Play, Scene, does, every_order
from schedules import Calls
from semel.core.approvals import Link
from semel.model import Claim
from tooling import TOOL, answer, ask, send

pytestmark = pytest.mark.timeout(TIMEOUT)


def sent(conn: Conn) -> tuple[Claim, Claim, Link, Link]:
    """A caller, its call that was sent, and two tokens that answer it."""
    caller = begin(conn)
    park(conn, caller, ask())
    held = claim(conn, "w2", agent=TOOL)
    links = (Link.mint("p"), Link.mint("p"))
    send(conn, held, repeatable=True, link=links[0])
    send(conn, held, repeatable=True, link=links[1])
    return caller, held, *links


def told(conn: Conn, play: Play) -> dict[str, object]:
    """What the caller was told, once."""
    [(_, _, content)] = journal(conn, play.run_id)
    del content["call_id"]
    return dict(content)


def an_answer_and_a_post(conn: Conn) -> dict[str, Calls]:
    _, held, link, _ = sent(conn)
    return {
        "worker": does("worker", lambda c: complete(c, held, {"result": 1})),
        "tool": does("tool", lambda c: answer(c, link, 2).outcome),
    }


def the_first_answer_stands(conn: Conn, play: Play) -> None:
    won = [name for name, said in play.said.items() if said == "won"]
    assert 1 == len(won)
    assert {"lost", "already"} >= set(play.said.values()) - {"won"}
    want = {"worker": 1, "tool": 2, "other": 3}[won[0]]
    assert ({"result": want}, "RESUMED") == (told(conn, play), status(conn, play.run_id))


def two_posts(conn: Conn) -> dict[str, Calls]:
    _, _, link, other = sent(conn)
    return {
        "tool": does("tool", lambda c: answer(c, link, 2).outcome),
        "other": does("other", lambda c: answer(c, other, 3).outcome),
    }


def a_post_and_the_timeout(conn: Conn) -> dict[str, Calls]:
    _, _, link, _ = sent(conn)
    return {
        "tool": does("tool", lambda c: answer(c, link, 2, at=59).outcome),
        "upkeep": does("due", lambda c: due(c, 60)),
    }


def an_answer_and_the_timeout(conn: Conn) -> dict[str, Calls]:
    _, held, _, _ = sent(conn)
    return {
        "worker": does("tool", lambda c: complete(c, held, {"result": 2}, at=59)),
        "upkeep": does("due", lambda c: due(c, 60)),
    }


def it_is_answered_or_in_vain(conn: Conn, play: Play) -> None:
    # A sweep passes over whom another holds: the next one finds it.
    if status(conn, play.run_id) == "WAITING_TOOL":
        assert 1 == due(conn, 60)
    in_vain = {"timed_out": True, "sent": True}
    assert ({"result": 2} if play.said["tool"] == "won" else in_vain) == told(conn, play)
    assert "RESUMED" == status(conn, play.run_id)
    [(ended,)] = conn.execute(
        "select status from semel.runs where agent = %s", (TOOL,)
    ).fetchall()
    assert ("COMPLETED" if play.said["tool"] == "won" else "CANCELLED") == ended


def a_post_and_a_cancel_of_the_caller(conn: Conn) -> dict[str, Calls]:
    caller, _, link, _ = sent(conn)
    return {
        "tool": does("tool", lambda c: answer(c, link, 2).outcome),
        "operator": does("cancel", lambda c: cancel(c, caller.run_id)[0]),
    }


def the_caller_is_cancelled(conn: Conn, play: Play) -> None:
    assert "won" == play.said["cancel"]
    assert "CANCELLED" == status(conn, play.run_id)
    assert play.said["tool"] in {"won", "already"}
    assert 0 == one(conn, "select count(*) from semel.wait")


def a_failure_and_a_post(conn: Conn) -> dict[str, Calls]:
    _, held, link, _ = sent(conn)
    return {
        "worker": does("fail", lambda c: fail(c, held)),
        "tool": does("tool", lambda c: answer(c, link, 2).outcome),
    }


def it_is_answered_or_unknown(conn: Conn, play: Play) -> None:
    unknown = {"unknown": "E-RUN-006 boom"}
    assert ({"result": 2} if play.said["tool"] == "won" else unknown) == told(conn, play)
    assert (play.said["tool"] == "won") == (play.said["fail"] == "lost")


SCENES: list[tuple[Scene, Check]] = [
    (an_answer_and_a_post, the_first_answer_stands),
    (two_posts, the_first_answer_stands),
    (a_post_and_the_timeout, it_is_answered_or_in_vain),
    (an_answer_and_the_timeout, it_is_answered_or_in_vain),
    (a_post_and_a_cancel_of_the_caller, the_caller_is_cancelled),
    (a_failure_and_a_post, it_is_answered_or_unknown),
]


@pytest.mark.parametrize(("scene", "check"), SCENES, ids=[s.__name__ for s, _ in SCENES])
def test_whoever_comes_first_the_other_finds_it(
    dsn: str, conn: Conn, scene: Scene, check: Check
) -> None:
    every_order(dsn, conn, scene, check)
