"""The journal of an operation: with its success, in the order of commits, and nothing of a failure or a replay."""

from typing import TYPE_CHECKING, Any

import pytest

from fix_world import Conn, one
from journals import join, kept, number, read, take, words
from semel.core.operations import (
    Begun,
    Identity,
    Reply,
    operation_begin,
    operation_close,
    operation_fail,
)
from semel.db.execute import run
from semel.db.pool import connect
from semel.errors import BadRequest, TransactionEnded

if TYPE_CHECKING:
    from semel.model import Json

REPLY = Reply(status=200, headers=[], body=b"1")
TOUCH = "update public.stock set left_ = left_ - 1 where id = 1"


@pytest.fixture(autouse=True)
def stock(conn: Conn) -> None:
    conn.execute("create table public.stock (id int primary key, left_ int)")
    conn.execute("insert into public.stock values (1, 100)")


def begin(conn: Conn, key: str = "k") -> Begun:
    digest: dict[str, Json] = {"version": 2, "digest": "sha256:" + "0" * 64}
    asked = Identity(
        project="p", request_id=key, event_type="sell", actor="ann", envelopes=[digest]
    )
    return run(conn, operation_begin(asked))


def close(conn: Conn, begun: Begun, *said: Any, key: str = "k", topic: str = "t") -> None:
    journal = [{"topic": topic, "payload": one_of} for one_of in said]
    assert begun.attempts
    assert begun.xid
    call = operation_close("p", key, begun.attempts, begun.xid, REPLY, journal=journal)
    run(conn, call)


def test_what_it_says_is_there_with_its_success(conn: Conn) -> None:
    with conn.transaction():
        close(conn, begin(conn), {"id": 1}, {"id": 2})
    number(conn)

    assert [{"id": 1}, {"id": 2}] == kept(conn)
    assert {("k", None)} == {(e.request_id, e.run_id) for e in read(conn).entries}


def test_a_replay_says_nothing(conn: Conn) -> None:
    join(conn)
    with conn.transaction():
        close(conn, begin(conn), 1)
    number(conn)
    assert [1] == words(take(conn))

    with conn.transaction():
        assert "replay" == begin(conn).outcome
        assert one(conn, "select pg_current_xact_id_if_assigned()") is None

    assert (0, []) == (number(conn), words(take(conn)))


def test_a_failure_says_nothing_and_its_retry_says_it_once(conn: Conn) -> None:
    with conn.transaction():
        begun = begin(conn)
        assert begun.attempts
        assert begun.xid
        with conn.transaction(force_rollback=True):
            conn.execute(TOUCH)
            conn.execute("""select semel.journal_append('p', 'k', null, '[{"topic": "t"}]')""")
        failed = operation_fail("p", "k", begun.attempts, begun.xid, code="X", error="no")
        assert "won" == run(conn, failed)
    assert 0 == number(conn)

    with conn.transaction():
        again = begin(conn)
        assert 2 == again.attempts
        close(conn, again, "sold")
    number(conn)
    assert ["sold"] == kept(conn)


def test_who_lost_the_operations_transaction_says_nothing(conn: Conn) -> None:
    with conn.transaction():
        begun = begin(conn)
    with pytest.raises(TransactionEnded), conn.transaction():
        close(conn, begun, 1)

    assert 0 == number(conn)


def test_an_entry_that_is_none_takes_the_success_with_it(conn: Conn) -> None:
    with pytest.raises(BadRequest, match="no entries of a journal"), conn.transaction():
        close(conn, begin(conn), 1, topic="")

    assert 0 == number(conn)
    assert 0 == one(conn, "select count(*) from semel.operations")


def test_two_operations_on_one_row_are_in_the_order_of_their_commits(
    conn: Conn, dsn: str
) -> None:
    """The second claimed its key first, and has the smaller transaction id."""
    with connect(dsn) as early:
        early.autocommit = False
        second = begin(early, "early")
        with conn.transaction():
            first = begin(conn, "late")
            conn.execute(TOUCH)
            close(conn, first, "first", key="late")
        assert int(second.xid or 0) < int(first.xid or 0)
        early.execute(TOUCH)
        close(early, second, "second", key="early")
        early.commit()

    number(conn)
    assert ["first", "second"] == kept(conn)
