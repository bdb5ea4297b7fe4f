"""An old reply becomes a tombstone, never a second execution; an identity goes last, if ever."""

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from fix_world import Conn, one
from seed_ledger import INPUT, PROJECT, TABLE, ask, envelope, leave, rows, seed
from semel.config import Retention, Settings
from semel.core import upkeep
from semel.core.operations import (
    Identity,
    Reply,
    operation_beat,
    operation_begin,
    operation_fail,
    operation_finish,
)
from semel.core.reconcile import reconcile_resolve
from semel.db import input_event
from semel.db.execute import run
from semel.errors import BadRequest
from semel.runtime.upkeep import Upkeep

DAY = timedelta(days=1)
MOMENT = timedelta(microseconds=1)
REPLY = Reply(status=200, headers=[("content-type", "application/json")], body=b'{"id":1}')


def clock(conn: Conn) -> datetime:
    now: datetime = one(conn, "select clock_timestamp()")
    return now


def execute(conn: Conn, request: str, at: datetime, *, fail: bool = False) -> None:
    identity = Identity(
        project=PROJECT,
        request_id=request,
        event_type="payment.create",
        actor="alice",
        envelopes=[envelope(INPUT)],
    )
    with conn.transaction():
        begun = run(conn, operation_begin(identity, now=at))
        assert begun.outcome == "claimed"
        who = (PROJECT, request, begun.attempts or 0, begun.xid)
        if fail:
            run(conn, operation_fail(*who, code="X", error="x", now=at))
        else:
            run(conn, operation_finish(*who, REPLY, now=at))


def sweep(conn: Conn, now: datetime, **more: Any) -> tuple[int, int]:
    told: dict[str, Any] = {"operations": None, "every": timedelta(0), **more}
    swept = run(conn, upkeep.operation_expire(PROJECT, 30 * DAY, now=now, **told))
    return swept.tombstones, swept.deleted


def test_a_reply_is_kept_for_its_time_and_then_a_tombstone_is(conn: Conn) -> None:
    start = clock(conn)
    execute(conn, "r", start)

    assert sweep(conn, start + 30 * DAY - MOMENT) == (0, 0)
    assert ask(conn, "r").outcome == "replay"
    assert sweep(conn, start + 30 * DAY) == (1, 0)

    assert ask(conn, "r").outcome == "gone"
    assert ask(conn, "r", b"1").outcome == "mismatch"
    found = conn.execute(
        "select status, attempts, gone, result, reply_bytes, reply_headers, reply_status"
        " from semel.operations"
    ).fetchone()
    assert found == ("SUCCEEDED", 1, True, None, None, None, 200)
    assert sweep(conn, start + 90 * DAY) == (0, 0)


def test_an_identity_stays_for_ever_unless_it_is_told(conn: Conn) -> None:
    start = clock(conn)
    execute(conn, "r", start)

    assert sweep(conn, start + 36_000 * DAY) == (1, 0)
    assert ask(conn, "r").outcome == "gone"

    assert sweep(conn, start + 90 * DAY - MOMENT, operations=90 * DAY) == (0, 0)
    assert sweep(conn, start + 90 * DAY, operations=90 * DAY) == (0, 1)
    assert ask(conn, "r").outcome == "claimed"


def test_less_than_a_day_is_refused(conn: Conn) -> None:
    with pytest.raises(BadRequest, match="At least 24 hours"):
        sweep(conn, clock(conn), operations=DAY - MOMENT)


def test_a_failure_keeps_nothing_and_goes_with_the_identities(conn: Conn) -> None:
    start = clock(conn)
    execute(conn, "r", start, fail=True)

    assert sweep(conn, start + 60 * DAY) == (0, 0)
    assert ask(conn, "r").attempts == 2
    assert sweep(conn, start + 90 * DAY, operations=90 * DAY) == (0, 1)


def test_what_is_never_decided_by_age_stays(conn: Conn) -> None:
    seed(conn)
    execute(conn, "r", clock(conn))
    leave(conn, "engine", "SUCCEEDED", target="ENGINE", result=1)
    leave(conn, "unknown", "PROCESSING")
    legacy = leave(conn, "legacy", "SUCCEEDED", payload={}, result=1)
    leave(conn, "pending", "PENDING", payload={})
    input_event.input_event_table(conn, TABLE).take(conn, PROJECT, stuck=True)
    conn.execute(
        "update semel.operation set reply_body = null where request_id = %s", (legacy,)
    )
    before = rows(conn)
    far = clock(conn) + 20_000 * DAY

    assert sweep(conn, far, operations=DAY) == (1, 1)  # the legacy one's reply; and r itself
    assert set(before) - set(rows(conn)) == {"r"}
    assert {ask(conn, legacy, raw).outcome for raw in (INPUT, b"1")} == {"legacy"}


def test_what_was_judged_goes_with_its_judgement(conn: Conn) -> None:
    start = clock(conn)
    seed(conn)
    request = leave(conn, "legacy", "SUCCEEDED", payload={})
    input_event.input_event_table(conn, TABLE).take(conn, PROJECT)
    seen = conn.execute("select attempts, updated_at from semel.operations").fetchone()
    assert seen is not None
    call = reconcile_resolve(
        PROJECT,
        request,
        attempts=seen[0],
        updated_at=seen[1],
        judgement="SUCCEEDED",
        by="carol",
        reason="it is there",
    )
    assert run(conn, call)[0] == "won"

    assert sweep(conn, start + 60 * DAY, operations=30 * DAY) == (0, 1)
    assert one(conn, "select count(*) from semel.judgements") == 0


def test_a_row_that_is_held_waits_for_the_next_round(conn: Conn, other: Conn) -> None:
    start = clock(conn)
    for request in ("a", "b", "c"):
        execute(conn, request, start)
    with other.transaction():
        other.execute("select from semel.operation where request_id = 'b' for update")
        assert sweep(conn, start + 31 * DAY, operations=31 * DAY) == (0, 2)
    assert sweep(conn, start + 31 * DAY, operations=31 * DAY) == (0, 1)


def test_a_round_is_walked_in_pages_and_begins_when_it_is_time(conn: Conn) -> None:
    start = clock(conn)
    late = start + 31 * DAY
    for n in range(5):
        execute(conn, f"r{n}", start)

    def page(now: datetime) -> tuple[int, int]:
        call = upkeep.operation_expire(PROJECT, 30 * DAY, None, every=DAY, limit=2, now=now)
        swept = run(conn, call)
        return swept.looked, swept.tombstones

    assert [page(late) for _ in range(4)] == [(2, 2), (2, 2), (1, 1), (0, 0)]
    execute(conn, "s", start)
    assert page(late + DAY - MOMENT) == (0, 0)
    assert page(late + DAY) == (2, 0)
    assert [page(late + DAY) for _ in range(3)] == [(2, 0), (2, 1), (0, 0)]


def test_one_sweep_at_a_time(conn: Conn, other: Conn) -> None:
    start = clock(conn)
    execute(conn, "r", start)
    sweep(conn, start)
    with other.transaction():
        sweep(other, start + 31 * DAY)
        assert sweep(conn, start + 31 * DAY) == (0, 0)


def test_a_holder_is_forgotten_a_week_after_its_last_beat(conn: Conn) -> None:
    start = clock(conn)
    run(conn, operation_beat(PROJECT, uuid4(), "web-1", now=start))

    assert run(conn, upkeep.holder_expire(PROJECT, now=start + 7 * DAY)) == 0
    assert run(conn, upkeep.holder_expire(PROJECT, now=start + 7 * DAY + MOMENT)) == 1


def test_upkeep_finds_a_project_that_has_operations_only(conn: Conn, dsn: str) -> None:
    start = clock(conn)
    execute(conn, "r", start)
    keep = Upkeep(
        Settings(dsn=dsn, retention=Retention(results=DAY, operations=2 * DAY)), dsn=dsn
    )

    assert keep.once(now=start + DAY)["purged"] == 1
    assert ask(conn, "r").outcome == "gone"
    assert keep.once(now=start + 2 * DAY)["purged"] == 1
    assert rows(conn) == {}
