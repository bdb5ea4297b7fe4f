"""A link shows what it asks and decides nothing; a POST decides, once, whoever is in a hurry."""

import asyncio
import logging
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from asking import Asked, ask, asked_by, claimed, link
from fix_world import Conn, one, row, start_run, status
from semel.core import transitions
from semel.core.approvals import Link
from semel.db.execute import run
from semel.edges import approve, approve_page
from semel.edges.bucket import Buckets
from semel.ops.server import application, configured
from web import Web, count, settings, web

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
HTML = {"Accept": "text/html,application/xhtml+xml"}
JSON = {"Accept": "application/json"}
APPROVE = {"decision": "approve"}


@pytest.fixture
def client(dsn: str) -> Iterator[Web]:
    with web(settings(dsn)) as client:
        yield client


def vote(client: Web, token: str, headers: dict[str, str] = JSON, **told: str) -> Any:
    return client.post(f"/approve/{token}", urlencode({**APPROVE, **told}), {**FORM, **headers})


def state(conn: Conn, asked: Asked) -> str:
    return str(
        one(conn, "select state from semel.approvals where approval_id = %s", asked.approval_id)
    )


# -- showing --------------------------------------------------------------------------------


def test_the_page_shows_what_would_happen_and_two_buttons(client: Web, conn: Conn) -> None:
    asked = ask(conn, "restart web", {"pod": "web-1", "zone": "台北"})
    token = link(conn, asked)

    answer = client.get(f"/approve/{token}", HTML)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = answer.text
    for shown in (
        str(asked.run_id),
        "restart web",
        "台北",
        "web-1",
        "bob",
        "sha256:aaaa",
        "0 of 1",
    ):
        assert shown in page
    assert "14 min" in page or "15 min" in page
    assert (
        f"{one(conn, 'select expires_at from semel.approvals'):%Y-%m-%d %H:%M:%S} UTC" in page
    )
    assert '<form method="post">' in page
    assert 'name="decision" value="approve"' in page
    assert 'name="decision" value="reject"' in page
    assert f'name="digest" value="sha256:{"a" * 64}"' in page
    assert 'name="viewport"' in page
    assert token not in page


def test_every_answer_is_private_and_frames_and_runs_nothing_else(
    client: Web, conn: Conn
) -> None:
    token = link(conn, ask(conn))

    answers = [
        client.get(f"/approve/{token}", HTML),
        client.get(f"/approve/{token}", JSON),
        client.get("/approve/nothing", HTML),
        vote(client, token, HTML | {"Sec-Fetch-Site": "cross-site"}),
        vote(client, token, HTML),
        vote(client, token, JSON),
    ]

    assert [answer.status_code for answer in answers] == [200, 200, 404, 403, 200, 409]
    for answer in answers:
        headers = answer.headers
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-robots-tag"].startswith("noindex")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Purpose": "prefetch"},
        {"Sec-Purpose": "prefetch;prerender"},
        {"User-Agent": "TelegramBot (like TwitterBot)"},
    ],
    ids=str,
)
def test_following_the_link_writes_nothing(
    dsn: str, conn: Conn, method: str, headers: dict[str, str]
) -> None:
    asked = ask(conn)
    token = link(conn, asked)
    unwritable = make_conninfo(dsn, options="-c default_transaction_read_only=on")

    with web(settings(unwritable)) as client:
        for query in ("", "?decision=approve", "?_method=POST&decision=reject"):
            answer = client.send(method, f"/approve/{token}{query}", headers=headers)
            assert answer.status_code == 200

    assert (state(conn, asked), status(conn, asked.run_id)) == ("PENDING", "WAITING_APPROVAL")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_refused_and_no_answer_redirects(
    client: Web, conn: Conn, method: str
) -> None:
    asked = ask(conn)
    token = link(conn, asked)

    answer = client.send(method, f"/approve/{token}", b"decision=approve", FORM)
    stray = [client.get(path) for path in ("/approve", "/approve/", f"/approve/{token}/")]

    assert answer.status_code == 405
    assert token not in answer.text
    assert {each.status_code for each in stray} == {404}
    assert state(conn, asked) == "PENDING"


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "</pre></main><form action=//evil>",
        "{title}%s<b>&amp;",
    ],
)
def test_hostile_text_is_shown_and_never_markup(client: Web, conn: Conn, hostile: str) -> None:
    token = link(conn, ask(conn, hostile, {hostile: [hostile]}, notify=(hostile,)), hostile)

    pages = [client.get(f"/approve/{token}", HTML).text]
    pages.append(vote(client, token, HTML, reason=hostile).text)
    pages.append(client.get(f"/approve/{token}", HTML).text)

    for page in pages:
        assert hostile not in page
        assert page.count("<script>") == 1
        assert "<img" not in page
        assert page.count("<form") <= 1


def test_what_does_not_print_is_spelled_out(client: Web, conn: Conn) -> None:
    token = link(conn, ask(conn, "delete \u202egnp.esabatad", {"a\u200b": "\u2066x"}))

    page = client.get(f"/approve/{token}", HTML).text

    assert "delete \\u202egnp.esabatad" in page
    assert not {"\u202e", "\u200b", "\u2066"} & set(page)


def test_json_is_answered_where_it_is_asked_for(client: Web, conn: Conn) -> None:
    asked = ask(conn)
    token = link(conn, asked)

    shown = client.get(f"/approve/{token}", JSON).json()
    decided = client.post(
        f"/approve/{token}",
        {"decision": "reject", "reason": "no"},
        {"Content-Type": "application/json"},
    ).json()

    assert (shown["run_id"], shown["state"]) == (str(asked.run_id), "PENDING")
    assert shown["action"] == {"pod": "web-1"}
    assert 0 < shown["seconds_left"] <= 900
    assert (decided["outcome"], decided["state"], decided["reason"]) == (
        "won",
        "REJECTED",
        "no",
    )


# -- deciding -------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_post_decides_and_the_run_goes_on(client: Web, conn: Conn, decision: str) -> None:
    asked = ask(conn)
    token = link(conn, asked)
    agent = "x" * 400

    answer = vote(
        client, token, HTML | {"User-Agent": agent}, decision=decision, reason=" why\r\n"
    )

    assert answer.status_code == 200
    assert {"approve": "<h1>Approved", "reject": "<h1>Rejected"}[decision] in answer.text
    assert status(conn, asked.run_id) == "RESUMED"
    assert claimed(conn).run_id == asked.run_id
    [audit] = conn.execute(
        "select v ->> 'voter', v ->> 'decision', v ->> 'reason', v ->> 'via', v ->> 'address',"
        " v ->> 'user_agent' from semel.approvals as a, jsonb_array_elements(a.votes) as v"
    ).fetchall()
    assert audit == ("bob", decision, "why", "link", "127.0.0.1", "x" * 300)


def test_a_decision_wakes_the_workers_of_the_agent(
    client: Web, conn: Conn, other: Conn
) -> None:
    token = link(conn, ask(conn, agent="triage"))
    other.execute("listen semel")

    vote(client, token)

    assert [told.payload for told in other.notifies(timeout=10, stop_after=1)] == ["triage"]


def test_a_double_click_is_one_decision(client: Web, conn: Conn) -> None:
    asked = ask(conn)
    path, body = f"/approve/{link(conn, asked)}", urlencode(APPROVE)

    async def twice() -> list[Any]:
        return await asyncio.gather(
            *(client.sending("POST", path, body, {**FORM, **JSON}) for _ in range(2))
        )

    first, second = sorted(client.run(twice()), key=lambda answer: answer.status_code)

    assert (first.status_code, first.json()["state"]) == (200, "APPROVED")
    assert (second.status_code, second.json()["code"]) == (409, "E-APPROVAL-003")
    assert second.json()["state"] == "APPROVED"
    assert count(conn, "approval_vote") == 1
    assert row(conn, asked.run_id)["status"] == "RESUMED"


def test_approve_against_reject_at_once_has_one_winner_that_all_are_told(
    client: Web, conn: Conn
) -> None:
    asked = ask(conn, notify=("bob", "eve"))
    paths = [f"/approve/{link(conn, asked, who)}" for who in ("bob", "eve")]

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(
            *(
                client.sending(
                    "POST",
                    paths[n % 2],
                    urlencode({"decision": ("approve", "reject")[n % 2]}),
                    {**FORM, **JSON},
                )
                for n in range(8)
            )
        )

    answers = client.run(all_at_once())

    won = [answer for answer in answers if answer.status_code == 200]
    lost = [answer for answer in answers if answer.status_code == 409]
    assert (len(won), len(lost)) == (1, 7)
    assert {answer.json()["state"] for answer in answers} == {state(conn, asked)}
    assert count(conn, "approval_vote") == 1
    assert one(conn, "select count(*) from semel.steps where kind = 'approval'") == 1


def test_the_holder_of_a_link_is_told_the_recorded_outcome(client: Web, conn: Conn) -> None:
    asked = ask(conn, notify=("bob", "eve"))
    bob, eve = (link(conn, asked, who) for who in ("bob", "eve"))
    vote(client, bob, decision="reject", reason="not now")

    page = client.get(f"/approve/{eve}", HTML)
    late = vote(client, eve)

    assert page.status_code == 200
    for told in (page.text, late.json()["detail"]):
        assert "rejected" in told
        assert "by bob: not now" in told
    assert "<form" not in page.text
    assert (late.status_code, late.json()["state"]) == (409, "REJECTED")


def test_n_of_m_are_counted_and_one_vote_each(client: Web, conn: Conn) -> None:
    asked = ask(conn, notify=("bob", "eve"), need=2, approvers=("bob", "eve"))
    bob, eve = (link(conn, asked, who) for who in ("bob", "eve"))

    first = vote(client, bob).json()
    again = vote(client, bob).json()
    page = client.get(f"/approve/{bob}", HTML).text
    last = vote(client, eve).json()

    assert (first["outcome"], first["approvals"], first["need"]) == ("voted", 1, 2)
    assert (again["outcome"], again["decision"], again["approvals"]) == ("voted", "approve", 1)
    assert "You have approved it" in page
    assert "1 of 2" in page
    assert 'value="approve"' not in page
    assert (last["outcome"], last["state"]) == ("won", "APPROVED")
    assert last["decided_by"] == ["bob", "eve"]


def test_second_thoughts_reject_and_the_one_who_had_them_is_named(
    client: Web, conn: Conn
) -> None:
    asked = ask(conn, notify=("bob", "eve"), need=3)
    bob, eve = (link(conn, asked, who) for who in ("bob", "eve"))
    vote(client, bob)
    vote(client, eve, reason="fine")

    answer = vote(client, bob, decision="reject", reason="no, wait").json()

    assert (answer["outcome"], answer["state"]) == ("won", "REJECTED")
    assert (answer["decided_by"], answer["reason"]) == (["bob"], "no, wait")


@pytest.mark.parametrize(
    "more", [{"approvers": ("eve",)}, {"requester": "bob"}], ids=["no approver", "asked for it"]
)
def test_who_may_not_decide_sees_it_without_buttons_and_is_refused(
    client: Web, conn: Conn, more: dict[str, Any]
) -> None:
    asked = ask(conn, **more)
    token = link(conn, asked)

    page = client.get(f"/approve/{token}", HTML)
    answer = vote(client, token)

    assert page.status_code == 200
    assert "<form" not in page.text
    assert (answer.status_code, answer.json()["code"]) == (403, "E-AUTH-002")
    assert state(conn, asked) == "PENDING"


# -- who it comes from ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://semel"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://semel"}, False),
        ({"Sec-Fetch-Site": ""}, False),
        ({"Origin": "http://semel"}, True),
        ({"Origin": "https://semel"}, True),
        ({"Origin": "http://semel.evil.example"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
        ({"Origin": "http://["}, False),
        ({}, True),
    ],
    ids=str,
)
def test_another_page_cannot_have_a_browser_decide(
    client: Web, conn: Conn, headers: dict[str, str], allowed: bool
) -> None:
    asked = ask(conn)

    answer = vote(client, link(conn, asked), JSON | headers)

    assert answer.status_code == (200 if allowed else 403)
    assert state(conn, asked) == ("APPROVED" if allowed else "PENDING")


def test_a_stranger_s_post_is_refused_alike_for_any_token(client: Web, conn: Conn) -> None:
    tokens = [link(conn, ask(conn)), Link.mint("p").token, "x"]

    answers = [vote(client, token, {"Sec-Fetch-Site": "cross-site"}) for token in tokens]

    assert len({(answer.status_code, answer.text) for answer in answers}) == 1


# -- what is no link ------------------------------------------------------------------------


def test_whatever_is_no_link_gets_one_answer(
    client: Web, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Buckets, "spend", lambda *_: 0.0)
    asked = ask(conn)
    token = link(conn, asked)
    project, _, secret = token.partition(".")
    void = ask(conn, agent="b")
    of_void = link(conn, void)
    run(conn, transitions.run_cancel("p", void.run_id))
    nothing = {
        "unknown": Link.mint("p").token,
        "of another project": f"other.{secret}",
        "altered": f"{project}.{secret[:-1]}{'A' if secret[-1] != 'A' else 'B'}",
        "cut": token[:-1],
        "longer": token + "A",
        "in capitals": token.upper(),
        "its secret alone": secret,
        "the approval's id": str(asked.approval_id),
        "of a cancelled run": of_void,
        "empty": "",
        "a path": "p/../x",
        "quoted": "%00%ff",
        "long": "p." + "a" * 5000,
    }

    for headers in (HTML, JSON):
        for answers in (
            [client.get(f"/approve/{each}", headers) for each in nothing.values()],
            [vote(client, each, headers) for each in nothing.values()],
        ):
            seen = {(a.status_code, a.text, tuple(sorted(a.headers.items()))) for a in answers}
            assert len(seen) == 1, seen
            assert answers[0].status_code == 404
    assert "E-APPROVAL-001" in client.get("/approve/x", JSON).json()["code"]
    assert state(conn, asked) == "PENDING"


def test_a_link_is_for_its_own_approval(client: Web, conn: Conn) -> None:
    """Two projects, one agent's name, the same question."""
    here, there = ask(conn), ask(conn, project="q")
    token = link(conn, here)

    vote(client, token)

    assert (state(conn, here), state(conn, there)) == ("APPROVED", "PENDING")


def test_what_was_seen_is_what_is_decided(client: Web, conn: Conn) -> None:
    asked = ask(conn)
    token = link(conn, asked)

    other = vote(client, token, digest="sha256:" + "b" * 64)
    same = vote(client, token, digest="sha256:" + "a" * 64)

    assert (other.status_code, other.json()["code"]) == (404, "E-APPROVAL-001")
    assert (same.status_code, state(conn, asked)) == (200, "APPROVED")


def test_a_question_that_was_asked_anew_leaves_the_old_link_void(
    client: Web, conn: Conn
) -> None:
    start_run(conn)
    claim = claimed(conn)
    old = asked_by(conn, claim, notify=("bob",))
    token = link(conn, old)
    conn.execute("update semel.approval set state = 'VOID', decided_at = created_at")

    assert vote(client, token).status_code == 404
    assert status(conn, old.run_id) == "WAITING_APPROVAL"


@pytest.mark.parametrize("off", [-600, 600])
def test_the_database_s_clock_says_when_it_is_over(
    client: Web, conn: Conn, monkeypatch: pytest.MonkeyPatch, off: int
) -> None:
    now = one(conn, "select clock_timestamp()")
    over = ask(conn, now=now - timedelta(minutes=16))
    late = link(conn, over, now=now - timedelta(minutes=15))
    open_ = ask(conn, agent="b", now=now - timedelta(minutes=14))
    token = link(conn, open_, now=now - timedelta(minutes=13))
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + off)

    shown, decided = client.get(f"/approve/{late}", JSON), vote(client, late)
    in_time = vote(client, token)

    assert [(a.status_code, a.json()["code"]) for a in (shown, decided)] == [
        (410, "E-APPROVAL-002")
    ] * 2
    assert in_time.status_code == 200
    assert count(conn, "approval_vote", f"approval_id = '{over.approval_id}'") == 0


# -- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (FORM, b""),
        (FORM, b"decision=maybe"),
        (FORM, b"decision=approve&decision=reject"),
        (FORM, b"decision=approve&why=x"),
        (FORM, b"decision=approve&reason=%ff"),
        (FORM, b"decision=approve&reason=%00"),
        (FORM, b"decision=approve&reason=" + b"x" * 501),
        (FORM, b"decision=approve&digest=" + b"x" * 201),
        (FORM, b"&".join(b"a%d=1" % n for n in range(50))),
        ({"Content-Type": "application/json"}, b"[]"),
        ({"Content-Type": "application/json"}, b'{"decision":true}'),
        ({"Content-Type": "application/json"}, b'{"decision":["approve"]}'),
        ({"Content-Type": "application/json"}, b'{"decision":"approve","reason":5}'),
        ({"Content-Type": "text/plain"}, b"decision=approve"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"--x--"),
    ],
    ids=repr,
)
def test_a_malformed_decision_is_400_and_decides_nothing(
    client: Web, conn: Conn, kind: dict[str, str], body: bytes
) -> None:
    asked = ask(conn)

    answer = client.post(f"/approve/{link(conn, asked)}", body, {**kind, **JSON})

    assert (answer.status_code, answer.json()["code"]) == (400, "E-REQUEST-001")
    assert state(conn, asked) == "PENDING"


def test_a_body_above_the_limit_is_413(client: Web, conn: Conn) -> None:
    asked = ask(conn)
    path = f"/approve/{link(conn, asked)}"

    answer = client.post(path, b"decision=approve&reason=" + b"x" * 20_000, {**FORM, **HTML})

    assert answer.status_code == 413
    assert "E-REQUEST-002" in answer.text
    assert state(conn, asked) == "PENDING"


def test_an_address_that_asks_too_often_for_nothing_is_told_to_wait(
    client: Web, conn: Conn
) -> None:
    asked = ask(conn)
    token = link(conn, asked)

    answers = [client.get("/approve/nothing", JSON) for _ in range(approve.UNKNOWN_BURST + 1)]
    elsewhere = client.send("GET", "/approve/nothing", client=("192.0.2.1", 1))

    assert [answer.status_code for answer in answers[:-1]] == [404] * approve.UNKNOWN_BURST
    assert (answers[-1].status_code, answers[-1].json()["code"]) == (429, "E-REQUEST-003")
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert elsewhere.status_code == 404
    assert vote(client, token).status_code == 200


def test_while_the_database_is_away_the_page_says_so() -> None:
    with web(settings("host=127.0.0.1 port=1 connect_timeout=1")) as client:
        page = client.get(f"/approve/{Link.mint('p').token}", HTML)
        answer = vote(client, Link.mint("p").token)

    assert page.status_code == 503
    assert "retry-after" in page.headers
    assert "E-DB-001" in page.text
    assert page.headers["cache-control"] == "no-store"
    assert (answer.status_code, answer.json()["code"]) == (503, "E-DB-001")


# -- secrets --------------------------------------------------------------------------------


def test_no_token_stands_in_a_log_or_in_the_database(
    client: Web, conn: Conn, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpx").setLevel(logging.CRITICAL)  # the browser's own
    logging.getLogger("httpcore").setLevel(logging.CRITICAL)
    asked = ask(conn)
    token = link(conn, asked)

    client.get(f"/approve/{token}")
    vote(client, token + "x")
    vote(client, token, reason="\0")
    vote(client, token)
    vote(client, token)

    secret = token.partition(".")[2]
    assert secret[:20] not in caplog.text
    assert "approval.decided" in caplog.text
    for [table] in conn.execute(
        "select relname from pg_class where relnamespace = 'semel'::regnamespace and relkind in ('r', 'p')"
    ).fetchall():
        found = psycopg.sql.SQL("select count(*) from semel.{} as t where t::text like %s")
        query = found.format(psycopg.sql.Identifier(table))
        assert one(conn, query, f"%{secret[:20]}%") == 0, table


def test_the_policy_allows_the_page_s_own_style_and_script(client: Web, conn: Conn) -> None:
    page = client.get(f"/approve/{link(conn, ask(conn))}", HTML).text
    style = page.partition("<style>")[2].partition("</style>")[0]
    script = page.partition("<script>")[2].partition("</script>")[0]

    policy = approve_page.HEADERS["Content-Security-Policy"]

    assert f"style-src '{approve_page._sha256(style)}'" in policy
    assert f"script-src '{approve_page._sha256(script)}'" in policy
    assert "style=" not in page
    assert "onclick" not in page


def test_the_server_keeps_no_access_log(dsn: str) -> None:
    told = settings(dsn)

    assert configured(told, application(told)).access_log is False
