"""The operation functions against a model of them: every outcome predicted, every row compared.

Three connections ask under a few keys at once, with each other's inputs, procedures and actors;
work succeeds, fails, is killed, or ends its own transaction; some wait, some look again long
after; old systems leave rows; holders of recorded ones fall silent to the microsecond.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from beside import Beside, blocked
from fix_world import NOW, Conn
from keyed import DONE, LONG, asked, begin, close, envelope, fail, put, recover
from ledger_model import SILENT, LedgerModel, Open, Row
from modelling import TIMEOUT, Tally, empty, parts, walk
from semel.core.operations import Begun, Identity, operation_beat, operation_finish
from semel.db.execute import run
from semel.db.pool import connect
from semel.errors import TransactionEnded

KEYS = st.sampled_from(["k1", "k1", "k2"])
HOLDERS = [UUID(int=1), UUID(int=2)]
NEW, OLD, OTHER = envelope(1, 2), envelope(1, 1), envelope(2, 2)
REQUESTS = st.builds(
    asked,
    key=KEYS,
    who=st.sampled_from(["ann"] * 8 + ["bob", None]),
    what=st.sampled_from(["pay"] * 8 + ["refund"]),
    envelopes=st.sampled_from([[NEW]] * 6 + [[OTHER], [NEW, OLD], [OTHER, envelope(2, 1)]]),
)
ENDS = ["success"] * 3 + ["gone", "failure", "failure", "kill", "kill", "commit", "rollback"]
#: What may happen, as often as it is named.
ACTS = {"ask": 6, "end": 5, "wait": 2, "look": 3, "record": 3, "hold": 3, "leave": 1, "time": 2}
EDGE = st.sampled_from([timedelta(microseconds=n) for n in (-1, 0, 1)])
#: What an old system, or another one, may leave; its payload is none of ours.
LEFT = [
    {"status": status, "payload": payload, "target": target}
    for status in ("PENDING", "FAILED", "FAILED", "PROCESSING", "SUCCEEDED")
    for payload in (None, OLD)
    for target in ("API", "API", "ENGINE")
]


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self, conn: Conn, workers: list[Conn]) -> None:
        super().__init__()
        self.conn = conn
        self.workers = workers
        self.model = LedgerModel()
        self.now = NOW
        self.doing: dict[int, Open] = {}  # by worker
        self.lost: list[tuple[Open, str]] = []  # every end, and the fate of its transaction
        self.held: list[tuple[str, int, UUID]] = []  # every recorded claim
        self.effects: Counter[str] = Counter()
        for each in workers:
            each.execute("rollback")
        conn.execute("truncate effect")
        empty(conn)

    def teardown(self) -> None:
        for each in self.workers:
            each.execute("rollback")

    @rule(data=st.data(), what=st.sampled_from([a for a, n in ACTS.items() for _ in range(n)]))
    def act(self, data: st.DataObject, what: str) -> None:
        getattr(self, what)(data)

    @initialize()
    def a_bystander_in_another_project(self) -> None:
        put(self.conn, "k1", project_id="q", status="FAILED", attempts=7)

    # -- atomic ----------------------------------------------------------------------------

    def idle(self, data: st.DataObject) -> int | None:
        free = [n for n in range(len(self.workers)) if n not in self.doing]
        return data.draw(st.sampled_from(free)) if free else None

    def ask(self, data: st.DataObject) -> None:
        worker, request = self.idle(data), data.draw(REQUESTS)
        if worker is None:
            return
        expected = self.model.meets(request, self.now)
        conn = self.workers[worker]
        conn.execute("begin")
        self.met(worker, request, expected, begin(conn, request, wait=None, now=self.now))

    def met(self, worker: int, request: Identity, expected: str, begun: Begun) -> None:
        """What *worker* was answered; a claim goes on to work."""
        assert expected == begun.outcome
        conn, key = self.workers[worker], request.request_id
        row = self.model.rows.get(key)
        assert begun.reply == (row.reply if row and expected == "replay" else None)
        if expected != "claimed":
            conn.execute("rollback")
            return
        assert (row.attempts if row else 0) + 1 == begun.attempts
        assert begun.xid
        opened = Open(key, request, begun.attempts or 0, begun.xid)
        self.doing[worker] = self.model.open[key] = opened
        conn.execute("savepoint work")
        conn.execute("insert into effect values (%s)", (key,))

    def end(self, data: st.DataObject) -> None:
        if self.doing:
            worker = data.draw(st.sampled_from(sorted(self.doing)))
            self.ended(worker, data.draw(st.sampled_from(ENDS)))

    def ended(self, worker: int, how: str) -> None:
        conn, opened = self.workers[worker], self.doing.pop(worker)
        key, begun = (
            opened.key,
            Begun(outcome="claimed", attempts=opened.attempt, xid=opened.xid),
        )
        before = self.model.rows.get(key)
        if how in {"success", "gone"}:
            close(conn, begun, key=key, gone=how == "gone", now=self.now)
        elif how == "failure":
            conn.execute("rollback to savepoint work")
            assert "won" == fail(conn, begun, key=key, now=self.now)
        if how in {"kill", "rollback"}:
            conn.execute("rollback")
        else:
            conn.execute("commit")
        if how in {"commit", "rollback"}:
            conn.execute("begin")
            assert "lost" == fail(conn, begun, key=key, now=self.now)
            with pytest.raises(TransactionEnded):
                close(conn, begun, key=key, now=self.now)
            conn.execute("rollback")
        del self.model.open[key]
        left = {
            "success": opened.row(before, status="SUCCEEDED", reply=DONE),
            "gone": opened.row(before, status="SUCCEEDED", gone=True),
            "failure": opened.row(before, status="FAILED", error="no funds"),
            "commit": opened.row(before, status="PROCESSING"),
        }
        if how in left:
            self.model.rows[key] = left[how]
        self.effects[key] += how in {"success", "gone", "commit"}
        self.lost.append((opened, "committed" if how in left else "aborted"))

    def wait(self, data: st.DataObject) -> None:
        """One waits for another's end, and then sees what it left."""
        worker, request = self.idle(data), data.draw(REQUESTS)
        if worker is None or self.model.meets(request, self.now) != "in_flight":
            return
        rivals = [w for w, o in self.doing.items() if o.key == request.request_id]
        if not rivals:
            return
        conn = self.workers[worker]
        conn.execute("begin")
        ask = partial(begin, request=request, wait=LONG, now=self.now)
        waiting: Beside = blocked(self.conn, conn, ask)
        self.ended(rivals[0], data.draw(st.sampled_from(ENDS)))
        self.met(worker, request, self.model.meets(request, self.now), waiting.said())

    def look(self, data: st.DataObject) -> None:
        """A recorder, of any end: of one that was answered, too."""
        open_now = [(o, "in progress") for o in self.doing.values()]
        if not (self.lost or open_now):
            return
        lost, fate = data.draw(st.sampled_from([*open_now, *self.lost[:-6:-1], *self.lost]))
        if lost.key in self.model.open:
            expected = "in_progress" if fate == "in progress" else "in_flight"
        else:
            expected = self.model.recovered(lost, fate, "connection lost", self.now)
        told = recover(self.conn, lost.attempt, lost.xid, lost.request, wait=None, now=self.now)
        assert expected == told.outcome
        row = self.model.rows.get(lost.key)
        assert told.reply == (row.reply if row and expected == "succeeded" else None)

    # -- recorded --------------------------------------------------------------------------

    def record(self, data: st.DataObject) -> None:
        request, holder = data.draw(REQUESTS), data.draw(st.sampled_from(HOLDERS))
        key = request.request_id
        expected = self.model.meets(request, self.now)
        begun = begin(
            self.conn, request, wait=None, mode="recorded", holder=holder, now=self.now
        )
        assert expected == begun.outcome
        if expected != "claimed":
            return
        before, attempt = self.model.rows.get(key), begun.attempts or 0
        opened = Open(key, request, attempt, begun.xid or "")
        self.model.rows[key] = opened.row(before, status="PROCESSING", holder=holder)
        self.model.beat(holder, self.now)
        self.held.append((key, attempt, holder))

    def hold(self, data: st.DataObject) -> None:
        """A holder, perhaps of long ago, finishes, fails or beats."""
        how = data.draw(st.sampled_from(["finish", "finish", "fail", "beat"]))
        if how == "beat" or not self.held:
            holder = data.draw(st.sampled_from(HOLDERS))
            run(self.conn, operation_beat("p", holder, "web", now=self.now))
            self.model.beat(holder, self.now)
            return
        key, attempt, holder = data.draw(st.sampled_from(self.held))
        if key in self.model.open:
            return  # it would wait for that one's end
        row = self.model.rows.get(key)
        its = row is not None and (attempt, holder) == (row.attempts, row.holder)
        current = row is not None and its and row.status == "PROCESSING"
        if how == "fail":
            told = fail(
                self.conn, Begun(outcome="claimed", attempts=attempt), key=key, holder=holder
            )
            assert ("won" if current else "lost") == told
            if row and current:
                changed = {**vars(row), "status": "FAILED", "error": "no funds"}
                self.model.rows[key] = Row(**changed)
            return
        call = operation_finish("p", key, attempt, None, DONE, holder=holder, now=self.now)
        if row and its and row.status in {"PROCESSING", "SUCCEEDED"}:
            run(self.conn, call)
            self.model.rows[key] = Row(**{**vars(row), "status": "SUCCEEDED", "reply": DONE})
        else:
            with pytest.raises(TransactionEnded):
                run(self.conn, call)

    # -- the world -------------------------------------------------------------------------

    def leave(self, data: st.DataObject) -> None:
        """Another system leaves a row."""
        key, left = data.draw(KEYS), data.draw(st.sampled_from(LEFT))
        if key in self.model.rows or key in self.model.open:
            return
        self.model.rows[key] = Row(**left, attempts=2, what="pay", who="ann")
        put(
            self.conn, key, **{**left, "payload": json.dumps(left["payload"] or {})}, attempts=2
        )

    def time(self, data: st.DataObject) -> None:
        """To a moment at which some holder is silent for too long, or on."""
        beats = sorted(self.model.beats.values())
        if beats:
            self.now = data.draw(st.sampled_from(beats)) + SILENT + data.draw(EDGE)
        else:
            self.now += timedelta(seconds=7)

    @invariant()
    def every_row_is_as_the_model_has_it(self) -> None:
        found = {
            key: (*rest[:5], tuple(map(tuple, headers or ())), *rest[5:])
            for key, headers, *rest in self.conn.execute(_ROWS)
        }
        expected = {
            key: (
                *(row.status, row.attempts, row.what, row.who, row.payload or {}),
                tuple(row.reply.headers) if row.reply else (),
                *((row.reply.status, row.reply.body) if row.reply else (None, None)),
                *(row.gone, row.error, row.holder, row.target),
            )
            for key, row in self.model.rows.items()
        }
        gone = {key for key, row in self.model.rows.items() if row.gone}
        for key in gone & found.keys():
            told = [*found[key]]
            assert DONE.status == told[6]
            told[6] = None  # a tombstone keeps its status
            found[key] = tuple(told)
        assert expected == found

    @invariant()
    def business_is_done_once_for_each_success_and_never_else(self) -> None:
        found = self.conn.execute("select key, count(*) from effect group by key").fetchall()
        assert dict(found) == +self.effects
        for key, row in self.model.rows.items():
            if row.status in {"FAILED", "PENDING"} or row.target != "API":
                assert not self.effects[key]
        assert all(count == 1 for _, count in found)

    @invariant()
    def the_other_project_is_untouched(self) -> None:
        other = (
            "select status, attempts, updated_at from semel.operation where project_id = 'q'"
        )
        assert [("FAILED", 7, NOW)] == self.conn.execute(other).fetchall()


_ROWS = """
select request_id, reply_headers, status, attempts, event_type, actor_user_id, payload,
    reply_status, reply_body, gone, error, case mode when 'recorded' then holder end, target
from semel.operation where project_id = 'p'
"""


@pytest.fixture
def workers(conn: Conn, dsn: str) -> Iterator[list[Conn]]:
    conn.execute("create table effect (key text)")
    with ExitStack() as stack:
        yield [stack.enter_context(connect(dsn)) for _ in range(3)]


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("part", parts(2000))
def test_operations_do_what_the_model_says(
    conn: Conn, workers: list[Conn], part: int, record_property: Tally
) -> None:
    record_property("schedules", walk(partial(LedgerMachine, conn, workers)))
