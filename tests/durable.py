"""Builders for runs that journal, wait, ask and are undone. Seconds count from NOW."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from fix_world import LEASE, Conn, one, second, start_run
from semel.core import approvals, claims, runs, steps, transitions, waits
from semel.core.approvals import Approval, Decided, Link
from semel.core.steps import Entry
from semel.core.waits import Question, Wait
from semel.db.execute import run
from semel.model import Claim

ANYWHERE = (*range(11), *range(100, 111))
MOMENT = timedelta(microseconds=1)
TTL = 900.0

_TABLES = (
    "run",
    "run_history",
    "attempt",
    "step",
    "wait",
    "signal",
    "approval",
    "approval_token",
    "approval_vote",
    "tool",
    "tool_token",
)


def claim_all(
    conn: Conn, worker: str = "w1", *, agent: str = "a", at: float = 0
) -> list[Claim]:
    """Claim whatever is ready of *agent*, suspects too."""
    call = claims.run_claim(
        "p", agent, worker, limit=99, lease=LEASE, lanes=ANYWHERE, now=second(at)
    )
    return run(conn, call)


def claim(conn: Conn, worker: str = "w1", *, agent: str = "a", at: float = 0) -> Claim:
    """Claim the one run of *agent* that is ready."""
    [held] = claim_all(conn, worker, agent=agent, at=at)
    return held


def begin(conn: Conn, worker: str = "w1", **more: Any) -> Claim:
    """A run that *worker* has just claimed."""
    run_id = start_run(conn, **more)
    held = claim(conn, worker, agent=more.get("agent", "a"))
    assert held.run_id == run_id
    return held


def result(key: str, value: Any = 1) -> Entry:
    """The result of a step."""
    return Entry(key, "result", content=json.dumps(value))


def intent(key: str, undo: str = "u", *args: Any) -> Entry:
    """What promises the undo of a step."""
    return Entry(key, "intent", content=json.dumps({"undo": undo, "args": args}))


def record(
    conn: Conn, held: Claim, *entries: Entry, at: float = 0
) -> list[tuple[str, str | None]]:
    """Append *entries* to the journal of *held*."""
    rows = [(held.run_id, held.fence, entry) for entry in entries]
    return run(conn, steps.step_record("p", held.worker, rows, now=second(at)))


def seconds(due: float | None) -> timedelta | None:
    return None if due is None else timedelta(seconds=due)


def sleep(key: str = "nap", due: float = 60) -> Wait:
    return Wait(key=key, kind="sleep", due=timedelta(seconds=due))


def retry(key: str = "s", due: float = 60) -> Wait:
    return Wait(key=key, kind="retry", due=timedelta(seconds=due))


def hear(key: str = "go", name: str = "go", due: float | None = None) -> Wait:
    """The wait for a signal."""
    return Wait(key=key, kind="signal", name=name, due=seconds(due))


def join(key: str, child: UUID, due: float | None = None) -> Wait:
    """The wait for a child."""
    return Wait(key=key, kind="child", child=child, due=seconds(due))


def asking(key: str = "ok", ttl: float = TTL, digest: str = "sha256:aa", **more: Any) -> Wait:
    """The wait for an approval."""
    question: dict[str, Any] = {"id": uuid4(), "title": "restart", "action": {"pod": "x"}}
    asked = Question(**(question | {"digest": digest} | more))
    return Wait(key=key, kind="approval", due=timedelta(seconds=ttl), question=asked)


def asked(wait: Wait) -> UUID:
    """The id of the approval that *wait* asks for."""
    assert wait.question
    return wait.question.id


def park(
    conn: Conn, held: Claim, *what: Wait, at: float = 0
) -> list[tuple[str, str, str | None]]:
    """Park *held* until one of *what* is over."""
    call = waits.run_park("p", held.worker, held.run_id, held.fence, what, now=second(at))
    return run(conn, call)


def say(
    conn: Conn,
    run_id: UUID,
    name: str = "go",
    content: Any = None,
    *,
    at: float = 0,
    **more: Any,
) -> str:
    """Send a signal; answers its outcome."""
    call = waits.signal_send("p", run_id, name, content, now=second(at), **more)
    return run(conn, call)[0]


def due(conn: Conn, at: float) -> int:
    """Let what is due at *at* happen."""
    return run(conn, claims.run_due("p", now=second(at)))


def mint(conn: Conn, approval: UUID, recipient: str = "bob", *, at: float = 0) -> Link:
    """A link to *approval*, sent by a notification run that a worker holds."""
    start_run(conn, "sender")
    sender = claim(conn, "ws", agent="sender", at=at)
    link = Link.mint("p")
    call = approvals.approval_mint(
        "p", "ws", sender.run_id, sender.fence,
        approval_id=approval, recipient=recipient, link=link, now=second(at),
    )  # fmt: skip
    assert "won" == run(conn, call)
    complete(conn, sender)
    return link


def decide(
    conn: Conn,
    by: UUID | Link,
    decision: Any = "approve",
    voter: str | None = "bob",
    *,
    at: float = 0,
    **more: Any,
) -> Decided:
    """Decide by an id or by a link."""
    how: dict[str, Any] = {"link": by} if isinstance(by, Link) else {"approval_id": by}
    call = approvals.approval_decide(
        "p", decision, via="cli", voter=voter, now=second(at), **how, **more
    )
    return run(conn, call)


def complete(conn: Conn, held: Claim, value: Any = None, *, at: float = 0) -> str:
    ended = [(held.run_id, held.fence, json.dumps(value))]
    return run(conn, runs.run_complete("p", held.worker, ended, now=second(at)))[0].outcome


def fail(
    conn: Conn, held: Claim, code: str = "E-RUN-006", *, retryable: bool = False, at: float = 0
) -> str:
    call = runs.run_fail(held, code, "boom", retryable=retryable, now=second(at))
    return run(conn, call)[0].outcome


def cancel(conn: Conn, run_id: UUID, *, at: float = 0) -> tuple[str, str | None]:
    return run(conn, transitions.run_cancel("p", run_id, now=second(at)))


def spawn(
    conn: Conn,
    held: Claim,
    key: str = "child",
    agent: str = "kid",
    *,
    at: float = 0,
    **more: Any,
) -> tuple[UUID | None, str]:
    """Start a child as the step *key* of *held*."""
    call = steps.child_start(
        "p", held.worker, held.run_id, held.fence,
        key=key, place=None, agent=agent, text="1", now=second(at), **more,
    )  # fmt: skip
    return run(conn, call)


def journal(conn: Conn, run_id: UUID) -> list[tuple[str, str, Any]]:
    """(key, entry, content) of a run's journal, oldest first."""
    rows = run(conn, steps.step_list("p", run_id))
    return [(e.key, e.entry, json.loads(e.content or "null")) for e, _ in rows]


def undo_of(conn: Conn, run_id: UUID) -> UUID:
    """The id that the compensation of *run_id* has, or would have."""
    found: UUID = one(conn, "select semel.undo_of(%s)", run_id)
    return found


def everything(conn: Conn, but: Sequence[str] = ()) -> dict[str, list[Any]]:
    """Every row of every table that a run has to do with."""
    return {
        table: conn.execute(f"select * from semel.{table} as t order by t::text").fetchall()
        for table in _TABLES
        if table not in but
    }


def ask(conn: Conn, **more: Any) -> tuple[Claim, Wait]:
    """A run that waits for an approval."""
    held = begin(conn)
    question = asking(**more)
    assert [("ok", "parked", None)] == park(conn, held, question)
    return held, question


def read(conn: Conn, by: Any, at: float = 0) -> Approval | None:
    """What an id or a link asks."""
    how: dict[str, Any] = {"link": by} if isinstance(by, Link) else {"approval_id": by}
    return run(conn, approvals.approval_read("p", now=second(at), **how))


def saga(conn: Conn, **more: Any) -> Claim:
    """A run at work, with one step done and one that may be."""
    held = begin(conn, **more)
    record(
        conn, held, intent("s1", "unmake", 1), result("s1", "made"), intent("s2", "unsend", 2)
    )
    return held
