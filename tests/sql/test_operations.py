"""Operations: one request after another under a key. SPEC C1 to C6 and the table of C4."""

import json
from datetime import timedelta
from typing import Any

import pytest

from fix_world import NOW, Conn, one
from keyed import (
    DONE,
    LONG,
    asked,
    at,
    begin,
    close,
    envelope,
    fail,
    failed,
    nothing_written,
    put,
    rows,
    state,
    stored,
    succeed,
)
from semel.core.operations import WAIT, Reply, operation_begin, operation_finish
from semel.db.execute import run
from semel.errors import TransactionEnded

V1 = envelope(1, version=1)
REPLIED: dict[str, Any] = {"reply_status": 200, "reply_headers": "[]", "reply_body": b"1"}

# -- the table C4 ----------------------------------------------------------------------------

SAME = asked()
OTHERS = {
    "mismatch": asked(value=2),
    "procedure": asked(what="refund"),
    "actor": asked(who="bob"),
    "anonymous": asked(who=None),
}


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        (None, "claimed"),
        ({"status": "PENDING", "attempts": 3}, "claimed"),
        ({"status": "FAILED", "attempts": 3, "error": "x", "error_code": "y"}, "claimed"),
        ({"status": "PROCESSING", "attempts": 3}, "unknown"),
        ({"status": "SUCCEEDED", "attempts": 3, **REPLIED}, "replay"),
        ({"status": "SUCCEEDED", "attempts": 3, "gone": True, "reply_status": 200}, "gone"),
        ({"status": "SUCCEEDED", "attempts": 3}, "gone"),
        # Rows of an old system.
        ({"status": "FAILED", "attempts": 3, "payload": "{}"}, "claimed"),
        ({"status": "FAILED", "attempts": 3, "payload": "{}", **REPLIED}, "legacy"),
        ({"status": "FAILED", "payload": "{}", "reply_status": 200}, "legacy"),
        ({"status": "FAILED", "payload": "{}", "reply_body": b"1"}, "legacy"),
        ({"status": "FAILED", "attempts": 3, "payload": '{"input":1}'}, "legacy"),
        ({"status": "PENDING", "payload": "{}"}, "legacy"),
        ({"status": "SUCCEEDED", "payload": "{}", **REPLIED}, "legacy"),
        ({"status": "PROCESSING", "payload": "{}"}, "unknown"),
        # Of another system.
        ({"status": "FAILED", "target": "ENGINE"}, "foreign"),
        ({"status": "SUCCEEDED", "target": "ENGINE", **REPLIED}, "foreign"),
        ({"status": "PROCESSING", "target": "ENGINE"}, "foreign"),
    ],
)  # fmt: skip
def test_the_same_request_meets_its_row(
    conn: Conn, row: dict[str, Any] | None, outcome: str
) -> None:
    if row is not None:
        put(conn, **row)
    before = rows(conn)
    attempts = (row or {}).get("attempts", 0)

    with conn.transaction():
        begun = begin(conn)
        assert outcome == begun.outcome
        if outcome == "claimed":
            assert attempts + 1 == begun.attempts
            close(conn, begun)

    if outcome == "claimed":
        assert ("SUCCEEDED", attempts + 1) == state(conn)
        kept = stored(conn)
        assert kept
        assert envelope() == kept["payload"]
        assert kept["error"] is kept["error_code"] is None
    else:
        assert before == rows(conn)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("status", ["PENDING", "FAILED", "PROCESSING", "SUCCEEDED"])
def test_another_request_under_its_key_conflicts_and_changes_nothing(
    conn: Conn, status: str, other: str
) -> None:
    put(conn, status=status, attempts=3, **REPLIED if status == "SUCCEEDED" else {})

    with nothing_written(conn):
        begun = begin(conn, OTHERS[other])

    assert ("actor" if other == "anonymous" else other) == begun.outcome
    assert begun.reply is None
    assert 3 == begun.attempts


@pytest.mark.parametrize("other", ["procedure", "actor", "anonymous"])
@pytest.mark.parametrize("status", ["PENDING", "FAILED", "PROCESSING", "SUCCEEDED"])
def test_nobody_else_adopts_an_old_systems_row(conn: Conn, status: str, other: str) -> None:
    put(conn, status=status, payload="{}")

    with nothing_written(conn):
        assert ("actor" if other == "anonymous" else other) == begin(
            conn, OTHERS[other]
        ).outcome


def test_a_mismatch_is_told_before_the_state(conn: Conn) -> None:
    put(conn, status="PROCESSING", attempts=1)
    assert "mismatch" == begin(conn, asked(value=2)).outcome


def test_an_anonymous_request_is_its_own(conn: Conn) -> None:
    nobody = asked(who=None)
    succeed(conn, nobody)
    assert "replay" == begin(conn, nobody).outcome
    assert "actor" == begin(conn).outcome


def test_projects_have_their_own_keys(conn: Conn) -> None:
    succeed(conn)
    assert "claimed" == begin(conn, asked(value=2, project="q")).outcome


def test_a_legacy_failure_is_adopted_once(conn: Conn) -> None:
    put(conn, status="FAILED", attempts=3, payload="{}", error="old", completed_at=NOW)
    failed(conn)
    assert ("FAILED", 4) == state(conn)

    assert "mismatch" == begin(conn, asked(value=2)).outcome
    succeed(conn)
    assert ("SUCCEEDED", 5) == state(conn)


# -- claiming and replaying ------------------------------------------------------------------


def test_a_failure_is_tried_again_and_counted(conn: Conn) -> None:
    failed(conn, times=3)
    kept = stored(conn)
    assert kept
    assert ("FAILED", 3, "no funds", "APP", None) == (
        *(kept["status"], kept["attempts"], kept["error"], kept["error_code"]),
        kept["reply_status"],
    )
    assert NOW == kept["completed_at"]

    succeed(conn)

    assert ("SUCCEEDED", 4) == state(conn)


def test_claiming_clears_what_the_last_attempt_left(conn: Conn) -> None:
    put(
        conn, status="FAILED", attempts=1, error="x", error_code="y", completed_at=NOW,
        gone=True, **REPLIED,
    )  # fmt: skip
    with conn.transaction():
        begun = begin(conn, now=at(5))
        kept = stored(conn)
        assert kept
        assert ("PROCESSING", 2, at(5), at(5), NOW) == (
            *(kept["status"], kept["attempts"], kept["processing_at"], kept["updated_at"]),
            kept["created_at"],
        )
        cleared = (
            "reply_status",
            "reply_headers",
            "reply_body",
            "error",
            "error_code",
            "completed_at",
        )
        assert {None} == {kept[name] for name in cleared}
        assert kept["gone"] is False
        assert begun.error is None
        close(conn, begun)


def test_what_is_answered_again_is_what_was_answered(conn: Conn) -> None:
    reply = Reply(
        status=402,
        headers=[("Link", "<a>"), ("X", "ÿ\t"), ("link", "<b>"), ("ETag", '"x"')],
        body=bytes(range(256)) * 20 + b'"\\u0000"',
    )
    succeed(conn, reply=reply)

    begun = begin(conn)

    assert ("replay", 1, reply, NOW) == (
        begun.outcome, begun.attempts, begun.reply, begun.completed_at,
    )  # fmt: skip


@pytest.mark.parametrize(
    "body", [b"", b"\0", b"null", b"1e400", b'"\\ud800"', b"x" * 3_000_000]
)
def test_any_bytes_are_a_reply(conn: Conn, body: bytes) -> None:
    reply = Reply(status=200, headers=[], body=body)
    succeed(conn, reply=reply)
    assert reply == begin(conn).reply
    assert len(conn.execute("select result from semel.operations").fetchall()) == 1


def test_a_replay_writes_nothing_at_all(conn: Conn) -> None:
    succeed(conn)
    call = operation_begin(asked())
    conn.execute(call.sql, call.args)  # sets what hint bits it finds unset

    with nothing_written(conn):
        assert "replay" == begin(conn).outcome
        [plan] = one(conn, f"explain (analyze, wal, format json) {call.sql}", *call.args)
    assert 0 == plan["Plan"]["WAL Records"]
    assert "replay" == begin(conn).outcome  # in no transaction of the caller's at all


def test_a_tombstone_says_that_it_was_executed(conn: Conn) -> None:
    with conn.transaction():
        close(conn, begin(conn), gone=True)

    begun = begin(conn)

    assert ("gone", None) == (begun.outcome, begun.reply)
    kept = stored(conn)
    assert kept
    assert ("SUCCEEDED", 201, None, None) == (
        *(kept["status"], kept["reply_status"], kept["reply_headers"], kept["reply_body"]),
    )


def test_only_the_digest_of_the_input_is_kept(conn: Conn) -> None:
    succeed(conn)
    assert [{"version", "digest"}] == [
        set(payload) for [payload] in conn.execute("select payload from semel.operation")
    ]


# -- versions of a digest --------------------------------------------------------------------


def test_a_row_is_judged_under_its_own_version(conn: Conn) -> None:
    put(conn, payload=json.dumps(V1), status="SUCCEEDED", attempts=1, **REPLIED)
    both = [envelope(1), V1]

    told = begin(conn)
    assert ("version", V1) == (told.outcome, told.payload)
    assert "replay" == begin(conn, asked(envelopes=both)).outcome
    assert "mismatch" == begin(conn, asked(envelopes=[envelope(1), envelope(2, 1)])).outcome


def test_a_retry_keeps_the_version_of_its_row(conn: Conn) -> None:
    put(conn, payload=json.dumps(V1), status="FAILED", attempts=1)
    succeed(conn, asked(envelopes=[envelope(1), V1]))
    kept = stored(conn)
    assert kept
    assert V1 == kept["payload"]


def test_a_keyed_digest_is_compared_under_its_own_key(conn: Conn) -> None:
    keyed = [
        {"version": 2, "digest": f"hmac-sha256:{kid}:{of * 64}"}
        for kid, of in (("k1", "a"), ("k2", "b"), ("k1", "c"))
    ]
    succeed(conn, asked(envelopes=keyed[:1]))

    def met(*sent: Any) -> str:
        return begin(conn, asked(envelopes=list(sent))).outcome

    assert "version" == met(keyed[1])
    assert "version" == met(envelope())
    assert "replay" == met(keyed[1], keyed[0])
    assert "mismatch" == met(keyed[1], keyed[2])


def test_an_identity_that_is_null_matches_nothing(conn: Conn) -> None:
    put(conn, status="SUCCEEDED", **REPLIED)
    call = "select outcome from semel.operation_begin('p', 'k', 'pay', 'ann', array[%s, null]::jsonb[])"
    assert "mismatch" == one(conn, call, json.dumps(envelope(2)))
    assert "replay" == one(conn, call, json.dumps(envelope(1)))


def test_more_in_an_envelope_than_we_know_does_no_harm(conn: Conn) -> None:
    put(conn, payload=json.dumps({**envelope(), "by": "x"}), status="SUCCEEDED", **REPLIED)
    assert "replay" == begin(conn).outcome
    assert "mismatch" == begin(conn, asked(value=2)).outcome


# -- the caller's transaction ----------------------------------------------------------------


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_another_isolation_is_refused(conn: Conn, level: str) -> None:
    succeed(conn)
    conn.execute(f"begin isolation level {level}")
    assert "isolation" == begin(conn).outcome
    assert "isolation" == begin(conn, join=True).outcome
    conn.execute("rollback")


def test_a_transaction_that_has_written_is_refused_or_joined(conn: Conn) -> None:
    conn.execute("create table account (id int)")
    with conn.transaction():
        conn.execute("select from semel.operations")
        assert "claimed" == begin(conn, asked("first")).outcome
        assert "written" == begin(conn).outcome
        joined = begin(conn, join=True)
        assert "claimed" == joined.outcome
        close(conn, joined)
    assert ("SUCCEEDED", 1) == state(conn)


def test_its_own_claim_is_in_flight(conn: Conn) -> None:
    with conn.transaction():
        assert "claimed" == begin(conn).outcome
        assert "in_flight" == begin(conn, join=True, wait=LONG).outcome


@pytest.mark.parametrize("timeout", ["0", "1234ms", "2s"])
@pytest.mark.parametrize("wait", [WAIT, LONG])
def test_lock_timeout_is_what_it_was(conn: Conn, timeout: str, wait: timedelta) -> None:
    conn.execute(f"set lock_timeout = '{timeout}'")
    with conn.transaction():
        before = one(conn, "show lock_timeout")
        close(conn, begin(conn, wait=wait))
        assert before == one(conn, "show lock_timeout")
    assert before == one(conn, "show lock_timeout")


def test_a_transaction_that_its_work_ended_cannot_finish(conn: Conn) -> None:
    conn.execute("begin")
    begun = begin(conn)
    conn.execute("commit")
    conn.execute("begin")
    with pytest.raises(TransactionEnded):
        close(conn, begun)
    conn.execute("rollback")
    assert "lost" == fail(conn, begun)

    assert ("PROCESSING", 1) == state(conn)
    assert "unknown" == begin(conn).outcome


def test_a_transaction_that_its_work_rolled_back_cannot_finish(conn: Conn) -> None:
    conn.execute("begin")
    begun = begin(conn)
    conn.execute("rollback")
    with conn.transaction(), pytest.raises(TransactionEnded), conn.transaction():
        close(conn, begun)
    assert state(conn) is None


def test_a_finish_outside_of_any_transaction_is_refused(conn: Conn) -> None:
    with pytest.raises(TransactionEnded):
        run(conn, operation_finish("p", "k", 1, "3", DONE))
    assert state(conn) is None


@pytest.mark.parametrize("wrong", [{"attempts": 2}, {"xid": "3"}])
def test_a_finish_names_its_claim(conn: Conn, wrong: dict[str, Any]) -> None:
    with conn.transaction():
        begun = begin(conn)
        told = {"attempts": begun.attempts, "xid": begun.xid, **wrong}
        with pytest.raises(TransactionEnded), conn.transaction():
            run(conn, operation_finish("p", "k", told["attempts"], told["xid"], DONE))
        for refused in (asked("other"), asked(project="q")):
            with pytest.raises(TransactionEnded), conn.transaction():
                call = operation_finish(refused.project, refused.request_id, 1, begun.xid, DONE)
                run(conn, call)
        close(conn, begun)
        with pytest.raises(TransactionEnded), conn.transaction():
            close(conn, begun)
        assert "lost" == fail(conn, begun)
    assert ("SUCCEEDED", 1) == state(conn)


def test_a_failure_outlives_its_savepoint(conn: Conn) -> None:
    conn.execute("create table account (id int)")
    with conn.transaction():
        begun = begin(conn)
        with pytest.raises(ZeroDivisionError), conn.transaction():
            conn.execute("insert into account values (1)")
            raise ZeroDivisionError
        assert "won" == fail(conn, begun, "x" * 9000)
    assert ("FAILED", 1) == state(conn)
    assert 0 == one(conn, "select count(*) from account")
    assert 8000 == len(one(conn, "select error from semel.operation"))
