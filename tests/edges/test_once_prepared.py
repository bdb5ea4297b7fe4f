"""once on psycopg with prepared statements: whoever drops them, the operation goes on."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.pq import PipelineStatus, TransactionStatus

import semel
from fix_world import Conn, one
from semel.core.operations import BEGIN
from semel.db.ledger.parameter import numbered
from semel.errors import KeyConflict, TransactionEnded

PREPARED = "select count(*) from pg_prepared_statements where name ^@ 'semel'"
Mine = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def _paid(conn: Conn) -> None:
    conn.execute("create table public.paid (key text)")


@pytest.fixture
def mine(dsn: str) -> Iterator[Mine]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield conn


def pay(mine: Mine, key: str, work: Callable[[Mine], Any] = lambda _: None) -> bytes:
    with semel.once(mine, project="p", actor="ann", key=key, operation="pay") as op:
        if op.replay is None:
            mine.execute("insert into public.paid values (%s)", (key,))
            work(mine)
            op.reply({"paid": key})
    assert mine.pgconn.transaction_status == TransactionStatus.IDLE
    assert mine.pgconn.pipeline_status == PipelineStatus.OFF
    return op.response().body


def past_psycopg(sql: bytes) -> Callable[[Mine], Any]:
    """*sql*, so that psycopg's book of prepared statements does not learn of it."""
    return lambda mine: mine.pgconn.exec_(b"select 1;" + sql + b";select 1")


def test_a_claim_prepares_itself_and_its_close(mine: Mine) -> None:
    pay(mine, "a")
    pay(mine, "b")
    assert 5 == one(mine, PREPARED)


def test_nothing_is_prepared_where_psycopg_may_not(mine: Mine) -> None:
    mine.prepare_threshold = None
    pay(mine, "a")
    assert 0 == one(mine, PREPARED)


def test_nothing_is_prepared_in_another_encoding_and_every_letter_arrives(
    mine: Mine, conn: Conn
) -> None:
    mine.execute("set client_encoding to 'LATIN1'")
    told: dict[str, Any] = {"project": "p", "actor": "Zoë", "key": "k", "operation": "paÿ"}
    with semel.once(mine, **told) as op:
        op.reply({"é": "ü"})
    assert 0 == one(mine, PREPARED)
    mine.execute("set client_encoding to 'UTF8'")
    with semel.once(mine, **told) as op:
        assert op.replay is not None
        assert '{"é":"ü"}'.encode() == op.replay.body
    assert [("paÿ", "Zoë")] == conn.execute(
        "select event_type, actor_user_id from semel.operation"
    ).fetchall()


@pytest.mark.parametrize("words", ["deallocate all", "discard all"])
def test_what_is_dropped_between_operations_is_prepared_again(mine: Mine, words: str) -> None:
    pay(mine, "a")
    mine.execute(words.encode())
    assert 0 == one(mine, PREPARED)
    pay(mine, "b")
    assert 5 == one(mine, PREPARED)


def test_what_the_work_drops_does_not_fail_it(mine: Mine, conn: Conn) -> None:
    pay(mine, "a")
    pay(mine, "b", lambda mine: mine.execute("deallocate all"))

    def rolls_a_savepoint_back(mine: Mine) -> None:
        with mine.transaction(force_rollback=True):
            mine.execute("insert into public.paid values ('undone')")

    pay(mine, "c", rolls_a_savepoint_back)
    assert ["a", "b", "c"] == [key for (key,) in conn.execute("select key from public.paid")]
    assert [("SUCCEEDED", 3)] == conn.execute(
        "select status, count(*) from semel.operation group by 1"
    ).fetchall()


def test_a_claim_that_finds_nothing_prepared_goes_as_text(mine: Mine) -> None:
    pay(mine, "a")
    past_psycopg(b"deallocate all")(mine)
    assert b'{"paid":"b"}' == pay(mine, "b")
    assert b'{"paid":"c"}' == pay(mine, "c")
    assert 0 == one(mine, PREPARED)


def test_a_close_that_finds_nothing_prepared_fails_the_operation_and_the_retry_executes(
    mine: Mine, conn: Conn
) -> None:
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        pay(mine, "a", past_psycopg(b"deallocate all"))
    assert [] == conn.execute("select key from public.paid").fetchall()
    assert [("FAILED", "26000")] == conn.execute(
        "select status, error_code from semel.operation"
    ).fetchall()
    assert b'{"paid":"a"}' == pay(mine, "a")


def test_a_name_that_another_client_has_prepared_is_no_error(mine: Mine) -> None:
    """As where a pooler that knows of no prepared statements lends one session to both."""
    pay(mine, "a")
    [(name,)] = mine.execute(
        "select name from pg_prepared_statements where statement = %s",
        (numbered(BEGIN).decode(),),
    ).fetchall()
    mine.execute("deallocate all")
    past_psycopg(f"prepare {name} as select 1".encode())(mine)
    assert b'{"paid":"b"}' == pay(mine, "b")


def test_a_refusal_and_an_error_leave_the_connection_out_of_pipeline_mode(
    mine: Mine, conn: Conn
) -> None:
    pay(mine, "a")
    with (
        pytest.raises(KeyConflict),
        semel.once(mine, project="p", actor="ann", key="a", operation="other"),
    ):
        pass
    with pytest.raises(TransactionEnded):
        pay(mine, "b", lambda mine: mine.execute("commit").connection.execute("begin"))
    conn.execute(
        "create constraint trigger late after insert on public.paid deferrable"
        " initially deferred for each row when (new.key = 'late')"
        " execute function suppress_redundant_updates_trigger()"
    )
    with pytest.raises(psycopg.Error):
        pay(mine, "late")
    assert mine.pgconn.pipeline_status == PipelineStatus.OFF
    assert b'{"paid":"c"}' == pay(mine, "c")


def test_psycopgs_own_limit_of_statements_drops_ours_among_them(mine: Mine) -> None:
    mine.prepared_max = 2
    pay(mine, "a")
    for n in range(4):
        mine.execute(f"select {n}".encode(), prepare=True)
    pay(mine, "b")
    assert b'{"paid":"c"}' == pay(mine, "c")


def test_a_ledger_that_is_not_there_is_said_as_the_server_says_it(
    mine: Mine, conn: Conn
) -> None:
    conn.execute("alter schema semel rename to elsewhere")
    with pytest.raises(psycopg.errors.InvalidSchemaName):
        pay(mine, "a")
    assert mine.pgconn.transaction_status == TransactionStatus.IDLE
    conn.execute("alter schema elsewhere rename to semel")
    assert b'{"paid":"a"}' == pay(mine, "a")
    assert 5 == one(mine, PREPARED)
