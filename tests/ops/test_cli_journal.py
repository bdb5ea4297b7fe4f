"""`semel journal`: what was said, who reads it, and how a reader that was passed goes on."""

from typing import Any

import pytest

from fix_cli import Semel
from fix_world import Conn
from journals import expire, join, lease, number, say, take, words


def refused(said: Any) -> str:
    assert said.code == 1
    return str(said.err.split()[0])


def test_entries_are_listed_over_all_projects_the_newest_first(here: Semel, conn: Conn) -> None:
    say(conn, {"n": 1}, at=0)
    number(conn)
    say(conn, {"n": 2}, at=1, topic="other")
    say(conn, {"n": 3}, at=2, project="q")

    listed = here("journal", "list", "--json").lines

    assert [3, 2, 1] == [line["payload"]["n"] for line in listed]
    assert [None, None, 1] == [line["seq"] for line in listed]
    assert [2] == [
        e["payload"]["n"] for e in here("journal", "list", "--topic", "other", "--json").lines
    ]
    assert 2 == len(here("journal", "list", "--project", "p", "--json").lines)
    assert 1 == len(here("journal", "list", "--limit", "1", "--json").lines)
    assert "no such entries in project z\n" == here("journal", "list", "--project", "z").out
    assert here("journal", "list").out.split()[:4] == ["SEQ", "PROJECT", "TOPIC", "PAYLOAD"]


def test_consumers_are_listed_with_what_they_have_yet_to_read(here: Semel, conn: Conn) -> None:
    assert "nobody reads a journal in any project\n" == here("journal", "consumers").out
    join(conn, "a")
    join(conn, "b")
    say(conn, 1, 2)
    number(conn)
    take(conn, "a", limit=1)

    listed = here("journal", "consumers", "--json").lines
    told = [(c["consumer"], c["seq"], c["behind"], c["passed"]) for c in listed]
    assert [("a", 1, 1, False), ("b", 0, 2, False)] == told


@pytest.mark.parametrize(
    ("place", "left"), [("oldest", [2, 3]), ("2", [3]), ("newest", []), ("0", [2, 3])]
)
def test_a_consumer_that_was_passed_is_moved(
    here: Semel, conn: Conn, place: str, left: list[int]
) -> None:
    join(conn)
    say(conn, 1, at=0)
    number(conn, at=0)
    say(conn, 2, 3, at=100)
    number(conn, at=100)
    expire(conn, at=100)
    assert here("journal", "consumers", "--json").json["passed"]

    said = here("journal", "seek", "c", place, "--project", "p", "--json")

    assert (0, "won") == (said.code, said.json["outcome"])
    assert said.json["seq"] == 3 - len(left)
    assert left == words(take(conn))


def test_what_cannot_be_moved_or_forgotten_is_refused(
    here: Semel, conn: Conn, other: Conn
) -> None:
    join(conn)
    say(conn, 1)
    number(conn)
    of_p = ("--project", "p")
    assert "E-JOURNAL-002" == refused(here("journal", "seek", "nobody", "oldest", *of_p))
    assert "E-JOURNAL-002" == refused(here("journal", "forget", "nobody", *of_p))
    for place in ("first", "-1", "1.5", "9" * 30, str(2**63)):
        assert 2 == here("journal", "seek", "c", "--", place).code
    other.autocommit = False
    take(other)
    assert "E-JOURNAL-003" == refused(here("journal", "seek", "c", "oldest", *of_p))
    other.rollback()

    assert 0 == here("journal", "forget", "c", *of_p).code
    assert "unknown" == lease(conn).outcome
