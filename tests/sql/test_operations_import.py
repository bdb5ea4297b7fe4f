"""What a second-seed system executed, replays, conflicts or executes here as it would there."""

from typing import Any

import psycopg
import pytest

from fix_world import Conn, one
from seed_ledger import (
    INPUT,
    OLD,
    OTHER,
    PROJECT,
    TABLE,
    ask,
    envelope,
    leave,
    request_id,
    rows,
    seed,
)
from semel.core.operations import Identity, Reply, operation_begin, operation_finish
from semel.core.operations_import import BATCH_MAX, Legacy, operation_import
from semel.db import input_event
from semel.db.execute import run
from semel.errors import BadRequest, NotALedger, NotDrained


@pytest.fixture(autouse=True)
def table(conn: Conn) -> None:
    seed(conn)


def take(conn: Conn, **more: Any) -> input_event.Report:
    return input_event.input_event_table(conn, TABLE).take(conn, PROJECT, **more)


def execute(conn: Conn, request: str, raw: bytes = INPUT, body: bytes = b"{}") -> None:
    """The same request, executed here to its end."""
    identity = Identity(
        project=PROJECT,
        request_id=request,
        event_type="payment.create",
        actor="alice",
        envelopes=[envelope(raw)],
    )
    with conn.transaction():
        begun = run(conn, operation_begin(identity, wait=None))
        assert begun.outcome == "claimed"
        assert begun.attempts is not None
        reply = Reply(status=201, headers=[], body=body)
        run(conn, operation_finish(PROJECT, request, begun.attempts, begun.xid, reply))


# -- the table of states -----------------------------------------------------------------------


def test_what_succeeded_there_replays_here_as_it_answered(conn: Conn) -> None:
    request = leave(
        conn,
        "k",
        "SUCCEEDED",
        result={"z": 1, "10": 1e21, "9": [1.50, None, "é"], "a": {"c": 1, "b": -0.0}},
        attempts=3,
    )
    take(conn)

    begun = ask(conn, request, b'{"to":"bob","amount":5.0}')

    assert (begun.outcome, begun.attempts) == ("replay", 3)
    assert begun.reply == Reply(
        status=200,
        headers=[("content-type", "application/json")],
        body='{"9":[1.5,null,"é"],"10":1e+21,"a":{"b":0,"c":1},"z":1}'.encode(),
    )


def test_success_that_answered_nothing_replays_null(conn: Conn) -> None:
    request = leave(conn, "k", "SUCCEEDED")
    take(conn)

    begun = ask(conn, request)

    assert begun.reply is not None
    assert begun.reply.body == b"null"


@pytest.mark.parametrize("status", ["SUCCEEDED", "PENDING", "FAILED"])
def test_another_input_actor_or_procedure_conflicts(conn: Conn, status: str) -> None:
    request = leave(conn, "k", status, result={"id": 1} if status == "SUCCEEDED" else None)
    take(conn)
    before = rows(conn)

    assert ask(conn, request, OTHER).outcome == "mismatch"
    assert ask(conn, request, actor="bob").outcome == "actor"
    assert ask(conn, request, actor=None).outcome == "actor"
    assert ask(conn, request, path="payment.refund").outcome == "procedure"
    assert rows(conn) == before


@pytest.mark.parametrize(
    ("status", "attempts"), [("PENDING", 3), ("PENDING", 0), ("FAILED", 1)]
)
def test_what_did_not_succeed_there_executes_here_as_one_attempt_more(
    conn: Conn, status: str, attempts: int
) -> None:
    request = leave(conn, "k", status, attempts=attempts, error="it broke")
    take(conn)

    begun = ask(conn, request)

    assert (begun.outcome, begun.attempts) == ("claimed", attempts + 1)


def test_a_legacy_failure_is_adopted_once(conn: Conn) -> None:
    request = leave(conn, "k", "FAILED", payload={}, error="it broke")
    take(conn)

    assert ask(conn, request, actor="bob").outcome == "actor"
    assert ask(conn, request, path="payment.refund").outcome == "procedure"
    execute(conn, request, INPUT)

    assert ask(conn, request, OTHER).outcome == "mismatch"
    assert ask(conn, request, INPUT).outcome == "replay"
    row = conn.execute("select payload, attempts, error from semel.operations").fetchone()
    assert row == (envelope(), 2, None)


@pytest.mark.parametrize(
    ("status", "more"),
    [
        ("SUCCEEDED", {"payload": {}, "result": {"id": 1}}),
        ("SUCCEEDED", {"payload": {}}),
        ("PENDING", {"payload": {}}),
        ("SUCCEEDED", {"payload": {"amount": 5, "to": "bob"}}),
        ("FAILED", {"payload": {}, "result": {"id": 1}}),
    ],
)
def test_what_cannot_be_compared_conflicts_with_every_input(
    conn: Conn, status: str, more: dict[str, Any]
) -> None:
    request = leave(conn, "k", status, **more)
    take(conn)
    before = rows(conn)

    assert {ask(conn, request, raw).outcome for raw in (INPUT, OTHER, b"null")} == {"legacy"}
    assert rows(conn) == before


@pytest.mark.parametrize("payload", [{}, envelope()])
def test_processing_is_copied_only_when_told_and_conflicts_for_ever(
    conn: Conn, payload: dict[str, Any]
) -> None:
    """Also one that is ten days old: nothing is decided by age."""
    request = leave(conn, "k", "PROCESSING", payload=payload)
    with pytest.raises(NotDrained, match="1 PROCESSING"):
        take(conn)
    assert rows(conn) == {}

    take(conn, stuck=True)
    before = rows(conn)

    assert {ask(conn, request, raw).outcome for raw in (INPUT, OTHER)} <= {
        "unknown",
        "mismatch",
    }
    assert ask(conn, request).outcome == "unknown"
    assert rows(conn) == before


@pytest.mark.parametrize("status", ["PENDING", "PROCESSING", "SUCCEEDED", "FAILED"])
def test_an_engine_operation_conflicts_and_is_untouched(conn: Conn, status: str) -> None:
    request = leave(
        conn, "k", status, target="ENGINE", event_type="turn.end", payload={"turn": 5}
    )
    take(conn)
    before = rows(conn)

    assert ask(conn, request, path="turn.end").outcome == "foreign"
    assert ask(conn, request).outcome == "foreign"
    assert rows(conn) == before
    kept = conn.execute(
        "select target, event_type, payload, status from semel.operations"
    ).fetchone()
    assert kept == ("ENGINE", "turn.end", {"turn": 5}, status)


def test_an_anonymous_request_finds_its_operation(conn: Conn) -> None:
    request = request_id("k", None)
    leave(conn, "k", "SUCCEEDED", request_id=request, actor_user_id=None, result=1)
    take(conn)

    assert ask(conn, request, actor=None).outcome == "replay"
    assert ask(conn, request, actor="anonymous").outcome == "actor"


# -- the import itself -------------------------------------------------------------------------


def test_times_are_kept_and_retention_counts_from_the_import(conn: Conn) -> None:
    leave(conn, "k", "SUCCEEDED", result=1, completed_at=OLD.replace(tzinfo=None))
    conn.execute("set timezone = 'Asia/Seoul'")

    take(conn)

    row = conn.execute(
        "select created_at, completed_at, updated_at > now() - interval '1 minute', imported_from"
        " from semel.operations"
    ).fetchone()
    assert row == (OLD, OLD, True, TABLE)


def test_an_import_may_be_run_again_and_follows_what_moved_on(conn: Conn) -> None:
    done = leave(conn, "a", "SUCCEEDED", result=1)
    failed = leave(conn, "b", "FAILED", error="it broke")
    assert take(conn).imported == 2
    before = rows(conn)

    again = take(conn)
    assert (again.imported, again.changed, again.known, again.conflicts) == (0, 0, 2, [])
    assert rows(conn) == before

    conn.execute(
        "update seed.input_event set status = 'SUCCEEDED', attempts = 2, result = '7', error = null"
        " where request_id = %s",
        (failed,),
    )
    leave(conn, "c", "PENDING")
    moved = take(conn)
    assert (moved.imported, moved.changed, moved.known) == (1, 1, 1)
    assert ask(conn, failed).reply == Reply(
        status=200, headers=[("content-type", "application/json")], body=b"7"
    )
    assert rows(conn)[done] == before[done]


def test_what_was_executed_here_since_stays(conn: Conn) -> None:
    request = leave(conn, "k", "FAILED", error="it broke")
    take(conn)
    execute(conn, request)
    before = rows(conn)

    again = take(conn)

    assert (again.known, again.conflicts) == (1, [])
    assert rows(conn) == before


def test_one_request_executed_by_both_systems_is_told(conn: Conn) -> None:
    request = leave(conn, "k", "FAILED", error="it broke")
    take(conn)
    execute(conn, request)
    conn.execute("update seed.input_event set status = 'SUCCEEDED', attempts = 2, result = '7'")
    before = rows(conn)

    again = take(conn)

    assert (again.known, again.conflicts, again.conflicting) == (0, [request], 1)
    assert rows(conn) == before


@pytest.mark.parametrize(
    "other",
    [
        {"target": "ENGINE", "event_type": "turn.end", "payload": {}},
        {"actor_user_id": "bob"},
        {"event_type": "payment.refund"},
        {"payload": envelope(OTHER)},
        {"status": "SUCCEEDED", "result": 1},
    ],
)
def test_an_id_that_stands_here_for_something_else_is_told(
    conn: Conn, other: dict[str, Any]
) -> None:
    execute(conn, request_id("k"))
    request = leave(conn, "k", **{"status": "FAILED", **other})
    leave(conn, "fine", "FAILED")
    before = rows(conn)

    report = take(conn)

    assert (report.imported, report.conflicts) == (1, [request])
    assert rows(conn)[request] == before[request]


def test_a_copy_of_the_table_is_known_until_it_differs(conn: Conn) -> None:
    request = leave(conn, "k", "SUCCEEDED", result=1)
    take(conn)
    conn.execute(
        "create schema copied; create table copied.input_event as table seed.input_event"
    )
    copied = input_event.input_event_table(conn, "copied.input_event")

    again = copied.take(conn, PROJECT)
    assert (again.known, again.conflicts) == (1, [])

    conn.execute("update copied.input_event set attempts = 2, result = '2'")
    before = rows(conn)
    moved = copied.take(conn, PROJECT)
    assert (moved.known, moved.conflicts) == (0, [request])
    assert rows(conn) == before


def test_a_table_of_another_project_does_not_mix(conn: Conn) -> None:
    leave(conn, "k", "SUCCEEDED", result=1)
    input_event.input_event_table(conn, TABLE).take(conn, "other")

    assert ask(conn, request_id("k")).outcome == "claimed"


def test_batches_are_one_transaction(conn: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_event, "BATCH_MAX", 7)
    monkeypatch.setattr(input_event, "BATCH_BYTES_MAX", 100)
    for n in range(40):
        leave(conn, f"k{n}", "SUCCEEDED", result="x" * n)
    leave(conn, "odd", "LOST")

    with pytest.raises(NotALedger, match="LOST"):
        take(conn)
    assert rows(conn) == {}

    conn.execute("delete from seed.input_event where status = 'LOST'")
    assert take(conn).imported == 40


def test_ids_that_no_request_can_have_are_counted(conn: Conn) -> None:
    leave(conn, "k", "SUCCEEDED", request_id="x" * 513)
    leave(conn, "k", "SUCCEEDED", request_id="")

    conn.execute("alter table seed.input_event alter request_id drop not null")
    leave(conn, "k", "SUCCEEDED", request_id=None)

    report = take(conn)

    assert (report.read, report.unusable, report.imported) == (3, 3, 0)


def test_an_id_that_is_there_twice_is_told(conn: Conn) -> None:
    conn.execute("alter table seed.input_event drop constraint input_event_request_id_key")
    for status in ("SUCCEEDED", "FAILED"):
        leave(conn, "k", status)

    with pytest.raises(NotALedger, match="twice"):
        take(conn)
    assert rows(conn) == {}


@pytest.mark.parametrize("time", ["infinity", "-infinity", "0044-03-15 BC", "20000-01-01"])
def test_a_time_that_is_none_is_no_obstacle(conn: Conn, time: str) -> None:
    leave(conn, "k", "SUCCEEDED", result=1, created_at=time, completed_at=time)

    assert take(conn).imported == 1
    assert ask(conn, request_id("k")).outcome == "replay"


def test_what_another_targets_row_says_is_no_obstacle(conn: Conn) -> None:
    request = leave(conn, "k", "LEASED", target="ENGINE", attempts=-1)

    assert take(conn).imported == 1
    assert ask(conn, request).outcome == "foreign"


# -- the drain of the table --------------------------------------------------------------------


def test_a_writer_keeps_the_table_from_being_imported(conn: Conn, other: Conn) -> None:
    with other.transaction():
        leave(other, "k", "PROCESSING")
        found = input_event.input_event_table(conn, TABLE).drain(conn)
        assert found.processing == 0
        [writer] = found.writers
        assert (writer.pid, writer.state) == (other.info.backend_pid, "idle in transaction")
        with pytest.raises(NotDrained, match="1 transactions that write"):
            take(conn, stuck=True)
    assert one(conn, "select count(*) from seed.input_event") == 1


def test_nobody_writes_to_the_table_while_it_is_copied(conn: Conn, other: Conn) -> None:
    leave(conn, "k", "SUCCEEDED", result=1)
    found = input_event.input_event_table(conn, TABLE)
    report = input_event.Report()
    with conn.transaction():
        conn.execute("lock table seed.input_event in share mode")
        other.execute("set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            leave(other, "late", "PENDING")
        assert len(list(found._pages(conn, report))) == 1


def test_engine_operations_do_not_keep_it_from_being_drained(conn: Conn) -> None:
    leave(conn, "k", "PROCESSING", target="ENGINE")

    assert input_event.input_event_table(conn, TABLE).drain(conn).drained


# -- what is no such table ---------------------------------------------------------------------


def test_columns_that_are_missing_are_named(conn: Conn) -> None:
    conn.execute("alter table seed.input_event drop column actor_user_id, drop column result")

    with pytest.raises(NotALedger, match="has no column actor_user_id, result: an input_event"):
        take(conn)


@pytest.mark.parametrize(
    "name",
    ["nothing", "seed.nothing", "seed.input_event; drop table x", "a.b.c", "", '"', "pg_locks"],
)
def test_what_is_no_table_is_refused(conn: Conn, name: str) -> None:
    with pytest.raises(NotALedger):
        input_event.input_event_table(conn, name)


def test_a_column_of_another_type_is_refused(conn: Conn) -> None:
    leave(conn, "k", "PENDING")
    conn.execute(
        "alter table seed.input_event drop column attempts, add attempts text default 'x'"
    )

    with pytest.raises(NotALedger, match="cannot be read"):
        take(conn)
    assert rows(conn) == {}


def test_a_batch_has_its_limit(conn: Conn) -> None:
    legacy = Legacy(
        request_id="r",
        target="API",
        event_type="e",
        actor=None,
        payload="{}",
        status="FAILED",
        attempts=1,
        result=None,
        error=None,
        created_at=None,
        processing_at=None,
        completed_at=None,
    )
    with pytest.raises(BadRequest, match="1001 operations"):
        run(conn, operation_import("p", "x", [legacy] * (BATCH_MAX + 1)))
