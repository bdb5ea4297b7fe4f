"""Closing an operation: what the caller's own constraints and triggers say is said before COMMIT."""

from collections.abc import Iterator

import psycopg
import pytest

from fix_world import Conn, one
from keyed import DONE, begin, close, fail, state
from semel.core.operations import operation_finish
from semel.db.execute import run

SHOP = """
create schema shop;
set search_path = shop;
create table account (id int primary key);
create table payment (account_id int references account deferrable initially deferred);
create table audit (who text, path text, amount int);
create function note() returns trigger language plpgsql as $$
begin
    insert into audit select current_user, current_setting('search_path'), new.account_id;
    return null;
end $$;
create constraint trigger noted after insert on payment
    deferrable initially deferred for each row execute function note();
grant usage on schema shop to semel_client;
grant all on all tables in schema shop to semel_client;
set role semel_client;
"""


@pytest.fixture
def shop(conn: Conn) -> Iterator[Conn]:
    """A caller that is no more than a client, with a schema and a search_path of its own."""
    conn.execute(SHOP)
    yield conn
    conn.execute("reset role")


def test_what_a_deferred_constraint_refuses_is_a_failure_and_not_a_lost_commit(
    shop: Conn,
) -> None:
    with shop.transaction():
        begun = begin(shop)
        with pytest.raises(psycopg.errors.ForeignKeyViolation), shop.transaction():
            shop.execute("insert into payment values (1)")
            close(shop, begun)
        assert "won" == fail(shop, begun, "no such account")
    shop.execute("reset role")
    assert ("FAILED", 1) == state(shop)
    assert 0 == one(shop, "select count(*) from payment")


def test_a_deferred_trigger_runs_as_the_caller_and_under_his_path(shop: Conn) -> None:
    shop.execute("insert into account values (1)")
    with shop.transaction():
        begun = begin(shop)
        shop.execute("insert into payment values (1)")
        close(shop, begun)
    assert [("semel_client", "shop", 1)] == shop.execute("select * from audit").fetchall()
    shop.execute("reset role")
    assert ("SUCCEEDED", 1) == state(shop)


def test_who_joins_keeps_his_constraints_deferred(shop: Conn) -> None:
    with shop.transaction():
        shop.execute("insert into payment values (1)")
        begun = begin(shop, join=True)
        run(shop, operation_finish("p", "k", begun.attempts or 0, begun.xid, DONE))
        shop.execute("insert into account values (1)")
    shop.execute("reset role")
    assert ("SUCCEEDED", 1) == state(shop)


def test_a_swallowed_error_is_never_a_success(shop: Conn) -> None:
    """The work went on after an error that aborted its transaction."""
    shop.execute("begin")
    begun = begin(shop)
    with pytest.raises(psycopg.errors.DivisionByZero):
        shop.execute("select 1 / 0")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        close(shop, begun)
    assert "ROLLBACK" == shop.execute("commit").statusmessage
    shop.execute("reset role")
    assert state(shop) is None


def test_an_error_that_a_savepoint_took_back_harms_nothing(shop: Conn) -> None:
    with shop.transaction():
        begun = begin(shop)
        with pytest.raises(psycopg.errors.DivisionByZero), shop.transaction():
            shop.execute("select 1 / 0")
        close(shop, begun)
    shop.execute("reset role")
    assert ("SUCCEEDED", 1) == state(shop)


def test_commit_is_skipped_behind_a_close_that_was_refused(shop: Conn) -> None:
    """One round trip: close and COMMIT in a pipeline."""
    shop.execute("begin")
    begun = begin(shop)
    shop.execute("insert into payment values (1)")
    with pytest.raises(psycopg.errors.ForeignKeyViolation), shop.pipeline():
        close(shop, begun)
        shop.execute("commit")
    shop.execute("rollback")
    shop.execute("reset role")
    assert state(shop) is None
    assert 0 == one(shop, "select count(*) from shop.payment")


def test_a_hostile_search_path_reaches_nothing(shop: Conn) -> None:
    """Operators and functions of the caller's schema are not those that the ledger uses."""
    shop.execute("reset role")
    shop.execute(
        "create function shop.never(text, text) returns boolean language sql as 'select false';"
        "create operator shop.= (leftarg = text, rightarg = text, function = shop.never);"
        "set role semel_client; set search_path = shop, pg_catalog"
    )
    with shop.transaction():
        close(shop, begin(shop))
    assert "replay" == begin(shop).outcome
