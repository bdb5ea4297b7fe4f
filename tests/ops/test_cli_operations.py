"""The ledger on the command line: what is there, what the next request gets, what a person judges."""

import json
import os
import pwd
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from fix_cli import Semel
from fix_world import Conn, one
from seed_ledger import INPUT, OTHER, PATH, PROJECT, TABLE, ask, leave, rows, seed
from semel import input_digest
from semel.core.operations import (
    Identity,
    Reply,
    base_id,
    operation_beat,
    operation_begin,
    operation_fail,
    operation_finish,
)
from semel.db.execute import run

KEY = "order-7"
BASE = base_id(PROJECT, "alice", KEY)
REPLY = Reply(status=201, headers=[("content-type", "application/json")], body=b'{"id":7}')


def identity(request: str = BASE, raw: bytes = INPUT, operation: str = "pay") -> Identity:
    told: dict[str, Any] = {"version": 2, "digest": input_digest(raw)}
    return Identity(
        project=PROJECT,
        request_id=request,
        event_type=operation,
        actor="alice",
        envelopes=[told],
    )


def execute(conn: Conn, request: str = BASE, *, fail: str | None = None, **more: Any) -> None:
    with conn.transaction():
        begun = run(conn, operation_begin(identity(request, **more)))
        assert begun.outcome == "claimed"
        who = (PROJECT, request, begun.attempts or 0, begun.xid)
        if fail is None:
            run(conn, operation_finish(*who, REPLY))
        else:
            run(conn, operation_fail(*who, code="Broke", error=fail))


def stuck(conn: Conn, request: str = BASE, **more: Any) -> None:
    """Committed in the middle, as no program of ours does."""
    assert run(conn, operation_begin(identity(request), **more)).outcome == "claimed"


def explained(here: Semel, *words: str) -> dict[str, Any]:
    said = here("operation", "explain", *words, "--project", PROJECT, "--json")
    assert said.code == 0, said.err
    told: dict[str, Any] = said.json
    return told


# -- list and show -----------------------------------------------------------------------------


def test_operations_are_listed_newest_first_without_results(here: Semel, conn: Conn) -> None:
    for n in range(3):
        execute(conn, f"r{n}")
    execute(conn, "r3", fail="no money", operation="refund")

    listed = here("operation", "list", "--json").lines
    assert [each["request_id"] for each in listed] == ["r3", "r2", "r1", "r0"]
    assert {each["project_id"] for each in listed} == {PROJECT}
    assert "result" not in listed[1]
    assert listed[1]["reply_bytes"] == 8
    assert (listed[0]["error_code"], listed[0]["error"]) == ("Broke", "no money")
    failed = here("operation", "list", "--status", "FAILED", "--json").lines
    assert failed == listed[:1]
    assert (
        here("operation", "list", "--operation", "pay", "--limit", "2", "--json").lines
        == (listed[1:3])
    )
    assert (
        here("operation", "list", "--project", "none").out
        == "no such operations in project none\n"
    )


def test_an_operation_is_shown_by_its_id_or_by_the_key_that_a_client_sent(
    here: Semel, conn: Conn
) -> None:
    execute(conn)

    by_id = here("operation", "show", BASE, "--json").json
    assert by_id["result"] == {"id": 7}
    assert by_id["reply_status"] == 201
    assert by_id["payload"] == {"version": 2, "digest": input_digest(INPUT)}
    for key in (KEY, f'"{KEY}"', f" {KEY} "):
        shown = here(
            "operation", "show", key, "--actor", "alice", "--project", PROJECT, "--json"
        )
        assert shown.json == by_id
    said = here("operation", "show", KEY, "--actor", "alice").out
    assert "pay of alice" in said
    assert "answered 201, 8 bytes" in said


def test_the_key_of_another_actor_finds_nothing(here: Semel, conn: Conn) -> None:
    execute(conn)

    for words in ([KEY, "--actor", "bob"], [KEY], ["http:0"]):
        said = here("operation", "show", *words, "--project", PROJECT)
        assert said.code == 1
        assert said.err.startswith("E-OPERATION-001")


def test_a_key_with_several_operations_wants_one_of_them_named(here: Semel, conn: Conn) -> None:
    paths = [f"{BASE}:{PATH}", f"{BASE}:{PATH}:batch:1", f"{BASE}:other"]
    for each in paths:
        execute(conn, each)

    said = here("operation", "show", KEY, "--actor", "alice", "--project", PROJECT)
    assert (said.code, said.err.count("http:")) == (1, 3)
    shown = here(
        "operation", "show", KEY, "--actor", "alice", "--operation", "other", "--json"
    ).json
    assert shown["request_id"] == paths[2]


# -- explain -----------------------------------------------------------------------------------


def test_what_nobody_executed_is_executed(here: Semel, conn: Conn) -> None:
    told = explained(here, KEY, "--actor", "alice")

    assert (told["outcome"], told["request_id"], told["operation"]) == ("execute", BASE, None)
    assert rows(conn) == {}


def test_what_succeeded_replays_or_conflicts_as_its_input_is(
    here: Semel, conn: Conn, tmp_path: Path
) -> None:
    execute(conn)
    same, other = tmp_path / "same", tmp_path / "other"
    same.write_bytes(b'{"to":"bob","amount":5}')
    other.write_bytes(OTHER)
    before = rows(conn)
    who = (KEY, "--actor", "alice")

    assert explained(here, *who)["outcome"] == "replay"
    assert "another input it conflicts" in explained(here, *who)["says"]
    assert explained(here, *who, "--input", str(same))["outcome"] == "replay"
    conflict = explained(here, *who, "--input", str(other))
    assert (conflict["outcome"], conflict["code"]) == ("mismatch", "E-IDEMPOTENT-002")
    assert explained(here, BASE, "--operation", "refund")["outcome"] == "procedure"
    assert explained(here, BASE, "--actor", "alice")["outcome"] == "replay"
    assert rows(conn) == before


def test_a_failure_is_executed_as_one_attempt_more(here: Semel, conn: Conn) -> None:
    execute(conn, fail="no money")
    before = rows(conn)

    told = explained(here, BASE)

    assert told["outcome"] == "execute"
    assert told["says"] == "executes, as attempt 2: attempt 1 failed: no money"
    assert rows(conn) == before


def test_what_is_executed_right_now_waits(here: Semel, conn: Conn, other: Conn) -> None:
    with other.transaction():
        run(other, operation_begin(identity()))
        told = explained(here, KEY, "--actor", "alice")
        assert (told["outcome"], told["code"]) == ("in_flight", "E-IDEMPOTENT-003")
    stuck(conn, "recorded", mode="recorded", holder=uuid4())
    assert explained(here, "recorded")["outcome"] == "in_flight"


def test_an_unknown_outcome_and_a_legacy_row_are_a_persons(here: Semel, conn: Conn) -> None:
    stuck(conn, "r")
    seed(conn)
    legacy = leave(conn, "k", "SUCCEEDED", payload={}, result=1)
    adopted = leave(conn, "f", "FAILED", payload={}, error="it broke")
    engine = leave(conn, "e", "PENDING", target="ENGINE", payload={})
    assert here("operation", "import-legacy", TABLE, "--project", PROJECT).code == 0

    assert explained(here, "r")["code"] == "E-IDEMPOTENT-004"
    assert "reconcile resolve" in explained(here, "r")["do"]
    assert explained(here, legacy)["code"] == "E-IDEMPOTENT-007"
    assert explained(here, engine)["outcome"] == "foreign"
    assert "adopts" in explained(here, adopted)["says"]


def test_an_imported_operation_is_compared_as_its_system_did(
    here: Semel, conn: Conn, tmp_path: Path
) -> None:
    seed(conn)
    leave(conn, "k", "SUCCEEDED", result=1)
    here("operation", "import-legacy", TABLE, "--project", PROJECT)
    file = tmp_path / "input"
    file.write_bytes(INPUT)
    who = ("k", "--actor", "alice", "--operation", PATH, "--input", str(file))

    assert explained(here, *who)["outcome"] == "replay"
    assert explained(here, *who, "--decode", "js")["outcome"] == "replay"
    file.write_bytes(OTHER)
    assert explained(here, *who)["outcome"] == "mismatch"


def test_a_keyed_digest_needs_its_key(here: Semel, conn: Conn, tmp_path: Path) -> None:
    keyed: dict[str, Any] = {"version": 2, "digest": f"hmac-sha256:k1:{'0' * 64}"}
    told = Identity(
        project=PROJECT, request_id="r", event_type="pay", actor="alice", envelopes=[keyed]
    )
    with conn.transaction():
        begun = run(conn, operation_begin(told))
        run(conn, operation_finish(PROJECT, "r", 1, begun.xid, REPLY))
    file = tmp_path / "input"
    file.write_bytes(INPUT)

    assert explained(here, "r")["outcome"] == "replay"
    assert explained(here, "r", "--input", str(file))["outcome"] == "version"
    (tmp_path / "semel.toml").write_text(
        f'[ledger.{PROJECT}]\ndigest_keys = {{ k1 = "env:LEDGER_KEY" }}\n'
    )
    said = here(
        *("operation", "explain", "r", "--project", PROJECT, "--input", str(file), "--json"),
        LEDGER_KEY="x" * 32,
    )
    assert said.json["outcome"] == "mismatch"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["explain", "a,b", "--actor", "x"], "E-IDEMPOTENT-006"),
        (["explain", "", "--actor", "x"], "E-IDEMPOTENT-006"),
        (["show", "k" * 256, "--actor", "x"], "E-IDEMPOTENT-006"),
        (["show", "k"], "E-OPERATION-001"),
        (["import-legacy", "nothing"], "E-OPERATION-003"),
    ],
)
def test_what_is_wrong_is_said_with_a_code(here: Semel, words: list[str], code: str) -> None:
    said = here("operation", *words)

    assert (said.code, said.err.partition(" ")[0]) == (1, code)


def test_an_input_that_is_no_json_or_no_file_is_refused(here: Semel, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"{")

    assert here("operation", "explain", "k", "--input", str(bad)).code == 1
    assert here("operation", "explain", "k", "--input", str(tmp_path / "none")).code == 2


# -- import ------------------------------------------------------------------------------------


def test_a_table_is_imported_and_what_it_held_is_reported(here: Semel, conn: Conn) -> None:
    seed(conn)
    leave(conn, "a", "SUCCEEDED", result=1)
    leave(conn, "b", "PROCESSING", target="ENGINE")

    said = here("operation", "import-legacy", TABLE, "--project", PROJECT, "--json")

    assert said.json == {
        "table": TABLE,
        "project_id": PROJECT,
        "read": 2,
        "targets": {"API": 1, "ENGINE": 1},
        "imported": 2,
        "changed": 0,
        "known": 0,
        "unusable": 0,
        "conflicting": 0,
        "conflicts": [],
    }
    again = here("operation", "import-legacy", TABLE, "--project", PROJECT)
    assert again.out.startswith("0 operations imported, 0 moved on, 2 were known, of 2")


def test_it_refuses_until_the_table_is_drained(here: Semel, conn: Conn, other: Conn) -> None:
    seed(conn)
    leave(conn, "a", "PROCESSING")
    words = ("operation", "import-legacy", TABLE, "--project", PROJECT)
    refused = here(*words)
    assert (refused.code, refused.err.partition(" ")[0]) == (1, "E-OPERATION-002")
    assert rows(conn) == {}

    checked = here("drain", "check", "--table", TABLE, "--json")
    assert (checked.code, checked.json["processing"]) == (1, 1)
    with other.transaction():
        leave(other, "b", "PENDING")
        checked = here("drain", "check", "--table", TABLE, "--json")
        assert [each["pid"] for each in checked.json["transactions"]] == [
            other.info.backend_pid
        ]
        assert here(*words, "--stuck").code == 1
    assert here(*words, "--stuck").code == 0
    conn.execute("delete from seed.input_event where status = 'PROCESSING'")
    assert here("drain", "check", "--table", TABLE).code == 0


# -- drain -------------------------------------------------------------------------------------


def test_an_idle_ledger_is_drained(here: Semel, conn: Conn) -> None:
    execute(conn)

    said = here("drain", "check", "--json")

    assert said.code == 0
    assert said.json == {
        "drained": True,
        "table": "semel.operation",
        "processing": 0,
        "projects": [],
        "transactions": [],
    }


def test_l6_the_drain_counts_the_row_and_the_transaction_that_has_not_committed_its_own(
    here: Semel, conn: Conn, other: Conn
) -> None:
    stuck(conn, "r")
    run(conn, operation_beat(PROJECT, holder := uuid4(), "web-1"))
    stuck(conn, "recorded", mode="recorded", holder=holder)
    with other.transaction():
        run(other, operation_begin(identity("open")))
        said = here("drain", "check", "--json")
        told = here("drain", "check")

    assert (said.code, json.loads(said.err)["code"]) == (1, "E-OPERATION-002")
    assert said.json["projects"] == [
        {"project_id": PROJECT, "atomic": 1, "recorded": 1, "held": 1}
    ]
    [transaction] = said.json["transactions"]
    assert transaction["pid"] == other.info.backend_pid
    assert transaction["age_seconds"] >= 0
    assert f"pid {other.info.backend_pid}, open for" in told.out
    assert here("drain", "check", "--project", "none", "--json").json["drained"] is True


def test_whoever_only_replays_is_no_writer(here: Semel, conn: Conn, other: Conn) -> None:
    execute(conn)
    with other.transaction():
        assert run(other, operation_begin(identity())).outcome == "replay"
        assert here("drain", "check").code == 0


# -- reconcile ---------------------------------------------------------------------------------


def test_what_a_person_judges_is_listed_judged_and_kept(here: Semel, conn: Conn) -> None:
    stuck(conn)

    [listed] = here("reconcile", "list", "--json").lines
    assert (listed["kind"], listed["request_id"], listed["attempts"]) == ("unknown", BASE, 1)
    said = here(
        *("reconcile", "resolve", KEY, "--actor", "alice", "--project", PROJECT),
        *(
            "--as",
            "succeeded",
            "--result",
            '{"id": 7}',
            "--reason",
            "it is in the bank",
            "--json",
        ),
    )
    assert said.json == {
        "project_id": PROJECT,
        "request_id": BASE,
        "was": "PROCESSING",
        "status": "SUCCEEDED",
        "reply_kept": True,
    }
    assert here("reconcile", "list").out == "nothing to judge in any project\n"
    assert explained(here, BASE)["outcome"] == "replay"
    shown = here("operation", "show", BASE, "--json").json
    assert shown["result"] == {"id": 7}
    [judged] = shown["judgements"]
    assert judged["judged_by"] == pwd.getpwuid(os.getuid()).pw_name
    assert judged["reason"] == "it is in the bank"
    assert "judged SUCCEEDED by" in here("operation", "show", BASE).out


def test_judged_failed_it_is_executed_again(here: Semel, conn: Conn) -> None:
    stuck(conn, "r")

    said = here("reconcile", "resolve", "r", "--as", "failed", "--reason", "x", "--by", "carol")

    assert said.out == "r was PROCESSING and is FAILED\n"
    assert explained(here, "r")["outcome"] == "execute"
    assert one(conn, "select judged_by from semel.judgements") == "carol"


def test_what_is_no_persons_is_refused_with_why(here: Semel, conn: Conn, other: Conn) -> None:
    execute(conn, "done")
    stuck(conn, "live", mode="recorded", holder=uuid4())
    stuck(conn, "held")
    stuck(conn, "second")
    seed(conn)
    engine = leave(conn, "e", "PROCESSING", target="ENGINE")
    here("operation", "import-legacy", TABLE, "--project", PROJECT)
    before = rows(conn)

    def refused(request: str, *words: str) -> str:
        said = here("reconcile", "resolve", request, "--as", "failed", "--reason", "x", *words)
        assert said.code == 1
        return said.err.partition("\n")[0]

    assert (
        refused("done")
        == "E-OPERATION-004 done is SUCCEEDED: its state is none that a person judges"
    )
    assert refused("live").endswith("its holder beats: it is being executed")
    assert refused(engine).endswith("another system's, which is never touched")
    assert refused("second", "--attempts", "2") == (
        "E-OPERATION-004 it is at attempt 1, and not at 2"
    )
    assert refused("none").startswith("E-OPERATION-001")
    assert refused("second", "--reason", " ").startswith("E-REQUEST-001")
    with other.transaction():
        other.execute("select from semel.operation where request_id = 'held' for update")
        assert refused("held").endswith("holds it: semel drain check names it")
    assert rows(conn) == before


def test_a_result_is_for_what_succeeded_and_is_json(here: Semel, conn: Conn) -> None:
    stuck(conn, "r")
    words = ("reconcile", "resolve", "r", "--reason", "x", "--result")

    assert here(*words, "1", "--as", "failed").code == 2
    assert here(*words, "{", "--as", "succeeded").code == 1
    assert ask(conn, "r", path="pay").outcome in {"unknown", "version"}


def test_every_answer_is_one_json_document(here: Semel, conn: Conn) -> None:
    execute(conn)
    stuck(conn, "r")

    for words in (
        ["operation", "show", BASE],
        ["operation", "explain", BASE],
        ["drain", "check"],
        ["reconcile", "resolve", "r", "--as", "failed", "--reason", "x"],
    ):
        assert isinstance(here(*words, "--json").json, dict)
