"""The inbox functions against a model of them: every verdict predicted, every row compared.

Events come in batches that may hold one id twice, by `event_accept` and by `run_start` with a key;
alerts come repeated, late, early, joined and from peers. The clock stops at the edge of the memory
and of the grace, and goes back.
"""

from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
)

from fix_world import NOW, Conn
from inbox_model import (
    GRACE,
    MEMORY,
    SAME_BYTES,
    SAME_START_NS,
    STALE,
    Answer,
    InboxModel,
    Known,
)
from modelling import TIMEOUT, Tally, empty, parts, walk
from semel.core import inbox, runs, upkeep
from semel.core.call import Call
from semel.db.execute import run
from semel.model import Alert, Offer

EDGE = st.sampled_from([timedelta(microseconds=n) for n in (-1, 0, 1)])
STARTS = st.sampled_from([0, 0, 0, SAME_START_NS, SAME_START_NS + 1, -1, 10 * SAME_START_NS])
ALERTS = st.lists(
    st.builds(
        lambda name, status, starts, ends: Alert(
            fingerprint=name,
            status=status,
            starts_ns=10**18 + starts,
            ends_ns=10**18 + ends if status == "resolved" else 0,
            alert={},
        ),
        st.sampled_from(["f", "f", "g", "h"]),
        st.sampled_from(["firing", "firing", "resolved"]),
        STARTS,
        st.sampled_from([5, 2 * SAME_START_NS, 20 * SAME_START_NS]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda alert: alert.fingerprint,
)
OFFERS = st.lists(
    st.builds(
        Offer,
        source=st.sampled_from(["api", "api", "hook"]),
        channel=st.just("api"),
        id=st.sampled_from(["1", "1", "2", "2", "3", None]),
        agent=st.sampled_from(["a", "a", "a", None]),
        input=st.sampled_from([1, 1, 1, 2]),
        compare=st.sampled_from([True, True, True, False]),
        body=st.sampled_from([b"x", b"y"]),
        verdict=st.sampled_from([None] * 7 + ["ignored"]),
    ),
    min_size=1,
    max_size=4,
)
#: What may happen, as often as it is named.
ACTS = {"offers": 4, "start": 1, "alert": 5, "expire": 1, "stale": 1, "time": 2, "boundary": 4}


class InboxMachine(RuleBasedStateMachine):
    def __init__(self, conn: Conn) -> None:
        super().__init__()
        self.conn = conn
        self.model = InboxModel()
        self.now = NOW
        self.ids: set[UUID] = set()
        self.runs: set[UUID] = set()
        empty(conn)

    def ask(self, call: Call[Any]) -> Any:
        return run(self.conn, call)

    @rule(
        data=st.data(),
        what=st.sampled_from([name for name, n in ACTS.items() for _ in range(n)]),
    )
    def act(self, data: st.DataObject, what: str) -> None:
        """One rule, so that no schedule goes without its clock."""
        getattr(self, what)(data)

    def offers(self, data: st.DataObject) -> None:
        offers = data.draw(OFFERS)
        expected = self.model.accept(offers, self.now)
        self.compare(expected, self.ask(inbox.event_accept("p", offers, now=self.now)))

    def start(self, data: st.DataObject) -> None:
        """A run's key is an event of its source, however it arrives."""
        key, value = (
            data.draw(st.sampled_from(["1", "2"])),
            data.draw(st.sampled_from([1, 1, 2])),
        )
        verdict, known = self.model.start(key, "a", value, self.now)
        started = self.ask(runs.run_start("p", "a", value, key=key, now=self.now))
        assert verdict == started.outcome
        assert known
        self.bind(verdict, known, started.event_id, started.run_id)

    def alert(self, data: st.DataObject) -> None:
        alerts, body = data.draw(ALERTS), data.draw(st.sampled_from([b"1", b"2"]))
        both, each = data.draw(st.sampled_from([False, False, True])), data.draw(st.booleans())
        expected = self.model.alert(alerts, body, self.now, both=both, each=each)
        call = inbox.alert_accept(
            "p",
            "am",
            "a",
            {},
            alerts,
            body=body,
            headers={},
            grace=GRACE,
            run_on="firing+resolved" if both else "firing",
            unit="alert" if each else "notification",
            now=self.now,
        )
        self.compare(expected, self.ask(call))

    def compare(self, expected: list[Answer], answers: list[Any]) -> None:
        assert [verdict for verdict, _ in expected] == [answer.verdict for answer in answers]
        for (verdict, known), answer in zip(expected, answers, strict=True):
            if known is None:
                assert (None, None) == (answer.event_id, answer.run_id)
            else:
                self.bind(verdict, known, answer.event_id, answer.run_id)

    def bind(
        self, verdict: str, known: Known, event_id: UUID | None, run_id: UUID | None
    ) -> None:
        """Give a new event the ids it was told, which nobody had before; compare an old one's."""
        if verdict != "new":
            assert (known.event_id, known.run_id) == (event_id, run_id)
            return
        assert event_id
        assert event_id not in self.ids
        self.ids.add(event_id)
        known.event_id = event_id
        if known.wants_run:
            assert run_id
            assert run_id not in self.runs
            self.runs.add(run_id)
            known.run_id = run_id
        assert known.run_id == run_id

    def expire(self, data: st.DataObject) -> None:
        expected = self.model.expire(self.now)
        assert expected == self.ask(upkeep.dedupe_expire("p", MEMORY, now=self.now))

    def stale(self, data: st.DataObject) -> None:
        expected = self.model.stale(self.now)
        assert expected == self.ask(upkeep.fold_stale("p", STALE, now=self.now))

    def time(self, data: st.DataObject) -> None:
        self.now += timedelta(seconds=data.draw(st.sampled_from([1, 30, 90, 86400, -60])))

    def boundary(self, data: st.DataObject) -> None:
        moments: list[datetime] = [self.now]
        moments += [known.last_at + MEMORY for known in self.model.events.values()]
        for fold in self.model.folds.values():
            moments += [fold.changed_at + GRACE, fold.seen_at + SAME_BYTES]
            moments += [fold.seen_at + MEMORY, fold.seen_at + STALE]
        self.now = data.draw(st.sampled_from(moments)) + data.draw(EDGE)

    @invariant()
    def the_database_agrees_with_the_model(self) -> None:
        model = self.model
        found = self.conn.execute(
            "select event_id, run_id, first_seen_at, last_seen_at, hits from semel.dedupe"
        ).fetchall()
        assert {
            (e.event_id, e.run_id, e.first_at, e.last_at, e.hits) for e in model.events.values()
        } == set(found)
        assert len(model.events) == len(found)
        folds = self.conn.execute(
            "select fingerprint, status, starts_ns, ends_ns, event_id, run_id, changed_at, seen_at,"
            " late_at is not null from semel.fold"
        ).fetchall()
        assert {
            (
                name,
                fold.status,
                fold.starts_ns,
                fold.ends_ns,
                fold.event.event_id if fold.event else None,
                fold.run_id,
                fold.changed_at,
                fold.seen_at,
                fold.late,
            )
            for name, fold in model.folds.items()
        } == set(folds)
        links = self.conn.execute("select run_id, event_id from semel.event_link").fetchall()
        assert {(run.run_id, event.event_id) for run, event in model.links} == set(links)

    @invariant()
    def every_event_has_the_run_it_was_told_and_every_arrival_its_delivery(self) -> None:
        made = {run_id for [run_id] in self.conn.execute("select run_id from semel.run")}
        assert self.runs == made
        [[deliveries]] = self.conn.execute("select count(*) from semel.delivery").fetchall()
        assert self.model.deliveries == deliveries


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("part", parts(2000))
def test_events_and_alerts_do_what_the_model_says(
    conn: Conn, part: int, record_property: Tally
) -> None:
    record_property("schedules", walk(partial(InboxMachine, conn)))
