"""The journal against a model of it: writers with open transactions, numbering, readers, retention.

The writers' transactions are real ones, open side by side, each with a row that it has locked. The
clock stops at the edges of retention and leases, stands still, and goes back.
"""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import journals
from fix_world import Conn, second
from journal_model import KEEP, LEASE, Cursor, JournalModel, Said
from journals import words
from modelling import TIMEOUT, Tally, empty, parts, walk
from semel.core import consumers
from semel.core.consumers import Page
from semel.db.execute import run
from semel.db.pool import connect

WRITERS, ROWS = range(3), range(2)
TOPICS = st.sampled_from(["a", "a", "b"])
HOLDERS = st.sampled_from([UUID(int=1), UUID(int=2)])
LIMITS = st.sampled_from([1, 2, 100])
#: Consumers by the way they read, and what of.
TAKERS = {"take-all": None, "take-b": ["b"]}
LEASERS = {"lease-all": None, "lease-b": ["b"]}
STEPS = st.sampled_from([0.0, 0.0, 1e-6, -1e-6, 1.0, -1.0, LEASE, KEEP, -KEEP, KEEP - 1e-6])


class Writer:
    """A connection, and what its open transaction has said."""

    def __init__(self, dsn: str) -> None:
        self.conn = connect(dsn)
        self.conn.autocommit = False
        self.said: list[Said] = []
        self.rows: set[int] = set()

    def end(self, *, commit: bool) -> list[Said]:
        said, self.said, self.rows = self.said, [], set()
        if commit:
            self.conn.commit()
            return said
        self.conn.rollback()
        return []


class JournalMachine(RuleBasedStateMachine):
    def __init__(self, conn: Conn, writers: list[Writer]) -> None:
        super().__init__()
        self.conn = conn
        self.writers = writers
        for writer in writers:
            writer.end(commit=False)
        empty(conn)
        self.model = JournalModel()
        self.now = 0.0
        self.words = 0
        #: What each consumer has done with, in its order; leases: what was read, again and again.
        self.done: dict[str, list[int]] = {name: [] for name in TAKERS | LEASERS}
        self.held: dict[str, tuple[Any, Page]] = {}
        for name, topics in (TAKERS | LEASERS).items():
            journals.join(conn, name)
            self.model.cursors[name] = Cursor(0, topics)

    # -- writing -----------------------------------------------------------------------------

    @rule(
        which=st.sampled_from(WRITERS),
        row=st.sampled_from(ROWS),
        topics=st.lists(TOPICS, min_size=1, max_size=3),
    )
    def write(self, which: int, row: int, topics: list[str]) -> None:
        writer = self.writers[which]
        if any(row in other.rows for other in self.writers if other is not writer):
            return  # it would wait for the other's end
        writer.conn.execute("update public.stock set left_ = left_ - 1 where id = %s", (row,))
        writer.rows.add(row)
        for topic in topics:
            self.words += 1
            journals.say(writer.conn, self.words, at=self.now, topic=topic)
            writer.said.append(Said(self.words, topic, row))

    @rule(which=st.sampled_from(WRITERS), row=st.sampled_from(ROWS))
    def write_and_take_back(self, which: int, row: int) -> None:
        writer = self.writers[which]
        with writer.conn.transaction(force_rollback=True):
            journals.say(writer.conn, -row, at=self.now)
        if not writer.said:
            writer.end(commit=False)

    @rule(which=st.sampled_from(WRITERS), commit=st.sampled_from([True, True, False]))
    def end(self, which: int, *, commit: bool) -> None:
        self.model.committed += self.writers[which].end(commit=commit)

    # -- numbering and retention -------------------------------------------------------------

    @rule(limit=st.sampled_from([1, 3, 10_000]))
    def number(self, limit: int) -> None:
        before = self.model.end
        call = "select semel.journal_number('p', %s, %s)"
        [[count]] = self.conn.execute(call, (limit, second(self.now))).fetchall()
        pending = sum(one.seq is None for one in self.model.committed)
        assert min(limit, pending) == count
        fresh = self.conn.execute(
            "select payload from semel.journal where seq > %s order by seq", (before,)
        )
        self.model.number([word for [word] in fresh], self.now)

    @rule()
    def expire(self) -> None:
        assert self.model.expire(self.now) == journals.expire(self.conn, self.now, keep=KEEP)

    @rule(step=STEPS)
    def time(self, step: float) -> None:
        self.now += step

    # -- reading -----------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(list(TAKERS)),
        limit=LIMITS,
        commit=st.sampled_from([True, True, False]),
    )
    def take(self, name: str, limit: int, *, commit: bool) -> None:
        want = self.model.page(name, limit)
        with self.conn.transaction(force_rollback=not commit):
            page = self.taken(name, limit)
            assert "busy" == self.another(name)
        self.judge(page, want)
        if commit and page.outcome == "read":
            self.advance(name, page.upto)
            self.done[name] += words(page)

    def taken(self, name: str, limit: int) -> Page:
        topics = self.model.cursors[name].topics
        return journals.take(self.conn, name, at=self.now, topics=topics, limit=limit)

    def another(self, name: str) -> str:
        """What another instance is told meanwhile: nothing, if this one has its lock."""
        writer = next((one for one in self.writers if not one.rows and not one.said), None)
        if writer is None:
            return "busy"
        outcome = journals.take(writer.conn, name, at=self.now).outcome
        writer.end(commit=False)
        return outcome

    @rule(name=st.sampled_from(list(LEASERS)), holder=HOLDERS, limit=LIMITS)
    def lease(self, name: str, holder: UUID, limit: int) -> None:
        cursor = self.model.cursors[name]
        page = run(
            self.conn,
            consumers.journal_lease(
                "p",
                name,
                holder,
                second(LEASE) - second(0),
                topics=cursor.topics,
                limit=limit,
                now=second(self.now),
            ),
        )
        if cursor.until > self.now and cursor.holder != holder:
            assert "busy" == page.outcome
            return
        want = self.model.page(name, limit)
        self.judge(page, want)
        if page.entries:
            cursor.holder, cursor.until = holder, self.now + LEASE
            self.held[name] = (holder, page)
        elif page.outcome == "read" and page.upto > cursor.at:
            self.advance(name, page.upto)

    @rule(name=st.sampled_from(list(LEASERS)), holder=HOLDERS)
    def commit(self, name: str, holder: UUID) -> None:
        if name not in self.held:
            return
        _, page = self.held[name]
        cursor = self.model.cursors[name]
        own = cursor.holder == holder and page.upto >= cursor.at
        outcome = journals.commit(self.conn, page.upto, holder, name)
        if own:
            assert "won" == outcome
            self.done[name] += words(page)
            self.advance(name, page.upto)
        else:
            again = cursor.holder is None and cursor.at == page.upto
            assert ("already" if again else "lost") == outcome

    @rule(name=st.sampled_from([*TAKERS, *LEASERS]))
    def seek_what_was_passed(self, name: str) -> None:
        cursor = self.model.cursors[name]
        if cursor.at < self.model.dropped:
            call = consumers.journal_seek("p", name, 0)
            assert ("won", self.model.dropped) == run(self.conn, call)
            gone = self.model.numbered[cursor.at : self.model.dropped]
            topics = cursor.topics
            self.done[name] += [o.word for o in gone if topics is None or o.topic in topics]
            self.advance(name, self.model.dropped)

    def advance(self, name: str, at: int) -> None:
        cursor = self.model.cursors[name]
        cursor.at, cursor.holder, cursor.until = at, None, float("-inf")

    def judge(self, page: Page, want: tuple[str, list[int], int]) -> None:
        assert want == (page.outcome, words(page), page.upto)

    # -- always ------------------------------------------------------------------------------

    @invariant()
    def what_is_kept_is_the_models(self) -> None:
        kept = self.conn.execute(
            "select seq, payload from semel.journal where seq is not null order by seq"
        ).fetchall()
        assert self.model.kept() == kept

    @invariant()
    def each_consumer_did_all_of_its_own_once_and_in_order(self) -> None:
        for name, cursor in self.model.cursors.items():
            passed = self.model.numbered[: cursor.at]
            own = [o.word for o in passed if cursor.topics is None or o.topic in cursor.topics]
            assert own == self.done[name], name

    def teardown(self) -> None:
        for which in WRITERS:
            self.end(which, commit=True)
        self.number(10_000)
        assert not [one for one in self.model.committed if one.seq is None]


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("part", parts(1000))
def test_the_journal_is_its_model(
    conn: Conn, dsn: str, part: int, record_property: Tally
) -> None:
    conn.execute("create table public.stock (id int primary key, left_ int)")
    conn.execute("insert into public.stock select n, 0 from generate_series(0, 1) as n")
    writers = [Writer(dsn) for _ in WRITERS]
    try:
        record_property("schedules", walk(lambda: JournalMachine(conn, writers)))
    finally:
        for writer in writers:
            writer.conn.close()
