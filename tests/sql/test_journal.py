"""The journal: what was committed is numbered, in the order of commits, and nobody misses any of it."""

import json
from typing import Any

import psycopg
import pytest

import journals
from fix_world import Conn, one, second, until_blocked
from journals import join, kept, number, read, say, take, words
from semel.core.journals import (
    ENTRIES_MAX,
    PAYLOAD_BYTES_MAX,
    TOPIC_BYTES_MAX,
    journal_append,
    note,
    notes_text,
)
from semel.db.execute import run
from semel.db.pool import connect
from semel.errors import BadRequest, TooLarge


@pytest.fixture
def table(conn: Conn) -> str:
    conn.execute("create table public.stock (id int primary key, left_ int)")
    conn.execute("insert into public.stock values (1, 100)")
    return "public.stock"


TOUCH = "update public.stock set left_ = left_ - 1 where id = 1"


# -- what is written -------------------------------------------------------------------------


def test_an_entry_is_there_with_its_transaction_and_has_a_seq_after_it(conn: Conn) -> None:
    with conn.transaction():
        say(conn, {"id": 1}, {"id": 2}, topic="payments")
    assert [] == read(conn).entries

    assert 2 == number(conn, at=5)

    [first, second_] = read(conn).entries
    assert [(1, {"id": 1}), (2, {"id": 2})] == [(e.seq, e.payload) for e in (first, second_)]
    assert {"payments"} == {first.topic, second_.topic}
    assert first.finished_at == second(0)
    assert first.id != second_.id


def test_nothing_remains_of_a_transaction_that_rolls_back(conn: Conn) -> None:
    with conn.transaction(force_rollback=True):
        say(conn, 1)
    with conn.transaction(), conn.transaction(force_rollback=True):
        say(conn, 2)

    assert 0 == number(conn)
    assert 0 == one(conn, "select count(*) from semel.journal")


def test_entries_say_where_they_come_from(conn: Conn) -> None:
    run_id = journals.ALICE
    run(conn, journal_append("p", [note("a")], request_id="http:1", run_id=run_id))
    number(conn)

    [entry] = read(conn).entries
    assert ("http:1", run_id, None) == (entry.request_id, entry.run_id, entry.payload)


def test_the_view_shows_what_has_no_seq_yet(conn: Conn) -> None:
    say(conn, 1)
    number(conn)
    say(conn, 2)

    rows = conn.execute(
        "select seq, payload, numbered_at is null from semel.journal"
    ).fetchall()
    assert [(1, 1, False), (None, 2, True)] == sorted(rows, key=lambda row: row[2])


@pytest.mark.parametrize(
    "value", [None, 0, "", "é\u2028", [], {}, {"a": [1, {"b": None}]}, 10**300, 1e-300]
)
def test_a_payload_is_any_json(conn: Conn, value: Any) -> None:
    say(conn, value)
    number(conn)

    assert [value] == words(read(conn))


@pytest.mark.parametrize("topic", ["", "x" * (TOPIC_BYTES_MAX + 1), "a\0", "\ud800", None, 5])
def test_what_is_no_topic_is_refused(topic: Any) -> None:
    with pytest.raises(BadRequest, match="1 to 255 bytes"):
        note(topic)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, "\0", "\ud800", object()])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(BadRequest, match="is no JSON"):
        note("t", value)


def test_what_is_too_large_or_too_much_is_refused() -> None:
    note("t", "x" * (PAYLOAD_BYTES_MAX - 2))
    with pytest.raises(TooLarge, match="above 262144 bytes"):
        note("t", "x" * (PAYLOAD_BYTES_MAX - 1))
    with pytest.raises(TooLarge, match="at most 1000"):
        notes_text([note("t")] * (ENTRIES_MAX + 1))


@pytest.mark.parametrize(
    ("entries", "state"),
    [
        (None, "SMQ01"),
        ({"topic": "t"}, "SMQ01"),
        ([1], "SMQ01"),
        ([{"payload": 1}], "SMQ01"),
        ([{"topic": ""}], "SMQ01"),
        ([{"topic": 5}], "SMQ01"),
        ([{"topic": None}], "SMQ01"),
        ([{"topic": "x" * 256}], "SMQ01"),
        ([{"topic": "t"}] * 1001, "SMQ01"),
        ([{"topic": "t", "payload": "x" * 1048576}], "SMQ02"),
    ],
)
def test_sql_refuses_what_is_no_entry_and_keeps_nothing(
    conn: Conn, entries: Any, state: str
) -> None:
    with pytest.raises(psycopg.Error) as refused:
        conn.execute(
            "select semel.journal_append('p', null, null, %s::jsonb)",
            (json.dumps(entries),) if entries is not None else (None,),
        )
    assert state == refused.value.sqlstate
    assert refused.value.diag.message_hint
    assert 0 == one(conn, "select count(*) from semel.journal")


@pytest.mark.parametrize("entries", [[{"topic": "x" * 255}], [{"topic": "t"}] * 1000, []])
def test_sql_takes_what_is_within_its_limits(conn: Conn, entries: Any) -> None:
    call = "select semel.journal_append('p', null, null, %s::jsonb)"
    assert len(entries) == one(conn, call, json.dumps(entries))
    assert len(entries) == number(conn)


# -- the order -------------------------------------------------------------------------------


def test_entries_of_one_call_keep_their_order(conn: Conn) -> None:
    said = list(range(200))
    say(conn, *said)
    number(conn)

    assert said == kept(conn)


def test_entries_of_one_transaction_keep_their_order_though_the_clock_stands_still(
    conn: Conn,
) -> None:
    with conn.transaction():
        say(conn, 1, 2)
        say(conn, 3)
        say(conn, 4, 5, at=-60)
    number(conn)

    assert [1, 2, 3, 4, 5] == kept(conn)


def test_two_transactions_on_one_row_are_numbered_in_the_order_of_their_commits(
    conn: Conn, other: Conn, dsn: str, table: str
) -> None:
    """The second began first, and has the smaller transaction id."""
    with connect(dsn) as early:
        early.autocommit = False
        xid = one(early, "select pg_current_xact_id()::text::bigint")
        with conn.transaction():
            assert xid < one(conn, "select pg_current_xact_id()::text::bigint")
            conn.execute(TOUCH)
            say(conn, "first", at=None)
        early.execute(TOUCH)
        say(early, "second", at=None)
        early.commit()

    assert 2 == number(other)
    assert ["first", "second"] == kept(conn)


def test_a_clock_that_steps_back_between_two_commits_changes_nothing(
    conn: Conn, other: Conn, table: str
) -> None:
    for n, at in enumerate((0.0, -3600.0, 0.0, -7200.0, 0.0)):
        with conn.transaction():
            conn.execute(TOUCH)
            say(conn, n, at=at)
    assert 5 == number(other, at=-7200)
    with conn.transaction():
        conn.execute(TOUCH)
        say(conn, 5, at=-9000)
    number(other)

    assert [0, 1, 2, 3, 4, 5] == kept(conn)


def test_a_transaction_that_ends_late_gets_a_later_seq_and_nobody_waits(
    conn: Conn, other: Conn, dsn: str
) -> None:
    join(conn)
    other.autocommit = False
    say(other, "late", at=0)
    say(conn, "quick", at=10)

    assert 1 == number(conn, at=11)
    assert ["quick"] == words(take(conn))
    other.commit()
    assert 1 == number(conn, at=12)

    [late] = take(conn).entries
    assert (2, "late", second(0)) == (late.seq, late.payload, late.finished_at)


@pytest.mark.parametrize("where", ["here", "in another database"])
def test_a_transaction_that_stays_open_freezes_no_reader(
    conn: Conn, dsn: str, empty_dsn: str, where: str
) -> None:
    """Also with a snapshot and a transaction id older than all that is written."""
    join(conn)
    with connect(dsn if where == "here" else empty_dsn) as sleeper:
        sleeper.autocommit = False
        sleeper.execute("set transaction isolation level repeatable read")
        sleeper.execute("select pg_current_xact_id(), pg_current_snapshot()")
        for n in range(5):
            say(conn, n, at=n)
            assert 1 == number(conn, at=n)
            assert [n] == words(take(conn))
        sleeper.rollback()


def test_a_prepared_transaction_is_numbered_when_it_commits(conn: Conn, other: Conn) -> None:
    if one(conn, "select current_setting('max_prepared_transactions')::int") == 0:
        pytest.skip("max_prepared_transactions = 0 on this server")
    other.autocommit = False
    say(other, "prepared")
    other.execute("prepare transaction 'p1'")
    other.rollback()
    other.autocommit = True
    assert 0 == number(conn)
    other.execute("commit prepared 'p1'")
    assert 1 == number(conn)


# -- numbering -------------------------------------------------------------------------------


def test_numbering_works_in_batches_the_oldest_first_without_a_gap(conn: Conn) -> None:
    for n in range(5):
        say(conn, n, at=10 - n)
    counts = [one(conn, "select semel.journal_number('p', 2)") for _ in range(4)]

    assert [2, 2, 1, 0] == counts
    assert [1, 2, 3, 4, 5] == [e.seq for e in read(conn).entries]
    assert sorted(kept(conn)) == list(range(5))


def test_one_numbers_at_a_time_and_the_other_does_not_wait(conn: Conn, other: Conn) -> None:
    say(conn, 0)
    number(conn)
    other.autocommit = False
    say(conn, 1)
    assert 1 == number(other)
    say(conn, 2)

    assert number(conn) is None
    other.commit()
    assert 1 == number(conn)
    assert [0, 1, 2] == kept(conn)


def test_two_that_are_the_first_to_number_a_project_do_not_both(
    conn: Conn, other: Conn
) -> None:
    other.autocommit = False
    say(conn, 1)
    assert 1 == number(other)
    with connect(conn.info.dsn) as third:
        import threading

        answers: list[Any] = []
        waits = threading.Thread(target=lambda: answers.append(number(third)))
        waits.start()
        until_blocked(conn, third.info.backend_pid)
        other.commit()
        waits.join()
    assert [0] == answers
    assert [1] == kept(conn)


def test_what_another_project_says_moves_no_moment_of_this_one(conn: Conn) -> None:
    say(conn, "theirs", project="q", at=3600)
    say(conn, "mine", at=0)
    number(conn)

    assert [second(0)] == [entry.finished_at for entry in read(conn).entries]


def test_projects_do_not_see_each_other(conn: Conn) -> None:
    say(conn, "mine")
    say(conn, "theirs", project="q")
    assert [1, 1] == [number(conn), number(conn, project="q")]

    assert ["mine"] == words(read(conn))
    assert ["theirs"] == kept(conn, "q")
    assert [1] == [e.seq for e in read(conn).entries]


# -- reading ---------------------------------------------------------------------------------


def test_a_reader_that_keeps_his_place_reads_page_by_page(conn: Conn) -> None:
    say(conn, *range(5))
    number(conn)
    pages = [read(conn, after, limit=2) for after in (0, 2, 4, 5)]

    assert [[0, 1], [2, 3], [4], []] == [words(page) for page in pages]
    assert [2, 4, 5, 5] == [page.upto for page in pages]


def test_topics_are_chosen_and_the_others_passed_over(conn: Conn) -> None:
    for n, topic in enumerate("aabbcab"):
        say(conn, n, topic=topic, at=n)
    number(conn)

    page = read(conn, topics=["b", "c"], limit=3)
    assert ([2, 3, 4], 5) == (words(page), page.upto)
    page = read(conn, page.upto, topics=["b", "c"], limit=3)
    assert ([6], 7) == (words(page), page.upto)
    page = read(conn, topics=["nobody's"])
    assert ([], 7) == (words(page), page.upto)
    assert [] == words(read(conn, topics=[]))


def test_one_look_is_bounded_and_says_how_far_it_came(conn: Conn) -> None:
    for _ in range(11):
        say(conn, *range(1000))
    say(conn, "found", topic="rare")
    while number(conn):
        pass

    page = read(conn, topics=["rare"])
    assert ([], 10_000) == (words(page), page.upto)
    page = read(conn, page.upto, topics=["rare"])
    assert (["found"], 11_001) == (words(page), page.upto)


def test_who_stands_beyond_the_end_is_told(conn: Conn) -> None:
    """A failover has lost entries whose seq will be another's: nothing may be taken for known."""
    say(conn, 1)
    number(conn)

    assert ["read", "passed"] == [read(conn, after).outcome for after in (1, 2)]


@pytest.mark.parametrize("limit", [0, -1, 1001, None])
def test_a_limit_that_is_none_is_refused(conn: Conn, limit: Any) -> None:
    with pytest.raises(BadRequest, match="1 to 1000"):
        read(conn, limit=limit)
