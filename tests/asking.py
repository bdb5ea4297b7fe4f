"""Runs that ask people: parked with a question, and the links that were sent."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from fix_world import LEASE, Conn, start_run
from semel.core import claims, runs
from semel.core.approvals import Link, approval_mint
from semel.core.waits import Question, Wait, run_park
from semel.db.execute import run
from semel.model import Claim

TTL = timedelta(minutes=15)


class Asked(NamedTuple):
    project: str
    run_id: UUID
    approval_id: UUID


def claimed(conn: Conn, project: str = "p", agent: str = "a") -> Claim:
    """The next run of *agent*, held by worker w."""
    [claim] = run(conn, claims.run_claim(project, agent, "w", limit=1, lease=LEASE))
    return claim


def ask(
    conn: Conn,
    title: str = "restart web",
    action: Any = None,
    *,
    project: str = "p",
    agent: str = "a",
    ttl: timedelta = TTL,
    now: datetime | None = None,
    notify: tuple[str, ...] = ("bob",),
    **more: Any,
) -> Asked:
    """A run that is WAITING_APPROVAL."""
    start_run(conn, agent, project=project)
    return asked_by(
        conn,
        claimed(conn, project, agent),
        title,
        action,
        ttl=ttl,
        now=now,
        notify=notify,
        **more,
    )


def asked_by(
    conn: Conn, claim: Claim, title: str = "restart web", action: Any = None, **more: Any
) -> Asked:
    """The same of a run that is held already."""
    ttl, now = more.pop("ttl", TTL), more.pop("now", None)
    question = Question(
        id=uuid4(),
        title=title,
        action={"pod": "web-1"} if action is None else action,
        digest="sha256:" + "a" * 64,
        **more,
    )
    wait = Wait(key="ok", kind="approval", due=ttl, question=question)
    call = run_park(claim.project, "w", claim.run_id, claim.fence, [wait], now=now)
    [(_, outcome, _)] = run(conn, call)
    assert outcome == "parked"
    return Asked(claim.project, claim.run_id, question.id)


def link(conn: Conn, asked: Asked, recipient: str = "bob", now: datetime | None = None) -> str:
    """The token of a link that was sent to *recipient*."""
    made = Link.mint(asked.project)
    claim = claimed(conn, asked.project, "semel.notify")
    call = approval_mint(
        asked.project,
        "w",
        claim.run_id,
        claim.fence,
        approval_id=asked.approval_id,
        recipient=recipient,
        link=made,
        now=now,
    )
    assert run(conn, call) == "won"
    done = runs.run_complete(asked.project, "w", [(claim.run_id, claim.fence, "null")])
    run(conn, done)
    return made.token
