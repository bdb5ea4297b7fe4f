"""POST /tool/{token}: the first answer to a call is taken, a stranger learns nothing."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from durable import journal
from fix_world import Conn, start_run, status
from semel.core import claims, tools, waits
from semel.core.approvals import Link
from semel.core.tools import Ask
from semel.core.waits import Wait
from semel.db.execute import run
from semel.model import Claim
from web import Web, settings, web


@pytest.fixture
def client(dsn: str) -> Iterator[Web]:
    with web(settings(dsn)) as client:
        yield client


def claimed(conn: Conn, agent: str) -> Claim:
    lanes = tuple(range(11))
    minute = timedelta(minutes=1)
    [held] = run(conn, claims.run_claim("p", agent, "w", limit=1, lease=minute, lanes=lanes))
    return held


def sent(conn: Conn) -> tuple[Claim, str]:
    """A run that waits for a call that was sent, and the token that the tool has."""
    start_run(conn, "a")
    caller = claimed(conn, "a")
    ask = Ask(server="cluster", tool="x", arguments={}, key="k", callback=True)
    wait = Wait(key="x", kind="tool", due=timedelta(minutes=5), ask=ask)
    run(conn, waits.run_park("p", "w", caller.run_id, caller.fence, [wait]))
    call, link = claimed(conn, "semel.tool"), Link.mint("p")
    held = ("p", call.worker, call.run_id, call.fence)
    run(conn, tools.tool_send(*held, turn=0, repeatable=False, link=link))
    return caller, link.token


def told(conn: Conn, caller: Claim) -> Any:
    [(_, _, content)] = journal(conn, caller.run_id)
    del content["call_id"]
    return content


@pytest.mark.parametrize(
    ("posted", "want", "state"),
    [
        ({"result": {"ok": [1, None]}}, {"result": {"ok": [1, None]}}, "ANSWERED"),
        ({"result": None}, {"result": None}, "ANSWERED"),
        ({"error": "no"}, {"error": {"message": "no"}}, "FAILED"),
        ({"error": {"message": "no", "more": 1}}, {"error": {"message": "no"}}, "FAILED"),
    ],
    ids=str,
)
def test_what_is_posted_is_what_the_caller_is_told(
    client: Web, conn: Conn, posted: Any, want: Any, state: str
) -> None:
    caller, token = sent(conn)
    answer = client.post(f"/tool/{token}", posted)
    assert (200, state) == (answer.status_code, answer.json()["state"])
    assert "no-store" == answer.headers["cache-control"]
    assert (want, "RESUMED") == (told(conn, caller), status(conn, caller.run_id))


def test_the_second_answer_is_a_conflict_and_changes_nothing(client: Web, conn: Conn) -> None:
    caller, token = sent(conn)
    answers = [client.post(f"/tool/{token}", {"result": n}) for n in range(3)]
    assert [200, 409, 409] == [answer.status_code for answer in answers]
    assert "E-TOOL-007" == answers[1].json()["code"]
    assert {"result": 0} == told(conn, caller)


@pytest.mark.parametrize(
    ("posted", "code"),
    [
        ({}, "E-REQUEST-001"),
        ([], "E-REQUEST-001"),
        ({"result": 1, "error": "no"}, "E-REQUEST-001"),
        ({"results": 1}, "E-REQUEST-001"),
        ({"error": 1}, "E-REQUEST-001"),
        ({"error": {}}, "E-REQUEST-001"),
        (b"{", "E-REQUEST-001"),
        (b"\xff", "E-REQUEST-001"),
        (b'{"result": "\\u0000"}', "E-REQUEST-001"),
        (b'{"result": ' + b"[" * 5000 + b"]" * 5000 + b"}", "E-REQUEST-001"),
        (b'{"result": "' + b"x" * (1 << 20) + b'"}', "E-REQUEST-002"),
        (b'{"result": "' + b"x" * ((1 << 20) - 5) + b'"}', "E-REQUEST-002"),
    ],
    ids=lambda told: f"{str(told)[:25]} {len(told)}",
)
def test_what_is_no_answer_is_refused_and_the_call_goes_on(
    client: Web, conn: Conn, posted: Any, code: str
) -> None:
    caller, token = sent(conn)
    answer = client.post(f"/tool/{token}", posted)
    assert (code, answer.status_code) == (answer.json()["code"], 413 if "002" in code else 400)
    assert "WAITING_TOOL" == status(conn, caller.run_id)
    assert 200 == client.post(f"/tool/{token}", {"result": 1}).status_code


def test_a_stranger_gets_one_answer_whatever_there_is(client: Web, conn: Conn) -> None:
    _, token = sent(conn)
    project, _, secret = token.partition(".")
    wrong = [
        "x",
        "p.",
        f"q.{secret}",
        f"{project}.{secret[:-1]}A",
        f"{token}x",
        f"{token}/x",
        "%00",
    ]
    answers = [client.post(f"/tool/{each}", {"result": 1}) for each in wrong]
    assert {404} == {answer.status_code for answer in answers}
    assert 1 == len({answer.text for answer in answers})
    assert "E-TOOL-006" == answers[0].json()["code"]


def test_who_tries_many_tokens_is_slowed_and_the_right_one_is_not(
    client: Web, conn: Conn
) -> None:
    _, token = sent(conn)
    answers = [client.post("/tool/x", {"result": 1}) for _ in range(31)]
    assert [404, 429] == [answers[0].status_code, answers[-1].status_code]
    assert answers[-1].headers["retry-after"]
    assert 200 == client.post(f"/tool/{token}", {"result": 1}).status_code


def test_it_is_posted_to_and_no_token_is_said_back(client: Web, conn: Conn) -> None:
    caller, token = sent(conn)
    answer = client.send("GET", f"/tool/{token}")
    assert 405 == answer.status_code
    assert token not in answer.text
    assert "WAITING_TOOL" == status(conn, caller.run_id)
    assert json.dumps(token) not in client.post(f"/tool/{token}", {"result": 1}).text
