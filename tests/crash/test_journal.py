"""
A consumer is killed at each of its commit points, and another goes on: no entry is skipped.

In its own transaction it copies each entry once. Outside of it an entry may come twice, and only
where the one that had it died before it moved the cursor.
"""

import signal
from collections import Counter

import pytest

from fix_world import Conn, Programs, one, until
from journals import say

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

MANY = 40
BATCH = 5
KILLS = [
    *(("exactly", f"journal.batch.{when}#{n}") for when in ("before", "after") for n in (1, 3)),
    *(
        ("at-least", f"journal.commit.{when}#{n}")
        for when in ("before", "after")
        for n in (1, 3)
    ),
]


@pytest.mark.parametrize(("how", "stop"), KILLS)
def test_no_entry_is_skipped_and_only_what_was_not_committed_comes_again(
    conn: Conn, programs: Programs, how: str, stop: str
) -> None:
    conn.execute("create table public.copied (at serial, seq bigint, word int, pid int)")
    for n in range(MANY):
        say(conn, n, at=None)

    killed = programs.program("copier.py", how, testing="1", stop_at=stop)
    assert -signal.SIGKILL == killed.wait(60)
    before = one(conn, "select count(*) from public.copied")
    nth = int(stop[-1])
    assert BATCH * (nth if how == "at-least" or "after" in stop else nth - 1) == before
    programs.program("copier.py", how)
    programs.program("copier.py", how)
    until(lambda: one(conn, "select seq = 40 from semel.consumers"))

    rows = conn.execute("select word, pid from public.copied order by at").fetchall()
    first = list(dict.fromkeys(word for word, _ in rows))
    assert list(range(MANY)) == first
    twice = {word for word, times in Counter(word for word, _ in rows).items() if times > 1}
    lost = range(BATCH * (nth - 1), BATCH * nth) if stop.startswith("journal.commit.b") else []
    assert set(lost) == twice
