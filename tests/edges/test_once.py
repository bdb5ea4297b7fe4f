"""once, on every driver: the table of states, failures, and what is left of them."""

from contextlib import suppress
from typing import Any

import pytest

from fix_world import Conn, one
from semel.core.operations import Reply
from semel.errors import (
    BadReply,
    BadRequest,
    ErrorSwallowed,
    InFlight,
    KeyConflict,
    NeedsReconcile,
    ResultNotKept,
    TransactionEnded,
)
from ways import WAYS, Way

pytestmark = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)


class Refused(Exception):
    """A business error."""


@pytest.fixture
def paid(conn: Conn) -> Conn:
    """A connection that looks, and a table of business rows."""
    conn.execute("create table public.paid (id int primary key, amount int)")
    conn.execute(
        "create table public.owed (id int references public.paid deferrable initially deferred)"
    )
    return conn


def rows(conn: Conn) -> int:
    return int(one(conn, "select count(*) from public.paid"))


def state(conn: Conn) -> tuple[str, int] | None:
    found = conn.execute("select status, attempts from semel.operation").fetchall()
    return (found[0][0], found[0][1]) if found else None


async def pay(way: Way, conn: Any, number: int = 1, **told: Any) -> Reply:
    async with way.once(conn, **told) as op:
        if op.replay is None:
            await way.execute(conn, "insert into public.paid values (%s, 40)", number)
            op.reply({"id": number}, status=201)
    return op.response()


def test_it_executes_once_and_replays_to_the_byte(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        first = await pay(way, conn)
        again = await pay(way, conn)
        assert first == again
        assert (201, b'{"id":1}') == (first.status, first.body)

    way.play(dsn, act)
    assert (1, ("SUCCEEDED", 1)) == (rows(paid), state(paid))


def test_another_input_operation_or_actor_is_refused(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        await pay(way, conn, input={"amount": 40, "to": "x"}, request_id="r")
        await pay(way, conn, input=b'{"to":"x", "amount":4e1}', request_id="r")
        for other in ({"input": {"amount": 41}}, {"operation": "refund"}, {"actor": "b"}):
            told = {"input": {"amount": 40, "to": "x"}, **other}
            with pytest.raises(KeyConflict):
                await pay(way, conn, 2, request_id="r", **told)

    way.play(dsn, act)
    assert (1, ("SUCCEEDED", 1)) == (rows(paid), state(paid))


def test_a_business_error_leaves_nothing_but_itself(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        error = Refused("no money")
        with pytest.raises(Refused) as raised:
            async with way.once(conn) as op:
                await way.execute(conn, "insert into public.paid values (1, 1), (2, 2)")
                raise error
        assert raised.value is error
        assert ("FAILED", 1) == state(paid)
        with pytest.raises(KeyConflict):
            await pay(way, conn, input=[1])
        assert ("FAILED", 1) == state(paid)
        await pay(way, conn)
        with pytest.raises(BadRequest):
            op.response()

    way.play(dsn, act)
    assert (1, ("SUCCEEDED", 2)) == (rows(paid), state(paid))
    assert None is one(paid, "select error from semel.operation")


def test_a_failure_says_no_value_of_the_database(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        for _ in range(2):
            with pytest.raises(Exception, match="duplicate key"):
                async with way.once(conn, key="dup"):
                    await way.execute(
                        conn, "insert into public.paid values (7777, 1), (7777, 2)"
                    )
        assert ("FAILED", 2) == state(paid)
        await pay(way, conn, key="dup")

    way.play(dsn, act)
    assert (1, ("SUCCEEDED", 3)) == (rows(paid), state(paid))


def test_the_error_is_kept_without_details(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        with pytest.raises(Exception, match="duplicate key"):
            async with way.once(conn):
                await way.execute(conn, "insert into public.paid values (7777, 1), (7777, 2)")

    way.play(dsn, act)
    [[code, error]] = paid.execute("select error_code, error from semel.operation").fetchall()
    assert "23505" == code
    assert "duplicate key" in error
    assert "7777" not in error


def test_a_deferred_constraint_is_a_failure_of_the_operation(
    way: Way, dsn: str, paid: Conn
) -> None:
    async def act(conn: Any) -> None:
        with pytest.raises(Exception, match="foreign key"):
            async with way.once(conn) as op:
                await way.execute(conn, "insert into public.owed values (9)")
                op.reply({"ok": True})
        with pytest.raises(BadRequest):
            op.response()
        assert ("FAILED", 1) == state(paid)
        await pay(way, conn)

    way.play(dsn, act)
    assert (1, ("SUCCEEDED", 2)) == (rows(paid), state(paid))
    assert 0 == one(paid, "select count(*) from public.owed")


def test_a_swallowed_error_is_never_a_success(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        with pytest.raises(ErrorSwallowed):
            async with way.once(conn) as op:
                await way.execute(conn, "insert into public.paid values (1, 1)")
                with suppress(Exception):
                    await way.execute(conn, "select 1/0")
                op.reply({"ok": True})
        assert ("FAILED", 1) == state(paid)
        await pay(way, conn)

    way.play(dsn, act)
    assert (1, ("SUCCEEDED", 2)) == (rows(paid), state(paid))


def test_what_is_no_json_is_a_failure_even_if_it_is_caught(
    way: Way, dsn: str, paid: Conn
) -> None:
    async def act(conn: Any) -> None:
        with pytest.raises(BadReply, match="cannot be kept"):
            async with way.once(conn) as op:
                await way.execute(conn, "insert into public.paid values (1, 1)")
                with pytest.raises(BadReply):
                    op.reply({"at": object()})
        assert ("FAILED", 1) == state(paid)

    way.play(dsn, act)
    assert 0 == rows(paid)


def test_a_long_reply_is_answered_once(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        async with way.once(conn, result_max=10) as op:
            op.reply(b"x" * 11, headers=[("Content-Type", "text/plain")])
        assert b"x" * 11 == op.response().body
        with pytest.raises(ResultNotKept):
            await pay(way, conn)

    way.play(dsn, act)
    assert (0, ("SUCCEEDED", 1)) == (rows(paid), state(paid))


def test_headers_and_bytes_stay_as_they_are(way: Way, dsn: str, paid: Conn) -> None:
    headers = [("Link", "</a>; rel=x"), ("Link", "</b>"), ("Content-Type", "text/x; é=ü'\\")]

    async def act(conn: Any) -> None:
        for _ in range(2):
            async with way.once(conn) as op:
                if op.replay is None:
                    op.reply(bytes(range(256)), status=402, headers=headers)
            assert Reply(status=402, headers=headers, body=bytes(range(256))) == op.response()

    way.play(dsn, act)


def test_nothing_was_replied_is_null(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        async with way.once(conn) as op:
            with pytest.raises(BadRequest, match="only after COMMIT"):
                op.response()
        assert (200, b"null") == (op.response().status, op.response().body)
        async with way.once(conn) as op:
            assert op.replay is not None
            with pytest.raises(BadRequest, match="replay"):
                op.reply()
            with pytest.raises(BadRequest, match="replay"):
                op.journal("t")
            with pytest.raises(BadRequest, match="replay"):
                op.start("a")

    way.play(dsn, act)


def test_nested_savepoints_are_the_works_own(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        async with way.once(conn):
            await way.execute(conn, "savepoint mine")
            await way.execute(conn, "insert into public.paid values (1, 1)")
            await way.execute(conn, "rollback to savepoint mine")
            await way.execute(conn, "insert into public.paid values (2, 2)")
            await way.execute(conn, "release savepoint mine")

    way.play(dsn, act)
    assert [(2,)] == paid.execute("select id from public.paid").fetchall()
    assert ("SUCCEEDED", 1) == state(paid)


def test_a_committed_processing_is_never_executed(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        await pay(way, conn)
        paid.execute("update semel.operation set status = 'PROCESSING'")
        with pytest.raises(NeedsReconcile):
            await pay(way, conn, 2)

    way.play(dsn, act)
    assert (1, ("PROCESSING", 1)) == (rows(paid), state(paid))


def test_an_exact_pending_row_is_executed(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        await pay(way, conn)
        paid.execute(
            "update semel.operation set status = 'PENDING', attempts = 3, reply_status = null, reply_body = null"
        )
        await pay(way, conn, 2)

    way.play(dsn, act)
    assert (2, ("SUCCEEDED", 4)) == (rows(paid), state(paid))


def test_a_row_is_judged_under_its_own_version(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        await pay(way, conn, input={"2": 1, "10": 2}, version=1)
        assert b'{"id":1}' == (await pay(way, conn, 2, input={"10": 2, "2": 1})).body
        with pytest.raises(KeyConflict):
            await pay(way, conn, 2, input={"10": 2, "2": 2})

    way.play(dsn, act)
    assert (1, ("SUCCEEDED", 1)) == (rows(paid), state(paid))


def test_work_that_commits_is_found_out(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        with pytest.raises(TransactionEnded):
            async with way.once(conn) as op:
                await way.execute(conn, "insert into public.paid values (1, 1)")
                await way.execute(conn, "commit")
                op.reply({"ok": True})
        with pytest.raises(BadRequest):
            op.response()
        assert ("PROCESSING", 1) == state(paid)
        with pytest.raises(NeedsReconcile):
            await pay(way, conn, 2)

    way.play(dsn, act)
    assert 1 == rows(paid)


def test_work_that_rolls_back_is_found_out(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        with pytest.raises(TransactionEnded):
            async with way.once(conn) as op:
                await way.execute(conn, "insert into public.paid values (1, 1)")
                await way.execute(conn, "rollback")
                op.reply({"ok": True})
        assert ("FAILED", 1) == state(paid)
        await pay(way, conn)

    way.play(dsn, act)
    assert (1, ("SUCCEEDED", 2)) == (rows(paid), state(paid))


def test_who_failed_without_raising_leaves_nothing_either(
    way: Way, dsn: str, paid: Conn
) -> None:
    async def act(conn: Any) -> None:
        async with way.once(conn) as op:
            await way.execute(conn, "insert into public.paid values (1, 1)")
            op.reply({"why": "no money"}, status=402)
            op.fail("no money", code="402")
        assert 402 == op.response().status
        assert ("FAILED", 1) == state(paid)

    way.play(dsn, act)
    assert 0 == rows(paid)


def test_without_a_key_it_is_a_plain_transaction(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        assert b'{"id":1}' == (await pay(way, conn, key=None)).body
        await pay(way, conn, 2, key=None)
        with pytest.raises(Refused):
            async with way.once(conn, key=None):
                await way.execute(conn, "insert into public.paid values (3, 1)")
                raise Refused
        with pytest.raises(ErrorSwallowed):
            async with way.once(conn, key=None):
                with suppress(Exception):
                    await way.execute(conn, "select 1/0")

    way.play(dsn, act)
    assert (2, None) == (rows(paid), state(paid))


def test_a_transaction_that_only_read_is_taken(way: Way, dsn: str, paid: Conn) -> None:
    async def act(conn: Any) -> None:
        await way.execute(conn, "select 1")
        await pay(way, conn)
        await way.execute(conn, "select 1")
        await pay(way, conn)

    way.play(dsn, act)
    assert (1, ("SUCCEEDED", 1)) == (rows(paid), state(paid))


def test_another_in_flight_is_waited_for_or_not(way: Way, dsn: str, paid: Conn) -> None:
    """The wait is real: the first commits while the second waits for it."""

    async def act(conn: Any) -> None:
        other = WAYS[2]
        async with other.open(dsn) as first:
            block = other.once(first)
            op = await block.__aenter__()
            op.reply({"id": 9})
            with pytest.raises(InFlight):
                await pay(way, conn, wait=None)
            await block.__aexit__(None, None, None)
        assert b'{"id":9}' == (await pay(way, conn)).body

    way.play(dsn, act)
    assert (0, ("SUCCEEDED", 1)) == (rows(paid), state(paid))
