"""Twenty hours, and then twenty days, of operation on a clock of our own: every table stays bounded."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from fix_world import NOW, Conn, one
from semel.core import approvals, claims, inbox, runs, steps, transitions, upkeep, waits
from semel.core.approvals import Link
from semel.core.steps import Entry
from semel.core.waits import Question, Wait
from semel.db.execute import run
from semel.model import Alert, Offer

LEASE = timedelta(minutes=5)


@pytest.mark.parametrize(
    ("step", "steps", "memory", "kept"),
    [
        (timedelta(minutes=10), 120, timedelta(hours=2), timedelta(hours=4)),
        (timedelta(hours=6), 80, timedelta(days=2), timedelta(days=4)),
    ],
    ids=["twenty hours", "twenty days"],
)
def test_every_table_stays_bounded(
    conn: Conn, step: timedelta, steps: int, memory: timedelta, kept: timedelta
) -> None:
    sizes: list[dict[str, int]] = []
    for n in range(steps):
        now = NOW + n * step
        live_a_step(conn, n, now)
        live_durably(conn, n, now)
        run(conn, upkeep.partitions_make(now=now))
        run(conn, upkeep.partitions_drop(kept, memory, now=now))
        for project in ("p", "q"):
            run(conn, upkeep.dedupe_expire(project, memory, now=now))
            run(conn, upkeep.leftovers_drop(project, memory, kept, now=now))
            run(conn, upkeep.worker_expire(project, now=now))
            run(conn, upkeep.fold_stale(project, 3 * memory, now=now))
        sizes.append(count(conn))

    # What a full window holds: the memory, a day of grace for partitions and bodies, and a little.
    day = timedelta(days=1)
    window = {
        "dedupe": memory,
        "fold": 4 * memory,
        "delivery": memory + 2 * day,
        "body": memory + 2 * day,
        "run_history": kept + 2 * day,
        "attempt": 2 * kept + 2 * day,
        "worker": 2 * day,
        "step": kept + 2 * day,
        "signal": kept + 2 * day,
        "approval": kept + 2 * day,
        "approval_token": kept + 2 * day,
        "approval_vote": kept + 2 * day,
    }
    peak = {table: max(size[table] for size in sizes) for table in sizes[0]}
    for table, span in window.items():
        allowed = (20 if table == "run_history" else 12) * (span / step + 3)
        assert peak[table] <= allowed, (table, peak[table], allowed)
    assert peak["run"] <= 2
    assert peak["wait"] <= 2
    assert peak["partitions"] <= 3 * (2 * kept / day + 14)


def live_a_step(conn: Conn, n: int, now: Any) -> None:
    """Some events, some of them twice, alerts that come and go, runs that end well and badly."""
    for project in ("p", "q"):
        offers = [
            Offer(
                source="s", channel="api", id=f"{n}-{k % 3}", agent="a", input=n, body=b"%d" % n
            )
            for k in range(4)
        ]
        run(conn, inbox.event_accept(project, offers, memory=timedelta(hours=2), now=now))
        firing = n % 2 == 0
        alert = Alert(
            fingerprint=f"f{n // 2}",
            status="firing" if firing else "resolved",
            starts_ns=n // 2,
            ends_ns=0 if firing else 1,
            alert={},
        )
        notification = inbox.alert_accept(
            project, "am", "a", {}, [alert], body=b"am%d" % n, headers={}, now=now
        )
        run(conn, notification)
        held = run(
            conn, claims.run_claim(project, "a", f"w{n}", limit=50, lease=LEASE, now=now)
        )
        for claim in held[1:]:
            done = [(claim.run_id, claim.fence, "null")]
            run(conn, runs.run_complete(project, f"w{n}", done, now=now))
        for claim in held[:1]:
            failed = runs.run_fail(claim, "E-RUN-006", "boom", retryable=n % 3 > 0, now=now)
            run(conn, failed)


def live_durably(conn: Conn, n: int, now: Any) -> None:
    """A run that promises, hears and asks; is decided, or cancelled and undone."""
    for project in ("p", "q"):
        run_id = run(conn, runs.run_start(project, "d", n, now=now)).run_id
        # Its id is its age, and the server's clock stands still here: it is as old as this step.
        [[aged]] = conn.execute("select semel.uuid_at(%s)", (now,)).fetchall()
        conn.execute("update semel.run set run_id = %s where run_id = %s", (aged, run_id))
        [held] = run(conn, claims.run_claim(project, "d", "wd", limit=1, lease=LEASE, now=now))
        promise = [(aged, held.fence, Entry("s", "intent", content='{"undo": "u"}'))]
        run(conn, steps.step_record(project, "wd", promise, now=now))
        run(conn, waits.signal_send(project, aged, "go", n, now=now))
        question = Question(id=uuid4(), title="t", action={}, digest="d", notify=("ann",))
        wait = Wait(key="ok", kind="approval", due=timedelta(minutes=15), question=question)
        run(conn, waits.run_park(project, "wd", aged, held.fence, [wait], now=now))
        [sender] = run(
            conn, claims.run_claim(project, "semel.notify", "wd", limit=1, lease=LEASE, now=now)
        )
        link, hold = Link.mint(project), (sender.run_id, sender.fence)
        about: Any = {"approval_id": question.id, "recipient": "ann", "link": link}
        run(conn, approvals.approval_mint(project, "wd", *hold, now=now, **about))
        run(conn, runs.run_complete(project, "wd", [(*hold, "1")], now=now))
        if n % 3 == 0:
            run(conn, transitions.run_cancel(project, aged, now=now))
        else:
            decided = approvals.approval_decide(
                project, "approve", via="link", link=link, now=now
            )
            assert "won" == run(conn, decided).outcome
        [last] = run(conn, claims.run_claim(project, "d", "wd", limit=1, lease=LEASE, now=now))
        run(conn, runs.run_complete(project, "wd", [(last.run_id, last.fence, "1")], now=now))


def count(conn: Conn) -> dict[str, int]:
    tables = (
        "dedupe", "fold", "delivery", "body", "run", "run_history", "attempt", "worker",
        "step", "wait", "signal", "approval", "approval_token", "approval_vote",
    )  # fmt: skip
    sizes = {t: int(one(conn, f"select count(*) from semel.{t}")) for t in tables}
    sizes["partitions"] = one(
        conn,
        "select count(*) from pg_inherits join pg_class on oid = inhrelid where relkind = 'r'",
    )
    return sizes
