"""`semel approval` and `semel run signal|compensate|skip|show`: decide, steer, and read it all."""

import json
import os
import pwd
from datetime import timedelta
from typing import Any

import pytest

from asking import ask, asked_by, claimed, link
from fix_cli import STRANGER, Semel
from fix_world import Conn, one, start_run, status
from semel.core import runs, steps, transitions
from semel.core.waits import Wait, run_park, signal_send
from semel.db.execute import run

ME = pwd.getpwuid(os.getuid()).pw_name


def refused(said: Any) -> str:
    assert said.code == 1
    return str(said.err.split()[0])


# -- approvals ------------------------------------------------------------------------------


def test_a_title_moves_no_cursor(here: Semel, conn: Conn) -> None:
    ask(conn, "a\x1b[31mX")

    assert r"a\x1b[31mX" in here("approval", "list").out


def test_approvals_are_listed_over_all_projects_and_by_state(here: Semel, conn: Conn) -> None:
    first, second = ask(conn, "one"), ask(conn, "two", project="q")
    here("approval", "reject", str(first.approval_id))

    listed = here("approval", "list", "--json").lines
    pending = here("approval", "list", "--state", "PENDING").out.splitlines()

    assert [line["title"] for line in listed] == ["two", "one"]
    assert listed[1]["votes"][0]["voter"] == ME
    assert pending[0].split()[:4] == ["APPROVAL", "PROJECT", "STATE", "TITLE"]
    assert pending[1].split()[:4] == [str(second.approval_id), "q", "PENDING", "two"]
    assert len(pending) == 2
    none = here("approval", "list", "--project", "q", "--state", "VOID").out
    assert none == "no such approvals in project q\n"
    assert here("approval", "list", "--state", "open").code == 2


@pytest.mark.parametrize(("verb", "state"), [("approve", "APPROVED"), ("reject", "REJECTED")])
def test_a_decision_is_made_once_by_who_one_is(
    here: Semel, conn: Conn, verb: str, state: str
) -> None:
    asked = ask(conn)
    id_ = str(asked.approval_id)

    first = here("approval", verb, id_, "--reason", "because", "--json")
    again = here("approval", "approve", id_, "--json")

    assert (first.code, first.json) == (
        0,
        {
            "approval_id": id_,
            "project_id": "p",
            "run_id": str(asked.run_id),
            "outcome": "won",
            "state": state,
        },
    )
    assert (again.code, json.loads(again.err)["code"]) == (1, "E-APPROVAL-003")
    assert state.lower() in again.err
    assert status(conn, asked.run_id) == "RESUMED"
    audit = conn.execute("select voter, via, reason from semel.approval_vote").fetchall()
    assert audit == [(ME, "cli", "because")]


def test_each_refusal_prints_its_code(here: Semel, conn: Conn) -> None:
    now = one(conn, "select clock_timestamp()")
    over = ask(conn, agent="b", now=now - timedelta(hours=1))
    void, mine = ask(conn, agent="c"), ask(conn, agent="d", requester="alice")
    run(conn, transitions.run_cancel("p", void.run_id))

    assert refused(here("approval", "approve", str(over.approval_id))) == "E-APPROVAL-002"
    assert refused(here("approval", "approve", str(void.approval_id))) == "E-APPROVAL-001"
    assert refused(here("approval", "approve", STRANGER)) == "E-APPROVAL-001"
    assert refused(here("approval", "approve", STRANGER, "--project", "p")) == "E-APPROVAL-001"
    told = ("approval", "approve", str(mine.approval_id), "--as")
    assert refused(here(*told, "alice")) == "E-AUTH-002"
    assert here(*told, "").code == 2
    assert here("approval", "approve", str(mine.approval_id), "--reason", "x" * 501).code == 2
    assert here("approval", "approve", "abc").code == 2
    assert here(*told, "bob").code == 0
    assert one(conn, "select voter from semel.approval_vote") == "bob"


# -- signal, compensate, skip ---------------------------------------------------------------


def test_a_signal_is_said_once_and_refused_where_nobody_hears(here: Semel, conn: Conn) -> None:
    run_id = start_run(conn)
    claim = claimed(conn)
    run(
        conn,
        run_park("p", "w", run_id, claim.fence, [Wait(key="go", kind="signal", name="go")]),
    )
    words = (
        "run",
        "signal",
        str(run_id),
        "go",
        "--content",
        '{"n": 1}',
        "--key",
        "k",
        "--json",
    )

    first, again = here(*words).json, here(*words).json

    assert (first["outcome"], again["outcome"]) == ("won", "duplicate")
    assert status(conn, run_id) == "RESUMED"
    assert one(conn, "select content from semel.signals") == {"n": 1}
    assert one(conn, "select sender from semel.signals") == ME
    assert here("run", "signal", str(run_id), "go", "--content", "{").code == 2
    assert refused(here("run", "signal", str(run_id), "")) == "E-REQUEST-001"
    assert refused(here("run", "signal", STRANGER, "go")) == "E-RUN-001"
    run(conn, transitions.run_cancel("p", run_id))
    assert refused(here("run", "signal", str(run_id), "go")) == "E-RUN-002"


def held_saga(conn: Conn) -> Any:
    run_id = start_run(conn)
    claim = claimed(conn)
    entries = [
        steps.Entry("pay", "intent", content='{"undo": "refund", "args": [7]}'),
        steps.Entry("pay", "result", content='"paid"'),
        steps.Entry("ship", "intent", content='{"undo": "recall", "args": []}'),
    ]
    run(conn, steps.step_record("p", "w", [(run_id, claim.fence, one_) for one_ in entries]))
    run(conn, runs.run_fail(claim, "E-STEP-001", "other code", retryable=False))
    return run_id


def test_a_held_compensation_begins_and_a_step_of_it_is_skipped(
    here: Semel, conn: Conn
) -> None:
    run_id = str(held_saga(conn))

    before = here("run", "show", run_id).out
    unready = refused(here("run", "skip", run_id, "pay", "--reason", "x"))
    begun = here("run", "compensate", run_id, "--json").json
    again = here("run", "compensate", run_id, "--json").json
    skipped = here("run", "skip", run_id, "pay", "--reason", "by hand")
    other = refused(here("run", "skip", run_id, "other", "--reason", "x"))
    story = here("run", "show", run_id).out
    of_undo = here("run", "show", begun["undo_run_id"]).out

    assert f"`semel run compensate {run_id}`" in before
    assert (unready, other) == ("E-RUN-002", "E-RUN-002")
    assert (begun["outcome"], again["outcome"]) == ("won", "already")
    assert f"semel run retry {begun['undo_run_id']}" in skipped.out
    assert f"undone    by run {begun['undo_run_id']}: PENDING" in story
    assert f"undo      pay by refund: skipped by {ME}: by hand" in story
    assert "undo      ship by recall: not undone; its step may have taken effect" in story
    assert f"undoes    run {run_id}" in of_undo
    assert here("run", "skip", run_id, "pay").code == 2
    assert refused(here("run", "compensate", STRANGER)) == "E-RUN-001"
    assert refused(here("run", "skip", STRANGER, "pay", "--reason", "x")) == "E-RUN-001"


# -- the story ------------------------------------------------------------------------------


def test_show_tells_the_whole_run_as_one_story(here: Semel, conn: Conn) -> None:
    run_id = start_run(conn, value={"alert": "disk"}, key="evt-1")
    claim = claimed(conn)
    entries = [
        steps.Entry("look", "error", content='{"type": "builtins.OSError", "message": "busy"}'),
        steps.Entry("look", "result", content='{"free": 3}'),
        steps.Entry("clean", "intent", content='{"undo": "restore", "args": ["/tmp"]}'),
        steps.Entry("clean", "result", "transaction", content="12"),
    ]
    run(conn, steps.step_record("p", "w", [(run_id, claim.fence, each) for each in entries]))
    child = steps.child_start(
        "p", "w", run_id, claim.fence, key="helper", place=1, agent="h", text="1"
    )
    child_id, _ = run(conn, child)
    run(
        conn,
        run_park("p", "w", run_id, claim.fence, [Wait(key="go", kind="signal", name="go")]),
    )
    run(conn, signal_send("p", run_id, "go", 42, sender="ops"))
    run(conn, signal_send("p", run_id, "more"))
    asked = asked_by(conn, claimed(conn), "restart web", {"pod": "web-1"}, notify=("bob",))
    waiting = here("run", "show", str(run_id)).out
    token = link(conn, asked)
    here("approval", "approve", str(asked.approval_id), "--as", "bob", "--reason", "sure")
    last = claimed(conn)
    run(conn, runs.run_fail(last, "E-RUN-006", "boom", retryable=False))
    undo = claimed(conn)
    undone = steps.Entry("clean", "result", "undo", content="null")
    run(conn, steps.step_record("p", "w", [(undo.run_id, undo.fence, undone)]))
    run(conn, runs.run_complete("p", "w", [(undo.run_id, undo.fence, "null")]))

    story = here("run", "show", str(run_id)).out
    record = here("run", "show", str(run_id), "--json").json

    assert "wait      ok: waits for a decision until " in waiting
    told = [line[22:].strip() for line in story.splitlines() if line[:2] == "20"]
    wanted = [
        "created",
        "event     api evt-1",
        "attempt   1, fence 1",
        "step      look: failed OSError: busy",
        'step      look: result {"free": 3}',
        'step      clean: begins; restore undoes it, with {"args": ["/tmp"]}',
        "step      clean (transaction): result 12",
        f"step      helper (spawn): started run {child_id} of h",
        f"child     {child_id} of h: PENDING",
        "signal    go from ops: 42; taken by step go",
        "step      go (signal): heard 42 from ops",
        "signal    more from -: null; no step asked yet",
        "approval  restart web: asked of whoever has the role until ",
        "notify    bob by run ",
        "approval  restart web: link for bob",
        "approval  restart web: bob says approve, by cli: sure",
        "approval  restart web: APPROVED",
        "FAILED",
        f"undo      run {undo.run_id} started",
        "undo      clean by restore: undone",
        f"undo      run {undo.run_id}: COMPLETED",
    ]
    for line in wanted:
        assert any(each.startswith(line) for each in told), (line, story)
    order = [
        next(n for n, each in enumerate(told) if each.startswith(line))
        for line in (
            "created",
            "step      look: failed",
            "step      clean: begins",
            "signal    go",
            "step      go",
            "approval  restart web: asked",
            "approval  restart web: APPROVED",
            "FAILED",
            "undo      run",
        )
    ]
    assert order == sorted(order), story
    assert token not in story
    assert record["compensation"]["status"] == "COMPLETED"
    assert [each["kind"] for each in record["children"]] == ["child", "notify"]
    assert record["approvals"][0]["votes"][0]["decision"] == "approve"
    of_notify = here("run", "show", record["children"][1]["run_id"]).out
    assert f"notifies  of run {run_id}" in of_notify


def test_hostile_text_begins_no_line_of_its_own(here: Semel, conn: Conn) -> None:
    asked = ask(conn, "restart\n2026-01-01 00:00:00Z  approval  APPROVED")

    story = here("run", "show", str(asked.run_id)).out

    assert "\n2026-01-01" not in story


def test_hostile_text_moves_no_terminal(here: Semel, conn: Conn) -> None:
    asked = ask(conn, "\x1b[2Jrm \u202egpj", {"a": "\x9b1A"}, notify=("\x07bob",))
    link(conn, asked, "\x07bob")

    story = here("run", "show", str(asked.run_id)).out

    assert "\\x1b[2Jrm \\u202egpj" in story
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(story)


def test_runs_are_listed_by_kind(here: Semel, conn: Conn) -> None:
    ask(conn)

    listed = here("run", "list", "--kind", "notify", "--json").lines

    assert [line["agent"] for line in listed] == ["semel.notify"]
    assert here("run", "list", "--kind", "x").code == 2
