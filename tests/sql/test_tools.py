"""Tool calls in SQL: asked once, sent as often as allowed, answered once, whoever answers."""

import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from durable import begin, cancel, claim, claim_all, complete, due, fail, journal, park, sleep
from fix_world import Conn, one, second, status
from semel.core import runs, tools, transitions, upkeep
from semel.core.approvals import Link
from semel.core.tools import Leave
from semel.core.waits import Wait
from semel.db.execute import run
from semel.errors import BadRequest
from semel.model import Claim
from tooling import TOOL, answer, ask, asking, send, unsend


def told(conn: Conn, caller: Claim, key: str = "pods") -> Any:
    """What the caller's step was told; None: nothing yet."""
    found = [
        content
        for k, entry, content in journal(conn, caller.run_id)
        if (k, entry) == (key, "result")
    ]
    if found:
        found[0].pop("call_id")
    return found[0] if found else None


def tool(conn: Conn, *columns: str) -> tuple[Any, ...]:
    """Of the only call."""
    [shown] = conn.execute("select to_jsonb(t) from semel.tools as t").fetchall()
    return tuple(shown[0][column] for column in columns)


def again(conn: Conn, held: Claim, at: float = 0) -> Claim:
    """The same run claimed again, after its worker gave it back."""
    run(conn, runs.run_release("p", held.worker, [(held.run_id, held.fence)], now=second(at)))
    return claim(conn, "w3", agent=TOOL, at=at)


def test_the_run_that_makes_a_call_is_there_with_the_wait_and_knows_what_is_asked(
    conn: Conn,
) -> None:
    caller = begin(conn, priority=8)
    park(conn, caller, ask(arguments={"ns": "web"}, callback=True, attempts=7))
    held = claim(conn, "w2", agent=TOOL)
    assert ("WAITING_TOOL", caller.run_id) == (status(conn, caller.run_id), held.parent)
    want = {
        "server": "cluster",
        "tool": "list",
        "arguments": {"ns": "web"},
        "key": "k",
        "callback": True,
    }
    assert want == json.loads(held.text)
    assert [(7, 8, second(60 + 60))] == conn.execute(
        "select max_attempts, priority, deadline_at from semel.runs where run_id = %s",
        (held.run_id,),
    ).fetchall()
    assert ("ASKED", str(held.run_id), 0) == tool(conn, "state", "call_id", "sends")


def test_what_the_call_answers_is_what_the_caller_is_told(conn: Conn) -> None:
    for n, (result, want, state) in enumerate(
        [
            ({"result": [1]}, {"result": [1]}, "ANSWERED"),
            ({"error": {"message": "no"}}, {"error": {"message": "no"}}, "FAILED"),
            ({"rejected": "no"}, {"rejected": "no"}, "FAILED"),
            ({"refused": "no"}, {"refused": "no"}, "REFUSED"),
            ({"unknown": "no"}, {"unknown": "no"}, "UNKNOWN"),
        ]
    ):
        caller = begin(conn)
        park(conn, caller, ask())
        held = claim(conn, "w2", agent=TOOL)
        send(conn, held)
        assert "won" == complete(conn, held, result, at=n + 1)
        assert (want, "RESUMED") == (told(conn, caller), status(conn, caller.run_id))
        assert [(state, "call", second(n + 1))] == conn.execute(
            "select state, via, answered_at from semel.tools where run_id = %s",
            (caller.run_id,),
        ).fetchall()
        complete(conn, claim(conn))


def test_the_intent_of_a_call_promises_no_undo(conn: Conn) -> None:
    _, held = asking(conn)
    send(conn, held)
    fail(conn, held)
    assert 0 == one(conn, "select count(*) from semel.runs where kind = 'undo'")
    [(key, entry, content)] = journal(conn, held.run_id)
    assert ("call", "intent", 1, False) == (key, entry, content["send"], content["repeatable"])


def test_a_call_that_was_sent_and_not_answered_is_not_sent_again(conn: Conn) -> None:
    _, held = asking(conn)
    assert Leave(outcome="won", repeatable=False, seconds_left=60.0) == send(conn, held)
    # Though the tool should say otherwise meanwhile.
    assert "sent" == send(conn, again(conn, held), repeatable=True).outcome
    assert ("SENT", 1) == tool(conn, "state", "sends")


def test_a_call_that_may_be_repeated_is_as_its_tool_said_at_first(conn: Conn) -> None:
    _, held = asking(conn)
    assert send(conn, held, repeatable=True).repeatable
    leave = send(conn, again(conn, held, 1), repeatable=False, at=1)
    assert Leave(outcome="won", repeatable=True, seconds_left=59.0) == leave
    assert ("SENT", 2, True) == tool(conn, "state", "sends", "repeatable")
    assert "2026-11-30T12:00:00+00:00" == tool(conn, "sent_at")[0]


def test_a_sealed_state_is_resumed_once_whatever_the_tool_allows(conn: Conn) -> None:
    _, held = asking(conn)
    send(conn, held, repeatable=True)
    assert Leave(outcome="won", repeatable=False, seconds_left=60.0) == send(
        conn, held, 1, repeatable=True
    )
    held = again(conn, held)
    assert ["sent", "sent"] == [
        send(conn, held, turn, repeatable=True).outcome for turn in (1, 0)
    ]
    assert ["won", "sent"] == [send(conn, held, 2).outcome for _ in range(2)]
    assert "sent" == send(conn, held, 4).outcome


def test_what_never_left_is_not_sent(conn: Conn) -> None:
    _, held = asking(conn)
    send(conn, held)
    assert "won" == unsend(conn, held)
    assert ("ASKED", 0, None) == tool(conn, "state", "sends", "sent_at")
    assert send(conn, again(conn, held), repeatable=True).repeatable  # as if for the first time


def test_of_several_sendings_one_may_have_arrived(conn: Conn) -> None:
    _, held = asking(conn)
    send(conn, held, repeatable=True)
    held = again(conn, held)
    send(conn, held)
    unsend(conn, held)
    assert ("SENT", 1) == tool(conn, "state", "sends")
    fail(conn, held)
    assert ("UNKNOWN",) == tool(conn, "state")


def test_a_resumption_that_never_left_may_be_sent(conn: Conn) -> None:
    _, held = asking(conn)
    send(conn, held)
    send(conn, held, 1)
    unsend(conn, held, 1)
    assert "won" == send(conn, held, 1).outcome
    assert ("SENT", 2) == tool(conn, "state", "sends")


def test_only_who_holds_the_call_sends_it_or_takes_it_back(conn: Conn) -> None:
    _, held = asking(conn)
    own = again(conn, held)
    newer = again(conn, own)
    assert own.worker == newer.worker
    assert ["lost", "lost"] == [send(conn, old).outcome for old in (held, own)]
    stranger = newer.__class__(
        **{f: getattr(newer, f) for f in newer.__slots__} | {"worker": "w9"}
    )
    assert "lost" == send(conn, stranger).outcome
    send(conn, newer)
    assert ["lost"] * 3 == [unsend(conn, one) for one in (held, own, stranger)]
    assert ("SENT", 1) == tool(conn, "state", "sends")


def test_nothing_is_sent_that_nobody_waits_for(conn: Conn) -> None:
    caller, held = asking(conn)
    cancel(conn, caller.run_id)
    assert "gone" == send(conn, held).outcome
    assert ("VOID", 0) == tool(conn, "state", "sends")


def test_what_was_sent_for_nobody_is_not_void(conn: Conn) -> None:
    caller, held = asking(conn)
    send(conn, held, repeatable=True)
    cancel(conn, caller.run_id)
    assert "gone" == send(conn, again(conn, held), repeatable=True).outcome
    assert ("SENT", 1) == tool(conn, "state", "sends")


def test_nothing_is_sent_when_its_time_is_over(conn: Conn) -> None:
    caller, held = asking(conn)
    assert "gone" == send(conn, held, at=60).outcome
    complete(conn, held, {"void": True}, at=60)
    assert {"timed_out": True, "sent": False} == told(conn, caller)
    assert ("TIMED_OUT",) == tool(conn, "state")


@pytest.mark.parametrize("sent", [False, True])
def test_a_timeout_is_told_to_the_caller_and_ends_the_call(conn: Conn, *, sent: bool) -> None:
    caller, held = asking(conn)
    if sent:
        send(conn, held)
    assert 0 == due(conn, 59.9)
    assert 1 == due(conn, 60)
    assert ({"timed_out": True, "sent": sent}, "RESUMED") == (
        told(conn, caller), status(conn, caller.run_id),
    )  # fmt: skip
    assert "CANCELLED" == status(conn, held.run_id)
    assert "lost" == complete(conn, held, {"result": 1}, at=61)
    assert {"timed_out": True, "sent": sent} == told(conn, caller)
    assert ("TIMED_OUT",) == tool(conn, "state")


def test_a_call_whose_run_fails_is_unknown_once_it_was_sent_and_else_not_called(
    conn: Conn,
) -> None:
    for sent, key in ((True, "unknown"), (False, "refused")):
        caller = begin(conn)
        park(conn, caller, ask())
        held = claim(conn, "w2", agent=TOOL)
        if sent:
            send(conn, held)
        fail(conn, held, "E-TOOL-005")
        assert {key: "E-TOOL-005 boom"} == told(conn, caller)
        complete(conn, claim(conn))


def test_a_consent_that_nobody_gave_in_time_is_an_error_of_the_tool(conn: Conn) -> None:
    caller, held = asking(conn)
    send(conn, held)
    fail(conn, held, "E-APPROVAL-002")
    assert "E-APPROVAL-002" == told(conn, caller)["error"]["code"]


def test_asked_again_a_call_that_was_answered_meanwhile_is_not_made_again(conn: Conn) -> None:
    caller = begin(conn)
    park(conn, caller, ask(), sleep(due=5))
    held = claim(conn, "w2", agent=TOOL)
    due(conn, 5)
    caller = claim(conn, at=5)
    send(conn, held, at=6)
    complete(conn, held, {"result": 3}, at=6)
    [(key, outcome, content)] = park(conn, caller, ask(), at=7)
    assert ("pods", "ready", 3) == (key, outcome, json.loads(content or "")["result"])
    assert 1 == one(conn, "select count(*) from semel.runs where agent = %s", TOOL)


def test_a_caller_that_is_retried_finds_the_call_it_had_made(conn: Conn) -> None:
    caller, held = asking(conn)
    send(conn, held)
    cancel(conn, caller.run_id)
    run(conn, transitions.run_retry("p", caller.run_id, now=second(1)))
    caller = claim(conn, at=1)
    park(conn, caller, ask(), at=1)
    assert [] == claim_all(conn, "w3", agent=TOOL, at=1)
    complete(conn, held, {"result": 3}, at=2)
    assert {"result": 3} == told(conn, caller)


def test_a_caller_that_is_retried_is_told_that_its_call_may_have_acted(conn: Conn) -> None:
    caller, held = asking(conn)
    send(conn, held)
    cancel(conn, caller.run_id)
    fail(conn, held)
    run(conn, transitions.run_retry("p", caller.run_id, now=second(1)))
    caller = claim(conn, at=1)
    [(_, outcome, _)] = park(conn, caller, ask(), at=1)
    assert ("ready", {"unknown": "E-RUN-006 boom"}) == (outcome, told(conn, caller))
    assert [] == claim_all(conn, "w3", agent=TOOL, at=1)


def test_a_caller_that_is_retried_asks_anew_for_what_was_never_sent(conn: Conn) -> None:
    caller, held = asking(conn)
    cancel(conn, caller.run_id)
    send(conn, held)
    complete(conn, held, {"void": True})
    run(conn, transitions.run_retry("p", caller.run_id, now=second(1)))
    caller = claim(conn, at=1)
    park(conn, caller, ask(), at=1)
    newer = claim(conn, "w3", agent=TOOL, at=1)
    assert newer.run_id != held.run_id
    assert "won" == send(conn, newer, at=1).outcome
    complete(conn, newer, {"result": 4}, at=1)
    assert {"result": 4} == told(conn, caller)


def test_what_a_tool_answers_later_ends_the_call_and_a_second_answer_is_told_so(
    conn: Conn,
) -> None:
    caller, held = asking(conn)
    link = Link.mint("p")
    send(conn, held, link=link)
    first = answer(conn, link, {"ok": True}, at=1)
    assert ("won", held.run_id, caller.run_id, "ANSWERED", "a") == (
        first.outcome, first.call_id, first.run_id, first.state, first.agent,
    )  # fmt: skip
    assert ({"result": {"ok": True}}, "RESUMED") == (
        told(conn, caller),
        status(conn, caller.run_id),
    )
    assert "already" == answer(conn, link, 2, at=2).outcome
    assert "lost" == complete(conn, held, {"result": 3}, at=2)
    assert {"result": {"ok": True}} == told(conn, caller)
    assert ("callback", "COMPLETED") == (*tool(conn, "via"), status(conn, held.run_id))


def test_what_the_call_itself_answered_is_the_answer(conn: Conn) -> None:
    caller, held = asking(conn)
    link = Link.mint("p")
    send(conn, held, link=link)
    complete(conn, held, {"result": 1})
    assert "already" == answer(conn, link, 2).outcome
    assert ({"result": 1}, "call") == (told(conn, caller), *tool(conn, "via"))


def test_an_answer_finds_a_call_that_is_parked_for_it(conn: Conn) -> None:
    caller, held = asking(conn)
    link = Link.mint("p")
    send(conn, held, link=link)
    wait = Wait(key="answer", kind="answer")
    assert [("answer", "parked", None)] == park(conn, held, wait)
    assert 0 == due(conn, 59)
    assert "won" == answer(conn, link, at=59).outcome
    assert {"result": 1} == told(conn, caller)
    assert 0 == one(conn, "select count(*) from semel.wait")


def test_each_token_that_was_given_away_answers(conn: Conn) -> None:
    _, held = asking(conn)
    first, last = Link.mint("p"), Link.mint("p")
    send(conn, held, repeatable=True, link=first)
    send(conn, again(conn, held), link=last)
    assert ["won", "already"] == [answer(conn, link).outcome for link in (first, last)]


def test_nothing_answers_a_call_whose_time_is_over_or_that_nobody_waits_for(conn: Conn) -> None:
    caller, held = asking(conn)
    link = Link.mint("p")
    send(conn, held, link=link)
    assert "already" == answer(conn, link, at=60).outcome
    cancel(conn, caller.run_id)
    assert "already" == answer(conn, link, at=1).outcome
    assert "RUNNING" == status(conn, held.run_id)
    assert "unknown" == answer(conn, Link.mint("p")).outcome
    assert None is told(conn, caller)


def test_an_answer_is_a_result_or_an_error(conn: Conn) -> None:
    bads: list[Any] = [{}, [], {"results": 1}]
    for bad in bads:
        with pytest.raises(psycopg.Error) as refused:
            conn.execute("select semel.tool_answer('p', 'x', %s)", (json.dumps(bad),))
        assert "SMQ01" == refused.value.sqlstate


def test_an_agent_that_is_called_as_a_tool_answers_its_result_or_why_it_ended(
    conn: Conn,
) -> None:
    caller = begin(conn)
    park(conn, caller, ask(server="agents", tool="kid", arguments=[7], attempts=None))
    kid = claim(conn, "w2", agent="kid")
    assert [7] == json.loads(kid.text)
    complete(conn, kid, 49)
    assert {"result": 49} == told(conn, caller)
    complete(conn, claim(conn))
    caller = begin(conn)
    park(conn, caller, ask(server="agents", tool="kid", attempts=None))
    fail(conn, claim(conn, "w2", agent="kid"), "E-RUN-006")
    assert "E-RUN-006" == told(conn, caller)["error"]["code"]
    complete(conn, claim(conn))
    caller = begin(conn)
    park(conn, caller, ask(server="agents", tool="kid", attempts=None))
    kid = claim(conn, "w2", agent="kid")
    complete(conn, kid, {"void": 1})
    assert {"result": {"void": 1}} == told(conn, caller)


def test_a_function_is_called_by_who_has_it(conn: Conn) -> None:
    caller = begin(conn)
    park(conn, caller, ask(server="app", tool="fee"))
    assert [] == claim_all(conn, "w2", agent=TOOL)
    held = claim(conn, "w2", agent="semel.tool.fee")
    assert "won" == send(conn, held).outcome
    complete(conn, held, {"result": 5})
    assert {"result": 5} == told(conn, caller)


def test_none_of_semels_own_agents_is_a_tool(conn: Conn) -> None:
    caller = begin(conn)
    with pytest.raises(BadRequest):
        park(conn, caller, ask(server="agents", tool="semel.notify", attempts=None))


def test_calls_and_their_tokens_go_with_the_runs_they_belong_to(conn: Conn) -> None:
    _, held = asking(conn)
    send(conn, held, link=Link.mint("p"))
    conn.execute("delete from semel.run")
    week = timedelta(days=7)
    for at, left in ((0, 1), (8 * 86400, 0)):
        run(conn, upkeep.leftovers_drop("p", week, week, now=second(at)))
        counts = [
            one(conn, f"select count(*) from semel.{name}") for name in ("tool", "tool_token")
        ]
        assert [left, left] == counts


def test_the_project_is_asked_for(conn: Conn) -> None:
    _, held = asking(conn)
    link = Link.mint("p")
    send(conn, held, link=link)
    other = tools.tool_answer("q", link, {"result": 1})
    assert "unknown" == run(conn, other).outcome
    for call in (
        tools.tool_send("", "w", held.run_id, 1, turn=0, repeatable=False),
        tools.tool_unsend("", "w", held.run_id, 1, turn=0),
        tools.tool_answer("", link, {"result": 1}),
    ):
        with pytest.raises(BadRequest):
            run(conn, call)
