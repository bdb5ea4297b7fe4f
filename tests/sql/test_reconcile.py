"""What no program may decide is judged by a person, once, with a reason that is kept."""

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from fix_world import Conn, one
from seed_ledger import INPUT, OTHER, PROJECT, TABLE, ask, envelope, leave, rows, seed
from semel.core.operations import (
    Identity,
    Reply,
    operation_beat,
    operation_begin,
    operation_finish,
)
from semel.core.reconcile import Judgement, Kind, reconcile_list, reconcile_resolve
from semel.db import input_event
from semel.db.execute import run
from semel.errors import BadRequest, TransactionEnded

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
HOLDER = uuid4()


def clock(conn: Conn) -> datetime:
    now: datetime = one(conn, "select clock_timestamp()")
    return now


def identity(request: str = "r") -> Identity:
    return Identity(
        project=PROJECT,
        request_id=request,
        event_type="payment.create",
        actor="alice",
        envelopes=[envelope(INPUT)],
    )


def stuck(conn: Conn, request: str = "r", **more: Any) -> str:
    """An operation whose program committed it in the middle."""
    assert run(conn, operation_begin(identity(request), **more)).outcome == "claimed"
    return request


def legacy(conn: Conn, key: str, status: str, **more: Any) -> str:
    if one(conn, "select to_regnamespace('seed') is null"):
        seed(conn)
    request = leave(conn, key, status, **{"payload": {}, **more})
    input_event.input_event_table(conn, TABLE).take(conn, PROJECT, stuck=True)
    return request


def listed(conn: Conn, kind: Kind | None = None, **more: Any) -> list[tuple[Any, Any]]:
    found = run(conn, reconcile_list(PROJECT, kind=kind, **more))
    return [(each["kind"], each["request_id"]) for each in found]


def judge(
    conn: Conn, request: str, judgement: Judgement, *, reply: Reply | None = None, **more: Any
) -> str:
    """Judge the operation as it is now."""
    found = conn.execute(
        "select attempts, updated_at from semel.operations where request_id = %s", (request,)
    ).fetchone()
    attempts, updated_at = found or (0, clock(conn))
    told: dict[str, Any] = {
        "attempts": attempts,
        "updated_at": updated_at,
        "by": "carol",
        "reason": "looked into the bank",
        **more,
    }
    call = reconcile_resolve(PROJECT, request, judgement=judgement, reply=reply, **told)
    return run(conn, call)[0]


# -- what is listed ----------------------------------------------------------------------------


def test_what_is_executed_or_done_is_not_listed(conn: Conn) -> None:
    run(conn, operation_beat(PROJECT, HOLDER, "web-1"))
    stuck(conn, "recorded", mode="recorded", holder=HOLDER)
    with conn.transaction():
        begun = run(conn, operation_begin(identity("done")))
        reply = Reply(status=200, headers=[], body=b"1")
        run(conn, operation_finish(PROJECT, "done", 1, begun.xid, reply))
    legacy(conn, "adopted", "FAILED", error="it broke")
    legacy(conn, "known", "SUCCEEDED", payload=envelope(), result=1)
    legacy(conn, "engine", "PROCESSING", target="ENGINE")

    assert listed(conn) == []


def test_an_unknown_outcome_is_listed_however_young_or_old(conn: Conn) -> None:
    now = clock(conn)
    stuck(conn, "young")
    stuck(conn, "old", now=now - 400 * DAY)
    older = legacy(conn, "older", "PROCESSING")

    expected = [("unknown", each) for each in sorted(["young", "old", older])]
    assert listed(conn) == expected


def test_a_recorded_operation_is_listed_once_its_holder_is_dead(conn: Conn) -> None:
    now = clock(conn)
    stuck(conn, mode="recorded", holder=HOLDER, now=now)

    assert listed(conn, now=now + 29 * SECOND) == []
    assert listed(conn, now=now + 30 * SECOND) == [("unknown", "r")]


def test_what_cannot_be_compared_is_listed_last(conn: Conn) -> None:
    old = [
        legacy(conn, "a", "SUCCEEDED", result=1),
        legacy(conn, "b", "PENDING"),
        legacy(conn, "c", "SUCCEEDED", payload={"amount": 5}),
        legacy(conn, "d", "FAILED", result=1),
    ]
    stuck(conn, "zz")

    expected = [("unknown", "zz"), *(("legacy", each) for each in sorted(old))]
    assert listed(conn) == expected
    assert listed(conn, "legacy") == expected[1:]
    assert listed(conn, "unknown") == expected[:1]
    pages = [listed(conn, after=after, limit=1) for after in [None, *expected]]
    assert pages == [[each] for each in expected] + [[]]


# -- a judgement -------------------------------------------------------------------------------


def test_judged_failed_it_is_executed_again_by_the_same_request_only(conn: Conn) -> None:
    stuck(conn)

    assert judge(conn, "r", "FAILED") == "won"

    assert listed(conn) == []
    assert ask(conn, "r", OTHER).outcome == "mismatch"
    begun = ask(conn, "r")
    assert (begun.outcome, begun.attempts) == ("claimed", 2)
    found = conn.execute("select error_code, error from semel.operations").fetchone()
    assert found == ("E-IDEMPOTENT-004", "judged: looked into the bank")


def test_judged_succeeded_with_its_reply_it_replays(conn: Conn) -> None:
    stuck(conn)
    reply = Reply(status=201, headers=[("content-type", "application/json")], body=b'{"id":1}')

    assert judge(conn, "r", "SUCCEEDED", reply=reply) == "won"

    begun = ask(conn, "r")
    assert (begun.outcome, begun.reply, begun.attempts) == ("replay", reply, 1)
    assert ask(conn, "r", OTHER).outcome == "mismatch"


def test_judged_succeeded_without_a_reply_it_is_told_that_it_was_executed(conn: Conn) -> None:
    stuck(conn)

    assert judge(conn, "r", "SUCCEEDED") == "won"

    assert ask(conn, "r").outcome == "gone"


def test_a_legacy_operation_judged_failed_is_adopted_by_the_next_request(conn: Conn) -> None:
    for key, status, more in (
        ("a", "PROCESSING", {}),
        ("b", "PENDING", {}),
        ("c", "SUCCEEDED", {"result": 1, "payload": {"amount": 5}}),
    ):
        request = legacy(conn, key, status, **more)

        assert judge(conn, request, "FAILED") == "won"
        assert ask(conn, request, actor="bob").outcome == "actor"
        assert ask(conn, request).outcome == "claimed"
    assert listed(conn) == []


def test_a_legacy_operation_judged_succeeded_is_never_replayed(conn: Conn) -> None:
    for key, status in (("a", "PROCESSING"), ("b", "PENDING"), ("c", "SUCCEEDED")):
        request = legacy(conn, key, status)

        assert judge(conn, request, "SUCCEEDED") == "won"
        assert ask(conn, request).outcome == "legacy"
    assert listed(conn) == []


def test_who_judged_what_and_why_is_kept(conn: Conn) -> None:
    stuck(conn)
    before = conn.execute("select attempts, updated_at from semel.operations").fetchone()
    judge(conn, "r", "FAILED", reason="  not in the bank ", by=" carol ")

    [[request, by, reason, was, became, same]] = conn.execute(
        "select j.request_id, j.judged_by, j.reason, j.before, j.after, j.judged_at = o.updated_at"
        " from semel.judgements as j join semel.operations as o using (project_id, request_id)"
    ).fetchall()
    assert (request, by, reason, same) == ("r", "carol", "not in the bank", True)
    assert (was["status"], became["status"]) == ("PROCESSING", "FAILED")
    assert before is not None
    assert (was["attempts"], datetime.fromisoformat(was["updated_at"])) == before
    assert "reply_body" not in was | became


def test_a_judgement_needs_a_reason_and_a_name(conn: Conn) -> None:
    stuck(conn)
    bad: list[dict[str, Any]] = [{"reason": " "}, {"by": ""}, {"reason": "x" * 8001}]
    for told in bad:
        with pytest.raises(BadRequest, match="reason"):
            judge(conn, "r", "FAILED", **told)
    assert listed(conn) == [("unknown", "r")]


# -- what is refused ---------------------------------------------------------------------------


def test_what_is_none_of_a_persons_is_refused(conn: Conn) -> None:
    requests = {
        "succeeded": legacy(conn, "a", "SUCCEEDED", payload=envelope(), result=1),
        "failed": legacy(conn, "b", "FAILED", payload=envelope()),
        "pending": legacy(conn, "c", "PENDING", payload=envelope()),
        "adopted": legacy(conn, "d", "FAILED"),
    }
    engine = legacy(conn, "e", "PROCESSING", target="ENGINE")
    before = rows(conn)

    for judgement in ("SUCCEEDED", "FAILED"):
        for request in requests.values():
            assert judge(conn, request, judgement) == "refused"
        assert judge(conn, engine, judgement) == "foreign"
    assert judge(conn, "nothing", "FAILED") == "unknown"
    assert rows(conn) == before
    assert one(conn, "select count(*) from semel.judgements") == 0


def test_a_judged_operation_is_not_judged_again_by_what_was_seen_before(conn: Conn) -> None:
    stuck(conn)
    seen = conn.execute("select attempts, updated_at from semel.operations").fetchone()
    assert seen is not None
    judge(conn, "r", "FAILED")
    stuck(conn)  # executed again, and committed in the middle again

    told = {"attempts": seen[0], "updated_at": seen[1]}
    assert judge(conn, "r", "SUCCEEDED", **told) == "changed"
    assert judge(conn, "r", "SUCCEEDED") == "won"


def test_each_half_of_the_state_that_was_judged_counts(conn: Conn) -> None:
    stuck(conn)
    updated_at = one(conn, "select updated_at from semel.operations")

    assert judge(conn, "r", "FAILED", attempts=2) == "changed"
    assert judge(conn, "r", "FAILED", updated_at=updated_at - SECOND) == "changed"
    assert judge(conn, "r", "FAILED", attempts=1, updated_at=updated_at) == "won"


def test_what_is_stuck_again_after_a_judgement_is_listed_again(conn: Conn) -> None:
    stuck(conn)
    judge(conn, "r", "FAILED")
    stuck(conn)

    assert listed(conn) == [("unknown", "r")]


def test_while_its_holder_beats_it_is_not_judged_and_afterwards_the_holder_is_refused(
    conn: Conn,
) -> None:
    now = clock(conn)
    stuck(conn, mode="recorded", holder=HOLDER, now=now)

    assert judge(conn, "r", "FAILED", now=now + 29 * SECOND) == "alive"
    assert judge(conn, "r", "FAILED", now=now + 30 * SECOND) == "won"

    reply = Reply(status=200, headers=[], body=b"1")
    with pytest.raises(TransactionEnded):
        run(conn, operation_finish(PROJECT, "r", 1, None, reply, holder=HOLDER))


def test_a_holder_that_comes_late_is_not_told_that_its_reply_is_kept(conn: Conn) -> None:
    now = clock(conn)
    stuck(conn, mode="recorded", holder=HOLDER, now=now)
    assert judge(conn, "r", "SUCCEEDED", now=now + 30 * SECOND) == "won"

    reply = Reply(status=200, headers=[], body=b"1")
    with pytest.raises(TransactionEnded):
        run(conn, operation_finish(PROJECT, "r", 1, None, reply, holder=HOLDER))


def test_what_an_open_transaction_holds_is_not_judged(conn: Conn, other: Conn) -> None:
    stuck(conn)
    with other.transaction():
        other.execute("select from semel.operation for update")
        assert judge(conn, "r", "FAILED") == "locked"
    with other.transaction():
        stuck(other, "uncommitted")
        assert judge(conn, "uncommitted", "FAILED") == "unknown"


def test_an_import_leaves_what_was_judged(conn: Conn) -> None:
    request = legacy(conn, "k", "PROCESSING")
    judge(conn, request, "FAILED")
    before = rows(conn)
    table = input_event.input_event_table(conn, TABLE)

    again = table.take(conn, PROJECT, stuck=True)
    assert (again.known, again.conflicts) == (1, [])

    conn.execute("update seed.input_event set status = 'SUCCEEDED', attempts = 2")
    moved = table.take(conn, PROJECT)
    assert (moved.known, moved.conflicts) == (0, [request])
    assert rows(conn) == before


def test_a_judgement_shows_no_reply(conn: Conn) -> None:
    request = legacy(conn, "k", "SUCCEEDED", result={"secret": 1})
    judge(conn, request, "SUCCEEDED", reply=Reply(status=200, headers=[], body=b'{"secret":2}'))

    [[told]] = conn.execute("select to_jsonb(j) from semel.judgements as j").fetchall()
    assert "secret" not in json.dumps(told)
