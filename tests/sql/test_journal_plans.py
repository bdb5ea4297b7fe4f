"""What numbering and reading a journal touch: what they answer, however much there is beside it."""

from typing import Any

from fix_explained import Explained
from fix_world import Conn
from journals import number, say
from semel.core import consumers, journals

MANY = 5_000


def fill(conn: Conn, count: int) -> None:
    for _ in range(count // 1000):
        say(conn, *range(1000), at=None)


def touched(node: dict[str, Any]) -> float:
    """Rows that a node of a plan looked at, all its loops together."""
    seen = sum(
        node.get(key, 0)
        for key in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter")
    )
    return float(seen * node["Actual Loops"])


def test_numbering_looks_at_each_entry_a_few_times_though_statistics_say_there_are_none(
    conn: Conn, other: Conn, explained: Explained
) -> None:
    """A join with the batch was planned for an empty table, and compared each with each."""
    other.autocommit = False
    other.execute("set transaction isolation level repeatable read")
    other.execute("select 1")  # what is numbered from here on stays, dead
    fill(conn, MANY)
    number(conn)
    conn.execute("vacuum analyze semel.journal_pending")

    for turn in range(1, 4):
        fill(conn, MANY)
        explained.ask(journals.journal_number("p"))
        assert max(touched(node) for node in explained.plans) <= 2 * MANY, turn
    other.rollback()


def test_a_page_costs_what_is_on_it(conn: Conn, explained: Explained) -> None:
    fill(conn, 20_000)
    while number(conn):
        pass
    conn.execute("analyze")

    for after in (0, 10_000, 19_990):
        for topics in (None, ["t"]):
            for _ in range(7):
                explained.ask(consumers.journal_read("p", after, topics=topics, limit=10))
                assert explained.read < 40
                assert "Seq Scan" not in {
                    node["Node Type"]
                    for node in explained.plans
                    if node.get("Relation Name") == "journal_entry"
                }


def test_looking_in_vain_reads_next_to_nothing(conn: Conn, explained: Explained) -> None:
    fill(conn, MANY)
    while number(conn):
        pass
    conn.execute("select semel.journal_join('p', 'c', 'newest')")
    conn.execute("vacuum analyze")

    for _ in range(7):
        explained.ask(consumers.journal_waits("p", "c"))
        assert explained.read < 20
