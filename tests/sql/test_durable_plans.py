"""The plans of what runs that journal, wait and ask send all day, beside ten thousand that wait."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from fix_explained import FILL, Explained, held, whole_tables
from fix_world import DEAD, LEASE, Conn
from semel.core import (
    approvals,
    claims,
    recovery,
    runs,
    steps,
    transitions,
    undo,
    upkeep,
    waits,
)
from semel.core.approvals import Link
from semel.core.call import Call
from semel.core.steps import Entry
from semel.core.waits import Question, Wait
from semel.db.execute import run
from semel.model import Claim

#: A thousand runs that wait for an approval, each with its wait, its question, a link, a vote and a journal.
_WAIT = """
insert into semel.run (project_id, run_id, agent, status, lane, priority, fence, has_wait, due_at, input,
    source, created_at)
select 'p', semel.uuid_at(clock_timestamp()), 'a', 'WAITING_APPROVAL', 5, 5, 2, true,
    clock_timestamp() + interval '1 day', '{}', 'api', clock_timestamp() from generate_series(1, 1000);
insert into semel.wait (project_id, run_id, step_key, kind, due_at, created_at)
select 'p', run_id, 'ok', 'approval', due_at, created_at from semel.run where status = 'WAITING_APPROVAL';
insert into semel.approval (project_id, approval_id, run_id, step_key, title, action, digest, need, created_at,
    expires_at)
select 'p', gen_random_uuid(), run_id, 'ok', 't', '{}', 'd', 2, created_at, due_at from semel.run
where status = 'WAITING_APPROVAL';
insert into semel.approval_token (project_id, token_hash, approval_id, recipient, minted_at)
select 'p', sha256(approval_id::text::bytea), approval_id, 'ann', created_at from semel.approval;
insert into semel.approval_vote (project_id, approval_id, voter, decision, via, voted_at)
select 'p', approval_id, 'ann', 'approve', 'link', created_at from semel.approval;
insert into semel.step (project_id, run_id, position, step_key, entry, attempt, fence, worker_id, content,
    recorded_at)
select 'p', run_id, n, 's' || n, 'result', 1, 1, 'w', '{}', created_at
from semel.run, generate_series(1, 5) as n where status = 'WAITING_APPROVAL';
insert into semel.signal (project_id, run_id, signal_id, name, content, sender, sent_at)
select 'p', run_id, gen_random_uuid(), 'go', '{}', '', created_at from semel.run
where status = 'WAITING_APPROVAL';
"""
#: As many again that wait, without what hangs on them.
_MORE = """
insert into semel.run (project_id, run_id, agent, status, lane, priority, fence, has_wait, due_at, input,
    source, created_at)
select 'p', semel.uuid_at(clock_timestamp()), 'a', 'WAITING_APPROVAL', 5, 5, 2, true,
    clock_timestamp() + interval '1 day', '{}', 'api', clock_timestamp() from generate_series(1, 1000);
"""


def durable_calls(conn: Conn, turn: int) -> dict[str, Call[Any]]:
    """What runs that journal, wait and ask send all day, each time with others."""
    taken = held(conn, f"d{turn}", 12)
    parent, asker, hearer, sleeper, saga = taken[:5]
    worker = parent.worker
    entries = [(c.run_id, c.fence, Entry(f"s{n}", "result")) for n in range(4) for c in taken]
    question = Question(id=uuid4(), title="t", action={}, digest="d", need=1, notify=("ann",))
    link = Link.mint("p")
    old = conn.execute(
        "select approval_id, run_id from semel.approval where state = 'PENDING' limit 1 offset %s",
        (turn,),
    ).fetchone()
    assert old

    def park(claim: Claim, *what: Wait) -> Call[Any]:
        return waits.run_park("p", worker, claim.run_id, claim.fence, what)

    soon = timedelta(minutes=15)
    promised = [(saga.run_id, saga.fence, Entry("s", "intent", content="{}"))]
    calls = {
        "record": steps.step_record("p", worker, entries),
        "record again": steps.step_record("p", worker, entries),
        "record of one": steps.step_record(
            "p", worker, [(*_pair(parent), Entry("x", "result"))]
        ),
        "intent": steps.step_record("p", worker, promised),
        "hold": steps.run_holds("p", worker, *_pair(parent)),
        "list": steps.step_list("p", parent.run_id),
        "spawn": steps.child_start(
            "p", worker, *_pair(parent), key="c", place=None, agent="a", text="1"
        ),
        "ask": park(asker, Wait(key="ok", kind="approval", due=soon, question=question)),
        "listen": park(hearer, Wait(key="go", kind="signal", name="go")),
        "sleep": park(sleeper, Wait(key="nap", kind="sleep", due=timedelta(0))),
        "nap": park(sleeper, Wait(key="nap#2", kind="sleep", due=timedelta(milliseconds=1))),
        "say": waits.signal_send("p", hearer.run_id, "go"),
        "mint": approvals.approval_mint(
            "p", worker, *_pair(parent), approval_id=question.id, recipient="ann", link=link
        ),
        "read": approvals.approval_read("p", link=link),
        "decide by a link": approvals.approval_decide("p", "approve", via="link", link=link),
        "decide": approvals.approval_decide(
            "p", "approve", via="cli", voter="bob", approval_id=old[0]
        ),
        "say to who waits": waits.signal_send("p", old[1], "stop"),
        "due of waits": claims.run_due("p"),
        "end of a saga": runs.run_fail(saga, "E-RUN-006", "boom", retryable=False),
        "plan": undo.undo_plan("p", saga.run_id),
        "skip": undo.undo_skip("p", saga.run_id, "s", reason="r", who="ann"),
        "stopped": undo.run_stopped("p", worker, [claim.run_id for claim in taken]),
        "cancel of who waits": transitions.run_cancel("p", old[1]),
    }
    assert len(taken) == 12
    return calls


def _pair(claim: Claim) -> tuple[UUID, int]:
    return claim.run_id, claim.fence


def test_no_hot_statement_reads_a_whole_table(conn: Conn, explained: Explained) -> None:
    conn.execute(FILL + _WAIT)
    assert {} == whole_tables(conn, explained, durable_calls)


def test_ten_thousand_runs_that_wait_cost_what_none_do(
    conn: Conn, explained: Explained
) -> None:
    """Waiting is free: what is looked at every few seconds reads as many buffers as before."""
    for agent in ("a", "b"):
        for _ in range(20):
            run(conn, runs.run_start("p", agent, None, delay=timedelta(hours=1)))

    def cost() -> dict[str, int]:
        conn.execute("vacuum analyze")
        calls: dict[str, Call[Any]] = {
            "hint": claims.run_hint(["a", "b"]),
            "projects": upkeep.due_projects(),
            "due": claims.run_due("p"),
            "due of an agent": claims.run_due("p", "a"),
            "overdue": transitions.run_overdue("p"),
            "sweep": recovery.run_reap("p", dead_after=DEAD, trust=True),
            "claim": claims.run_claim("p", "a", "w", limit=10, lease=LEASE),
        }
        read = {}
        for name, call in calls.items():
            for _ in range(7):
                explained.ask(call)
            read[name] = explained.read
        return read

    none = cost()
    conn.execute(_WAIT)
    a_thousand = cost()
    for _ in range(9):
        conn.execute(_MORE)
    ten_thousand = cost()

    for name, buffers in ten_thousand.items():
        # Each way down is one page longer in an index that does not fit into one.
        assert buffers <= 2 * none[name] + 6, (name, none[name], buffers)
        assert buffers <= a_thousand[name] + 3, (name, a_thousand[name], buffers)
