"""The requests that the second seed's system took, sent here after its table was imported."""

from collections.abc import Iterator
from typing import Any

import pytest

from fix_world import Conn
from seed_ledger import TABLE, envelope, leave, request_id, rows, seed
from semel.core.operations import Reply
from semel.db.input_event import input_event_table
from semel.edges.once import once
from semel.errors import LegacyUnverifiable
from trpc_shop import PROJECT, Shop, open_shop

PAY = b'{"id": "a1", "cents": 5}'
SAME = b'{ "cents" : 5.0, "id" : "\\u00611" }'
OTHER = b'{"id": "a1", "cents": 6}'
ANSWER = {"receipt": "old", "10": 1, "9": [None, 1.5]}


@pytest.fixture
def shop(dsn: str, conn: Conn) -> Iterator[Shop]:
    seed(conn)
    with open_shop(dsn, conn) as here:
        yield here


def left(conn: Conn, key: str, status: str, **more: Any) -> str:
    told = {
        "request_id": request_id(key, path="pay"),
        "event_type": "pay",
        "payload": envelope(PAY),
    }
    return leave(conn, key, status, **{**told, **more})


def take(conn: Conn, *, stuck: bool = False) -> None:
    report = input_event_table(conn, TABLE).take(conn, PROJECT, stuck=stuck)
    assert report.imported == report.read
    assert report.conflicts == []


def test_what_succeeded_replays_its_answer_and_executes_nothing(shop: Shop, conn: Conn) -> None:
    left(conn, "k", "SUCCEEDED", result=ANSWER, attempts=2)
    take(conn)
    before = rows(conn)

    answer = shop.ask("pay", SAME, key="k")

    assert answer.status == 200
    assert answer.headers["idempotent-replayed"] == "true"
    assert answer.body == (
        b'{"result":{"data":{"9":[null,1.5],"10":1,"receipt":"old"},"replayed":true}}'
    )
    assert (shop.count(), shop.count("semel.journal"), rows(conn)) == (0, 0, before)


@pytest.mark.parametrize(
    ("status", "attempts"), [("PENDING", 0), ("PENDING", 3), ("FAILED", 1)]
)
def test_what_had_no_effect_executes_once_as_one_attempt_more(
    shop: Shop, conn: Conn, status: str, attempts: int
) -> None:
    left(conn, "k", status, attempts=attempts, error="it broke")
    take(conn)

    assert shop.ask("pay", OTHER, key="k").status == 409
    assert shop.ask("pay", PAY, key="k").status == 200
    assert shop.ask("pay", PAY, key="k").headers["idempotent-replayed"] == "true"

    assert shop.row("k") == ("SUCCEEDED", attempts + 1, {"receipt": "a1", "cents": 5})
    assert shop.count() == 1


@pytest.mark.parametrize(
    ("status", "more", "reason"),
    [
        ("SUCCEEDED", {"result": 1, "payload": envelope(OTHER)}, "input_mismatch"),
        ("FAILED", {"payload": envelope(OTHER)}, "input_mismatch"),
        ("PENDING", {"payload": envelope(OTHER)}, "input_mismatch"),
        ("PROCESSING", {}, "unknown_outcome"),
        ("PROCESSING", {"payload": {}}, "unknown_outcome"),
        ("SUCCEEDED", {"payload": {}, "result": 1}, "legacy_unverifiable"),
        ("PENDING", {"payload": {}}, "legacy_unverifiable"),
        ("SUCCEEDED", {"actor_user_id": "bob", "result": 1}, "input_mismatch"),
        ("PENDING", {"target": "ENGINE", "event_type": "turn.end"}, "input_mismatch"),
    ],
)
def test_everything_else_conflicts_and_is_untouched(
    shop: Shop, conn: Conn, status: str, more: dict[str, Any], reason: str
) -> None:
    left(conn, "k", status, **more)
    take(conn, stuck=True)
    before = rows(conn)

    answer = shop.ask("pay", PAY, key="k")

    assert (answer.status, answer.json["reason"]) == (409, reason)
    assert (shop.count(), rows(conn)) == (0, before)


def test_l6_a_legacy_failure_is_adopted_once(shop: Shop, conn: Conn) -> None:
    left(conn, "k", "FAILED", payload={}, error="it broke")
    take(conn)

    assert shop.ask("pay", PAY, key="k").status == 200
    assert shop.ask("pay", OTHER, key="k").status == 409
    [(payload, error)] = conn.execute("select payload, error from semel.operations").fetchall()
    assert (payload, error) == (envelope(PAY), None)
    assert shop.count() == 1


def test_a_program_that_calls_once_finds_them_too(shop: Shop, conn: Conn) -> None:
    done = left(conn, "k", "SUCCEEDED", result=ANSWER)
    legacy = left(conn, "l", "SUCCEEDED", payload={}, request_id=request_id("l", path="pay"))
    take(conn)

    def ask(request: str) -> Reply:
        told: dict[str, Any] = {"project": PROJECT, "operation": "pay", "actor": "alice"}
        with once(conn, key="k", request_id=request, input=PAY, **told) as op:
            assert op.replay is not None
            replayed: Reply = op.replay
        assert op.response() == replayed
        return replayed

    assert ask(done) == Reply(
        status=200,
        headers=[("content-type", "application/json")],
        body=b'{"9":[null,1.5],"10":1,"receipt":"old"}',
    )
    with pytest.raises(LegacyUnverifiable):
        ask(legacy)
