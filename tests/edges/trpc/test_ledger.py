"""A mutation with a key executes once, whatever becomes of its answer: the ledger over tRPC."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from fix_world import Conn
from semel import input_digest
from semel.core.operations import base_id
from trpc_shop import PROJECT, Shop, open_shop

PAY = {"id": "a1", "cents": 5}
OTHER = {"id": "a1", "cents": 6}


@pytest.fixture
def shop(dsn: str, conn: Conn) -> Iterator[Shop]:
    with open_shop(dsn, conn) as here:
        yield here


def test_a_mutation_and_its_row_commit_together_and_a_retry_gets_its_answer(shop: Shop) -> None:
    first = shop.ask("pay", PAY, key="k")
    assert (first.status, first.json) == (
        200,
        {"result": {"data": {"receipt": "a1", "cents": 5}}},
    )
    assert "idempotent-replayed" not in first.headers
    again = shop.ask("pay", b'{ "cents":5.0, "id":"a1" }', key="k")
    assert again.status == 200
    assert again.headers["idempotent-replayed"] == "true"
    assert again.body == first.body.replace(b"}}}", b'},"replayed":true}}')
    assert shop.count() == 1
    assert shop.row("k") == ("SUCCEEDED", 1, {"receipt": "a1", "cents": 5})
    [(payload,)] = shop.conn.execute("select payload from semel.operations").fetchall()
    assert payload == {
        "version": 1,
        "digest": input_digest(b'{"id":"a1","cents":5}', version=1),
    }
    assert shop.count("semel.journal") == 1


EXISTING = ("SUCCEEDED", "PENDING", "FAILED", "PROCESSING")


def put(shop: Shop, status: str, payload: Any, attempts: int = 3, **more: Any) -> None:
    """A row of `pay` as another process left it."""
    row = {
        "project_id": PROJECT,
        "request_id": f"{base_id(PROJECT, 'alice', 'k')}:pay",
        "event_type": "pay",
        "actor_user_id": "alice",
        "payload": Jsonb(payload),
        "status": status,
        "attempts": attempts,
        **more,
    }
    if status == "SUCCEEDED" and "reply_status" not in more:
        row |= {
            "reply_status": 200,
            "reply_headers": Jsonb([]),
            "reply_body": b'{"receipt":"old"}',
        }
    names = ", ".join(row)
    places = ", ".join(["%s"] * len(row))
    shop.conn.execute(
        f"insert into semel.operation ({names}, created_at, updated_at) values ({places}, now(), now())",
        list(row.values()),
    )


MINE = {"version": 1, "digest": input_digest(b'{"id":"a1","cents":5}', version=1)}


@pytest.mark.parametrize("given", [PAY, OTHER], ids=["same", "other"])
@pytest.mark.parametrize("status", EXISTING)
def test_what_a_request_meets_is_answered_as_the_table_says(
    shop: Shop, status: str, given: Any
) -> None:
    put(shop, status, MINE)
    before = shop.conn.execute("select * from semel.operation").fetchall()
    answer = shop.ask("pay", given, key="k")
    if given is PAY and status in {"PENDING", "FAILED"}:
        assert answer.status == 200
        assert shop.row("k") == ("SUCCEEDED", 4, {"receipt": "a1", "cents": 5})
        assert shop.count() == 1
        return
    assert shop.conn.execute("select * from semel.operation").fetchall() == before
    assert shop.count() == 0
    if given is PAY and status == "SUCCEEDED":
        assert answer.json == {"result": {"data": {"receipt": "old"}, "replayed": True}}
        return
    assert answer.status == 409
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json
    assert told["error"]["code"] == -32009
    assert told["error"]["data"]["code"] == "CONFLICT"
    assert told["error"]["data"]["httpStatus"] == told["status"] == 409
    reason = "input_mismatch" if given is OTHER else "unknown_outcome"
    assert told["reason"] == told["error"]["data"]["reason"] == reason
    assert told["retryable"] is told["error"]["data"]["retryable"] is False
    assert told["code"] == told["error"]["data"]["errorCode"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("PENDING", "legacy_unverifiable"),
        ("SUCCEEDED", "legacy_unverifiable"),
        ("PROCESSING", "unknown_outcome"),
    ],
)
def test_a_legacy_row_that_cannot_be_verified_conflicts(
    shop: Shop, status: str, reason: str
) -> None:
    put(shop, status, {})
    answer = shop.ask("pay", PAY, key="k")
    assert (answer.status, answer.json["reason"]) == (409, reason)
    assert shop.count() == 0


def test_a_legacy_failure_is_adopted_once(shop: Shop) -> None:
    put(shop, "FAILED", {}, error="old")
    assert shop.ask("pay", PAY, key="k").status == 200
    assert shop.row("k")[:2] == ("SUCCEEDED", 4)
    assert shop.ask("pay", OTHER, key="k").json["reason"] == "input_mismatch"


def test_another_path_under_the_key_is_another_operation_and_another_actor_too(
    shop: Shop,
) -> None:
    assert shop.ask("pay", PAY, key="k").status == 200
    assert shop.ask("ship", PAY, key="k").json == {"result": {"data": {"parcel": "a1"}}}
    assert shop.ask("pay", OTHER, key="k", user="bob").json["result"]["data"]["cents"] == 6
    assert (shop.count(), shop.count("shipped")) == (2, 1)


def test_a_row_of_another_system_is_never_touched(shop: Shop) -> None:
    put(shop, "FAILED", {}, target="ENGINE")
    answer = shop.ask("pay", PAY, key="k")
    assert (answer.status, answer.json["reason"]) == (409, "input_mismatch")
    assert shop.row("k")[:2] == ("FAILED", 3)


def test_a_business_error_undoes_its_rows_is_told_and_may_be_tried_again(shop: Shop) -> None:
    shop.conn.execute("insert into failing values ('a1')")
    failed = shop.ask("pay", PAY, key="k")
    assert failed.status == 412
    assert failed.json["error"]["data"]["code"] == "PRECONDITION_FAILED"
    assert failed.headers["content-type"] == "application/json"
    assert shop.row("k") == ("FAILED", 1, None)
    assert (shop.count(), shop.count("semel.journal")) == (0, 0)
    assert shop.ask("pay", OTHER, key="k").json["reason"] == "input_mismatch"
    assert shop.row("k")[:2] == ("FAILED", 1)
    shop.conn.execute("delete from failing")
    assert shop.ask("pay", PAY, key="k").status == 200
    assert shop.row("k") == ("SUCCEEDED", 2, {"receipt": "a1", "cents": 5})
    assert shop.count() == 1


def test_a_key_counts_for_somebody(shop: Shop) -> None:
    answer = shop.ask("pay", PAY, key="k", user=None)
    assert (answer.status, answer.json["error"]["data"]["code"]) == (401, "UNAUTHORIZED")
    assert shop.count() == 0
    assert shop.ask("pay", PAY, user=None).status == 200
    assert shop.conn.execute("select count(*) from semel.operation").fetchone() == (0,)


def test_anonymous_callers_may_share_their_keys(dsn: str, conn: Conn) -> None:
    with open_shop(dsn, conn, anonymous="shared") as here:
        assert here.ask("pay", PAY, key="k", user=None).status == 200
        assert here.ask("pay", PAY, key="k", user=None).json["result"]["replayed"] is True
        assert here.row("k", user=None)[:2] == ("SUCCEEDED", 1)


def test_concurrent_retries_get_the_first_answer_or_are_told_to_wait(shop: Shop) -> None:
    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*(shop.asking("pay", PAY, key="k") for _ in range(12)))

    answers = shop.run(all_at_once())
    assert shop.count() == 1
    assert shop.row("k")[:2] == ("SUCCEEDED", 1)
    for answer in answers:
        if answer.status == 409:
            assert answer.json["reason"] == "in_progress"
            assert answer.json["retryable"] is True
            assert answer.headers["retry-after"] == "1"
        else:
            assert answer.json["result"]["data"] == {"receipt": "a1", "cents": 5}
    assert any(answer.status == 200 for answer in answers)


# -- batches -------------------------------------------------------------------------------

BATCH = {"0": {"id": "a", "cents": 1}, "1": {"id": "b", "cents": 2}, "2": {"id": "c"}}


def test_each_call_of_a_batch_has_its_own_key_and_transaction(shop: Shop) -> None:
    shop.conn.execute("insert into failing values ('b')")
    answer = shop.ask("pay,pay,ship?batch=1", BATCH, keys=["u1", "u2", "u3"])
    assert answer.status == 207
    assert [next(iter(one.keys() - {"type"})) for one in answer.json] == [
        "result",
        "error",
        "result",
    ]
    assert (shop.count(), shop.count("shipped")) == (1, 1)
    assert shop.row("u2") == ("FAILED", 1, None)
    shop.conn.execute("delete from failing")
    alone = shop.ask("pay?batch=1", {"0": BATCH["1"]}, keys=["u2"])
    assert alone.json == [{"result": {"data": {"receipt": "b", "cents": 2}}}]
    assert shop.row("u2")[:2] == ("SUCCEEDED", 2)
    whole = shop.ask(
        "ship,pay,pay?batch=1",
        {"0": {"id": "c"}, "1": BATCH["1"], "2": BATCH["0"]},
        keys=["u3", "u2", "u1"],
    )
    assert [one["result"]["replayed"] for one in whole.json] == [True, True, True]
    assert whole.headers["idempotent-replayed"] == "true"
    assert (shop.count(), shop.count("shipped")) == (2, 1)


def test_two_equal_calls_of_one_batch_are_two_operations(shop: Shop) -> None:
    given = {"0": PAY, "1": PAY}
    assert shop.ask("pay,pay?batch=1", given, keys=["u1", "u2"]).status == 200
    assert shop.count() == 2


def test_the_marker_is_there_only_if_all_are_replays(shop: Shop) -> None:
    shop.ask("pay", PAY, key="u1")
    answer = shop.ask("pay,ship?batch=1", {"0": PAY, "1": PAY}, keys=["u1", "u2"])
    assert [one["result"].get("replayed") for one in answer.json] == [True, None]
    assert "idempotent-replayed" not in answer.headers


def test_one_key_names_calls_of_different_procedures_and_no_two_of_one(shop: Shop) -> None:
    assert shop.ask("pay,ship?batch=1", {"0": PAY, "1": PAY}, key="k").status == 200
    alone = shop.ask("ship", PAY, key="k")
    assert alone.json["result"]["replayed"] is True
    refused = shop.ask("pay,pay?batch=1", {"0": PAY, "1": PAY}, key="j")
    assert refused.status == 400
    assert [one["reason"] for one in refused.json] == ["key_malformed"] * 2
    assert shop.count() == 1


def test_the_indexed_rule_names_later_calls_by_their_place(dsn: str, conn: Conn) -> None:
    with open_shop(dsn, conn, keys="indexed") as here:
        assert here.ask("pay,pay,ship?batch=1", BATCH, key="k").status == 200
        ids = {row[0] for row in conn.execute("select request_id from semel.operation")}
        base = base_id(PROJECT, "alice", "k")
        assert ids == {f"{base}:pay", f"{base}:pay:batch:1", f"{base}:ship:batch:2"}
        assert (
            here.ask("pay,pay,ship?batch=1", BATCH, key="k").headers["idempotent-replayed"]
            == "true"
        )


def test_the_strict_indexed_rule_refuses_a_batch_that_could_be_regrouped(
    dsn: str, conn: Conn
) -> None:
    with open_shop(dsn, conn, keys="indexed", strict=True) as here:
        refused = here.ask("pay,ship?batch=1", {"0": PAY, "1": PAY}, key="k")
        assert (refused.status, refused.json[0]["code"]) == (400, "E-IDEMPOTENT-006")
        assert here.ask("pay?batch=1", {"0": PAY}, key="k").status == 200
        assert here.ask("pay,pay?batch=1", {"0": PAY, "1": PAY}, keys=["a", "b"]).status == 200


BAD_KEYS = [
    [("Idempotency-Key", "")],
    [("Idempotency-Key", '"open')],
    [("Idempotency-Key", "a"), ("Idempotency-Key", "a")],
    [("Idempotency-Key", '"' + "x" * 256 + '"')],
    [("Idempotency-Keys", '"a", "b"')],
    [("Idempotency-Keys", '"a')],
    [("Idempotency-Keys", "")],
    [("Idempotency-Keys", '"a",')],
    [("Idempotency-Keys", '"a"'), ("Idempotency-Key", '"a"')],
]


@pytest.mark.parametrize("lines", BAD_KEYS)
def test_what_is_no_key_is_refused_before_anything_is_executed(shop: Shop, lines: Any) -> None:
    answer = shop.ask("pay", PAY, headers=lines)
    assert (answer.status, answer.json["reason"]) == (400, "key_malformed")
    assert answer.json["error"]["data"]["code"] == "BAD_REQUEST"
    assert answer.json["error"]["data"]["path"] == "pay"
    assert shop.count() == 0


def test_the_same_key_twice_for_one_procedure_is_refused(shop: Shop) -> None:
    answer = shop.ask("pay,pay?batch=1", {"0": PAY, "1": OTHER}, keys=["u", "u"])
    assert answer.status == 400
    assert shop.count() == 0


def test_a_key_with_a_comma_and_a_quote_is_one_member_of_the_list(shop: Shop) -> None:
    line = ("Idempotency-Keys", r'"a,\"b";p=1 , c')
    assert shop.ask("pay,pay?batch=1", {"0": PAY, "1": PAY}, headers=[line]).status == 200
    assert shop.row('a,"b')[:2] == ("SUCCEEDED", 1)
    assert shop.row("c")[:2] == ("SUCCEEDED", 1)


def test_a_key_may_be_required(dsn: str, conn: Conn) -> None:
    with open_shop(dsn, conn, require_key=True) as here:
        answer = here.ask("pay", PAY)
        assert (answer.status, answer.json["reason"]) == (400, "key_missing")
        assert here.ask("paid", method="GET").json == {"result": {"data": 0}}


# -- what is answered again ----------------------------------------------------------------


def test_an_undefined_result_is_undefined_again(shop: Shop) -> None:
    assert shop.ask("void", key="k").json == {"result": {}}
    assert shop.ask("void", key="k").json == {"result": {"replayed": True}}
    assert shop.count("shipped") == 1


STREAM = [("trpc-accept", "application/jsonl")]


def test_a_stream_of_a_mutation_is_committed_and_streamed_again(shop: Shop) -> None:
    first = shop.ask("note.letters?batch=1", {}, key="k", headers=STREAM)
    assert b'[3,1,[["a"]]]\n[3,1,[[{"b":1}]]]\n[3,0,[[]]]\n' in first.body
    again = shop.ask("note.letters?batch=1", {}, key="k", headers=STREAM)
    assert again.body == first.body.replace(b'{"data":0}', b'{"data":0,"replayed":true}')
    assert shop.count("shipped") == 1


def test_a_request_that_does_not_stream_executes_no_mutation_that_does(shop: Shop) -> None:
    answer = shop.ask("note.letters", key="k")
    assert (answer.status, answer.json["error"]["data"]["code"]) == (
        415,
        "UNSUPPORTED_MEDIA_TYPE",
    )
    assert shop.count("shipped") == 0
    assert shop.conn.execute("select count(*) from semel.operation").fetchone() == (0,)


def test_an_answer_too_large_to_keep_is_sent_once_and_never_executed_again(
    dsn: str, conn: Conn
) -> None:
    with open_shop(dsn, conn, answer_bytes_max=10) as here:
        assert here.ask("pay", PAY, key="k").json["result"]["data"]["receipt"] == "a1"
        answer = here.ask("pay", PAY, key="k")
        assert answer.status == 409
        assert answer.json["reason"] == "result_too_large"
        assert answer.json["executed"] is answer.json["error"]["data"]["executed"] is True
        assert answer.json["retryable"] is False
        assert here.count() == 1


@pytest.mark.parametrize("body", [b"[1e400]", b'{"id":'])
def test_an_input_without_a_digest_is_refused_under_a_key(shop: Shop, body: bytes) -> None:
    answer = shop.ask("void", body, key="k")
    assert (answer.status, answer.json["error"]["data"]["code"]) == (400, "BAD_REQUEST")
    assert shop.count("shipped") == 0
