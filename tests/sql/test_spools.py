"""How far a drain has come: it moves from where it was believed to be, or not at all."""

from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest

from fix_world import Conn
from semel.core import spools
from semel.db.execute import run
from semel.db.pool import connect
from semel.errors import BadRequest

FILE = UUID(int=7)


def advance(conn: Conn, begin: int, end: int, project: str = "p") -> int:
    return run(conn, spools.spool_advance(project, "s", FILE, begin, end))


def position(conn: Conn, project: str = "p") -> int:
    return run(conn, spools.spool_position(project, FILE))


def test_a_position_moves_from_where_it_is(conn: Conn) -> None:
    assert position(conn) == 0
    assert advance(conn, 0, 3) == 3
    assert advance(conn, 3, 5) == 5
    assert position(conn) == 5


@pytest.mark.parametrize("begin", [0, 2, 4])
def test_from_anywhere_else_nothing_is_moved_and_it_is_told_where_it_stands(
    conn: Conn, begin: int
) -> None:
    advance(conn, 0, 3)
    assert advance(conn, begin, 9) == 3
    assert position(conn) == 3


def test_what_the_database_does_not_know_begins_at_its_beginning(conn: Conn) -> None:
    assert advance(conn, 4, 9) == 0
    assert position(conn) == 0


@pytest.mark.parametrize(("begin", "end"), [(3, 3), (3, 2), (-1, 2)])
def test_it_moves_only_forward(conn: Conn, begin: int, end: int) -> None:
    with pytest.raises(BadRequest, match="a spool moves forward"):
        advance(conn, begin, end)


def test_of_two_that_begin_at_the_same_place_one_moves_it(conn: Conn, dsn: str) -> None:
    with connect(dsn) as other:
        with conn.transaction():
            assert advance(conn, 0, 3) == 3
            with pytest.raises(psycopg.errors.LockNotAvailable):
                advance(other, 0, 2)
        assert advance(other, 0, 2) == 3


def test_each_file_has_its_own(conn: Conn) -> None:
    other = uuid4()
    advance(conn, 0, 3)
    assert run(conn, spools.spool_advance("p", "s", other, 0, 3)) == 3
    assert advance(conn, 3, 5) == 5
    assert run(conn, spools.spool_position("p", other)) == 3
    run(conn, spools.spool_forget("p", other))
    assert position(conn) == 5


def test_a_file_of_another_project_is_another_file(conn: Conn) -> None:
    advance(conn, 0, 3)
    assert advance(conn, 0, 1, "q") == 1
    run(conn, spools.spool_forget("p", FILE))
    assert (position(conn), position(conn, "q")) == (0, 1)


def test_spools_are_seen_until_they_are_silent_for_a_week(conn: Conn) -> None:
    old, quiet, one, two = uuid4(), uuid4(), uuid4(), uuid4()
    run(conn, spools.spool_announce("p", old, "gone:/spool", ["s"]))
    conn.execute("update semel.spool set seen_at = seen_at - interval '7 days 1 second'")
    run(conn, spools.spool_announce("p", quiet, "quiet:/spool", ["u"]))
    conn.execute(
        "update semel.spool set seen_at = seen_at - interval '6 days' where source = 'u'"
    )
    run(conn, spools.spool_announce("p", one, "a:/spool", ["s", "t"]))
    run(conn, spools.spool_announce("p", one, "a:/spool", ["s", "t"]))
    assert run(conn, spools.rival_spools(timedelta(minutes=30))) == []
    run(conn, spools.spool_announce("p", two, "b:/spool", ["s"]))
    run(conn, spools.spool_announce("q", two, "b:/spool", ["t"]))
    assert run(conn, spools.rival_spools(timedelta(minutes=30))) == [
        ("p", "s", ["a:/spool", "b:/spool"])
    ]
    places = {place for [place] in conn.execute("select place from semel.spools")}
    assert places == {"a:/spool", "b:/spool", "quiet:/spool"}
