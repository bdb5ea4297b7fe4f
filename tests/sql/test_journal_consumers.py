"""Consumers: each entry once in the consumer's own transaction, at least once under a lease, never skipped."""

import threading
from typing import Any

import pytest

from fix_world import Conn, one, second, until_blocked
from journals import (
    ALICE,
    BOB,
    commit,
    expire,
    join,
    kept,
    lease,
    number,
    read,
    say,
    take,
    words,
)
from semel.core import consumers, upkeep
from semel.db.execute import run
from semel.errors import BadRequest


def place(conn: Conn, name: str = "c") -> int:
    return int(one(conn, "select seq from semel.consumers where consumer = %s", name))


def seek(conn: Conn, to: int, name: str = "c") -> Any:
    return run(conn, consumers.journal_seek("p", name, to))


def waits(conn: Conn, name: str = "c") -> bool:
    return run(conn, consumers.journal_waits("p", name))


# -- who reads -------------------------------------------------------------------------------


def test_a_consumer_begins_at_the_oldest_or_the_newest_and_stays_where_it_is(
    conn: Conn,
) -> None:
    say(conn, 1, 2)
    number(conn)

    assert [0, 2] == [join(conn, "old"), join(conn, "new", "newest")]
    assert [1, 2] == words(take(conn, "old"))
    assert [2, 2] == [join(conn, "old"), join(conn, "new", "oldest")]
    say(conn, 3)
    number(conn)
    assert [[3], [3]] == [words(take(conn, name)) for name in ("old", "new")]


@pytest.mark.parametrize("name", ["", "a b", "x" * 129, "-a", None])
def test_what_is_no_consumer_is_refused(conn: Conn, name: Any) -> None:
    with pytest.raises(BadRequest, match="no consumer"):
        join(conn, name)
    with pytest.raises(BadRequest, match="no place to begin"):
        join(conn, "c", "middle")


def test_a_consumer_that_nobody_knows_is_told_so(conn: Conn) -> None:
    assert ["unknown", "unknown"] == [take(conn).outcome, lease(conn).outcome]
    assert "unknown" == commit(conn, 0)
    assert ("unknown", None) == seek(conn, 0)
    assert "unknown" == run(conn, consumers.journal_forget("p", "c"))


def test_a_consumer_that_is_forgotten_begins_anew(conn: Conn) -> None:
    say(conn, 1)
    number(conn)
    join(conn)
    take(conn)

    assert "won" == run(conn, consumers.journal_forget("p", "c"))
    assert "unknown" == take(conn).outcome
    assert 0 == join(conn)


def test_the_view_says_how_far_behind_it_is(conn: Conn) -> None:
    join(conn)
    say(conn, 1, 2, 3)
    number(conn)
    take(conn, limit=1)

    row = conn.execute("select seq, behind, passed, holder from semel.consumers").fetchall()
    assert [(1, 2, False, None)] == row


def test_whether_there_is_something_to_look_at_is_asked_without_writing(conn: Conn) -> None:
    assert waits(conn), "it is not known yet"
    join(conn)
    assert not waits(conn)
    say(conn, 1)
    assert waits(conn)
    number(conn)
    assert waits(conn)
    take(conn)
    assert not waits(conn)
    with conn.transaction():
        waits(conn)
        assert one(conn, "select pg_current_xact_id_if_assigned()") is None


# -- exactly once ----------------------------------------------------------------------------


def test_the_cursor_moves_with_the_consumers_transaction_or_not_at_all(conn: Conn) -> None:
    join(conn)
    say(conn, 1, 2, 3)
    number(conn)
    with conn.transaction(force_rollback=True):
        assert [1, 2, 3] == words(take(conn))
        assert [] == words(take(conn))

    with conn.transaction():
        assert [1, 2] == words(take(conn, limit=2))
    assert [3] == words(take(conn))
    assert ("read", []) == (take(conn).outcome, words(take(conn)))


def test_another_instance_waits_for_nothing_and_gets_nothing(conn: Conn, other: Conn) -> None:
    join(conn)
    say(conn, 1, 2)
    number(conn)
    other.autocommit = False
    assert [1] == words(take(other, limit=1))

    assert ("busy", []) == (take(conn).outcome, words(take(conn)))
    assert "busy" == lease(conn).outcome
    assert ("busy", None) == seek(conn, 0)
    other.rollback()
    assert [1, 2] == words(take(conn))


def test_consumers_of_other_names_read_the_same(conn: Conn, other: Conn) -> None:
    join(conn, "a")
    join(conn, "b")
    say(conn, 1)
    number(conn)
    other.autocommit = False

    assert [1] == words(take(other, "a"))
    assert [1] == words(take(conn, "b"))


def test_topics_that_are_not_its_own_are_passed_and_not_looked_at_again(conn: Conn) -> None:
    join(conn)
    say(conn, 1, 2, topic="other")
    number(conn)

    assert [] == words(take(conn, topics=["mine"]))
    assert 2 == place(conn)
    say(conn, 3, topic="mine")
    number(conn)
    assert [3] == words(take(conn, topics=["mine"]))


# -- at least once ---------------------------------------------------------------------------


def test_what_is_leased_is_read_again_until_it_is_committed(conn: Conn) -> None:
    join(conn)
    say(conn, 1, 2, 3)
    number(conn)

    assert [1, 2] == words(lease(conn, limit=2))
    assert [1, 2] == words(lease(conn, limit=2)), "its own"
    assert 0 == place(conn)
    assert "won" == commit(conn, 2)
    assert [3] == words(lease(conn, BOB))


def test_nobody_else_gets_anything_while_a_lease_lasts(conn: Conn) -> None:
    join(conn)
    say(conn, 1)
    number(conn)
    lease(conn, ALICE, at=0)

    assert ["busy"] * 2 == [lease(conn, BOB, at=59).outcome, take(conn, at=59).outcome]
    assert [1] == words(lease(conn, BOB, at=60))
    assert "lost" == commit(conn, 1, ALICE)
    assert "won" == commit(conn, 1, BOB)


def test_a_lease_that_ended_is_good_while_nobody_else_went_on(conn: Conn) -> None:
    join(conn)
    say(conn, 1)
    number(conn)
    lease(conn, ALICE, at=-3600)

    assert "won" == commit(conn, 1, ALICE)


def test_a_transaction_takes_what_a_lease_has_left(conn: Conn) -> None:
    join(conn)
    say(conn, 1)
    number(conn)
    lease(conn, ALICE, at=0)

    assert [1] == words(take(conn, at=60))
    assert "lost" == commit(conn, 0, ALICE)


def test_a_commit_that_is_sent_again_is_known(conn: Conn) -> None:
    join(conn)
    say(conn, 1, 2)
    number(conn)
    lease(conn)

    assert ["won", "already"] == [commit(conn, 2), commit(conn, 2)]
    assert "lost" == commit(conn, 1)


def test_a_part_may_be_committed_and_none_sets_it_free(conn: Conn) -> None:
    join(conn)
    say(conn, 1, 2)
    number(conn)
    lease(conn)

    assert "won" == commit(conn, 1)
    assert [2] == words(lease(conn, BOB))
    assert "won" == commit(conn, 1, BOB)
    assert [2] == words(lease(conn, ALICE))


def test_a_commit_neither_goes_back_nor_beyond_the_end(conn: Conn) -> None:
    join(conn)
    say(conn, 1, 2)
    number(conn)
    take(conn, limit=1)
    lease(conn)

    assert ["lost", "lost"] == [commit(conn, 0), commit(conn, 3)]
    assert 1 == place(conn)
    assert "won" == commit(conn, 2)


def test_a_lease_of_nothing_is_none_and_passes_other_topics(conn: Conn) -> None:
    join(conn)
    say(conn, 1, topic="other")
    number(conn)

    assert [] == words(lease(conn, ALICE, topics=["mine"]))
    assert 1 == place(conn)
    say(conn, 2)
    number(conn)
    assert [2] == words(lease(conn, BOB))


@pytest.mark.parametrize("span", ["0", "99 milliseconds", "3601 seconds"])
def test_a_lease_that_is_none_is_refused(conn: Conn, span: str) -> None:
    join(conn)
    with pytest.raises(Exception, match="100 ms to 1 h"):
        conn.execute(
            "select from semel.journal_lease('p', 'c', gen_random_uuid(), %s)", (span,)
        )
    with pytest.raises(Exception, match="lease of nobody"):
        conn.execute("select from semel.journal_lease('p', 'c', null)")


# -- an operator -----------------------------------------------------------------------------


def test_a_cursor_is_moved_within_what_is_kept(conn: Conn) -> None:
    join(conn)
    assert ("won", 0) == seek(conn, 9)
    say(conn, 1, at=0)
    number(conn, at=0)
    say(conn, 2, 3, at=100)
    number(conn, at=100)
    expire(conn, at=100)

    assert [1, 1, 2, 3, 3] == [seek(conn, to)[1] for to in (0, 1, 2, 3, 10**15)]
    assert ("won", 1) == seek(conn, -5)
    assert [2, 3] == words(take(conn))


def test_who_held_a_cursor_that_was_moved_has_lost_it(conn: Conn) -> None:
    join(conn)
    say(conn, 1, 2)
    number(conn)
    lease(conn)
    seek(conn, 0)

    assert "lost" == commit(conn, 2)
    assert [1, 2] == words(lease(conn, BOB))


# -- retention -------------------------------------------------------------------------------


def test_entries_go_when_they_could_be_read_for_long_enough(conn: Conn) -> None:
    say(conn, "old", at=0)
    number(conn, at=0)
    say(conn, "young", at=0)
    number(conn, at=1)

    assert 0 == expire(conn, at=59)
    assert 1 == expire(conn, at=60)
    assert ["young"] == kept(conn)
    assert 1 == expire(conn, at=61)
    assert 0 == expire(conn, at=10_000)


def test_an_entry_that_was_committed_late_has_its_time_too(conn: Conn) -> None:
    """It was said an hour ago, and could not be read until now."""
    say(conn, "late", at=-3600)
    assert 0 == expire(conn, at=0)
    number(conn, at=0)

    assert 0 == expire(conn, at=59)
    assert ["late"] == kept(conn)
    assert 1 == expire(conn, at=60)


def test_what_has_no_seq_is_never_dropped(conn: Conn) -> None:
    say(conn, 1, at=-(10**6))

    assert 0 == expire(conn, at=10**6)
    assert 1 == number(conn)
    assert [1] == kept(conn)


def test_entries_go_in_batches_and_none_before_an_older_one(conn: Conn) -> None:
    for n, at in enumerate((0.0, 0.0, 500.0, 0.0, 0.0)):
        say(conn, n, at=at)
        number(conn, at=at)
    call = "select semel.journal_expire('p', '1 minute', %s, %s)"

    assert [1, 1, 0] == [one(conn, call, limit, second(100)) for limit in (1, 2, 3)]
    assert [2, 3, 4] == kept(conn)
    assert [2, 1, 0] == [one(conn, call, 2, second(600)) for _ in range(3)]


def test_a_cursor_that_was_passed_is_told_and_stays(conn: Conn) -> None:
    join(conn)
    join(conn, "punctual")
    say(conn, 1, 2, at=0)
    number(conn, at=0)
    assert [1, 2] == words(take(conn, "punctual"))
    say(conn, 3, at=100)
    number(conn, at=100)
    assert 2 == expire(conn, at=100)

    for page in (take(conn), lease(conn), read(conn, 1), take(conn)):
        assert ("passed", 2, []) == (page.outcome, page.upto, page.entries)
    assert 0 == place(conn)
    assert [True] == [
        p for [p] in conn.execute("select passed from semel.consumers where consumer = 'c'")
    ]
    assert waits(conn)
    assert [3] == words(take(conn, "punctual"))
    assert ("won", 2) == seek(conn, 0)
    assert [3] == words(take(conn))


def test_a_new_consumer_begins_behind_what_is_gone(conn: Conn) -> None:
    say(conn, 1)
    number(conn)
    expire(conn, at=60)

    assert 1 == join(conn)
    assert "read" == take(conn).outcome


def test_numbers_are_never_used_again(conn: Conn) -> None:
    say(conn, 1)
    number(conn)
    expire(conn, at=60)
    say(conn, 2)
    number(conn)

    assert [2] == [entry.seq for entry in read(conn, 1).entries]


def test_retention_and_numbering_skip_each_other(conn: Conn, other: Conn) -> None:
    say(conn, 1)
    number(conn)
    other.autocommit = False
    assert 1 == expire(other, at=60)
    say(conn, 2)

    assert number(conn) is None
    assert 0 == expire(conn, at=60)
    assert ["read"] == [read(conn).outcome]
    other.commit()
    assert "passed" == read(conn).outcome
    assert 1 == number(conn)


def test_a_reader_sees_what_is_gone_and_what_is_there_at_one_moment(
    conn: Conn, other: Conn
) -> None:
    """Retention commits while a reader's statement is under way: it reads all of it, or is told."""
    join(conn)
    say(conn, 1, 2)
    number(conn)
    other.autocommit = False
    other.execute("set transaction isolation level repeatable read")
    assert [1, 2] == words(read(other))
    expire(conn, at=60)

    assert [1, 2] == words(read(other))
    other.rollback()
    assert "passed" == read(other).outcome


def test_a_commit_waits_for_who_moves_the_cursor(conn: Conn, other: Conn) -> None:
    join(conn)
    say(conn, 1)
    number(conn)
    lease(conn, ALICE, at=0)
    answers: list[str] = []
    other.autocommit = False
    assert [1] == words(take(other, at=60))
    pid = conn.info.backend_pid
    late = threading.Thread(target=lambda: answers.append(commit(conn, 1, ALICE)))
    late.start()
    until_blocked(other, pid)
    other.commit()
    late.join()

    assert ["already"] == answers


def test_upkeep_comes_to_a_project_that_has_nothing_but_a_journal(conn: Conn) -> None:
    say(conn, 1)
    assert ["p"] == [need.project for need in run(conn, upkeep.due_projects()) if need.purge]
    number(conn)
    assert ["p"] == [need.project for need in run(conn, upkeep.due_projects()) if need.purge]
    assert run(conn, upkeep.purge_take("p"))
    say(conn, 2)
    assert [] == run(conn, upkeep.due_projects())
