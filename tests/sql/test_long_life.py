"""Twenty hours, and then twenty days, of operation on a clock of our own: every table stays bounded.

Each step everything happens that leaves a row: events, some of them twice, alerts that come, go and
are forgotten, runs with steps and large inputs that end well, badly and not at all, workers that
leave and workers that die, runs that ask a person and are undone, operations that are executed, fail,
or are judged by a person, and what they say in the journal. Then upkeep comes, as it does every ten minutes.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

import tooling
from fix_world import DEAD, Conn, one
from semel.core import (
    approvals,
    batches,
    claims,
    consumers,
    debounce,
    inbox,
    journals,
    operations,
    reconcile,
    recovery,
    runs,
    steps,
    tools,
    transitions,
    upkeep,
    waits,
    workers,
)
from semel.core.approvals import Link
from semel.core.steps import Entry
from semel.core.waits import Question, Wait
from semel.db.execute import run
from semel.model import Alert, Offer

LEASE = timedelta(minutes=5)
DAY = timedelta(days=1)
PROJECTS = ("p", "q")
#: As many rows as there are projects, agents, sources, tokens, migrations; time adds none.
STILL = {
    "project": 2,
    "agent": 2,
    "source": 0,
    "token": 0,
    "migration": 100,
    "wait": 0,
    "journal_project": 2,
    "journal_cursor": 2,
    "journal_pending": 0,
    "operation_sweep": 2,
    # Of these nobody lives here: of a bot, an Alertmanager, a spool, a schedule, a rate one each.
    "poll": 0,
    "alert_poll": 0,
    "spool": 0,
    "spool_segment": 0,
    "schedule": 0,
    "agent_bucket": 0,
}


class Pace(NamedTuple):
    """How time goes, and how long things are kept."""

    step: timedelta
    steps: int
    memory: timedelta
    kept: timedelta


PACES = {
    "twenty hours": Pace(timedelta(minutes=10), 120, timedelta(hours=2), timedelta(hours=4)),
    "twenty days": Pace(timedelta(hours=6), 80, 2 * DAY, 4 * DAY),
}


def windows(pace: Pace) -> dict[str, tuple[int, timedelta]]:
    """How many rows a step adds to a table in one project, and how long one stays at most."""
    # Partitions and bodies go by whole days, what is kept beside a run goes after the run.
    kept, memory = pace.kept + 2 * DAY, pace.memory + 2 * DAY
    return {
        "dedupe": (7, 4 * pace.memory),
        "fold": (2, 4 * pace.memory),
        "delivery": (8, memory),
        "body": (3, memory),
        "run": (2, timedelta(0)),
        "run_input": (1, kept),
        "run_history": (10, kept),
        "step": (6, kept),
        "signal": (1, kept),
        "approval": (1, kept),
        "approval_token": (1, kept),
        "approval_vote": (1, kept),
        "event_link": (1, kept),
        "attempt": (5, 2 * kept),
        "worker": (2, 2 * DAY),
        "content": (1, 4 * pace.memory),
        # No identity goes before a day is over, and a round begins twice a day.
        "operation": (2, max(pace.kept, DAY) + DAY),
        "operation_holder": (1, 8 * DAY),
        "judgement": (1, max(pace.kept, DAY) + DAY),
        "journal_entry": (1, kept),
        "source_tally": (1, DAY + pace.memory),
        "batch": (1, kept),
        "debounce": (1, 2 * DAY),
        "tool": (1, kept),
        "tool_token": (1, kept),
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize("pace", PACES.values(), ids=PACES)
def test_every_table_stays_bounded(conn: Conn, pace: Pace) -> None:
    sizes: list[dict[str, int]] = []
    dropped = 0
    begin = one(conn, "select clock_timestamp()")  # a run's id is always of the real clock
    for n in range(pace.steps):
        now = begin + n * pace.step
        for project in PROJECTS:
            live_a_step(conn, project, n, now)
            live_durably(conn, project, n, now)
            live_in_the_ledger(conn, project, n, now)
            live_in_batches(conn, project, n, now)
        dropped += keep_up(conn, pace, now)
        sizes.append(count(conn))

    peak = {table: max(size[table] for size in sizes) for table in sizes[0]}
    partitions, rest = peak.pop("partitions"), peak.pop("rest")
    window = windows(pace)
    assert set(peak) == set(window) | set(STILL), (
        "a table of which nobody says how it is bounded"
    )
    for table, (rows, span) in window.items():
        allowed = len(PROJECTS) * rows * (int(span / pace.step) + 3)
        assert 0 < peak[table] <= allowed, (table, peak[table], allowed)
    assert {t: peak[t] for t in STILL if peak[t] > STILL[t]} == {}
    # Each of the three has its days, one of yesterday and seven to come.
    assert partitions <= 3 * (2 * pace.kept / DAY + 14)
    assert rest <= peak["dedupe"], (
        "a run waits there for its event to be forgotten, nothing else"
    )
    if pace.steps * pace.step > 2 * pace.kept + 3 * DAY:
        assert dropped > 0
        half = len(sizes) // 2
        for table in window:
            early = max(size[table] for size in sizes[:half])
            late = max(size[table] for size in sizes[half:])
            assert late <= early * 1.25 + 2, (table, "still grows", early, late)


def keep_up(conn: Conn, pace: Pace, now: datetime) -> int:
    """What upkeep does; answers the partitions dropped."""
    run(conn, upkeep.partitions_make(now=now))
    dropped = run(conn, upkeep.partitions_drop(pace.kept, pace.memory, now=now))
    for need in run(conn, upkeep.due_projects(now=now)):
        run(conn, transitions.run_overdue(need.project, now=now))
        run(conn, claims.run_due(need.project, now=now))
        run(conn, recovery.run_reap(need.project, dead_after=DEAD, trust=True, now=now))
        run(conn, batches.batch_settle(need.project, now=now))
        if run(conn, upkeep.purge_take(need.project, now=now)):
            run(conn, batches.batch_expire(need.project, pace.kept, now=now))
            run(conn, debounce.debounce_expire(need.project, now=now))
            run(conn, upkeep.dedupe_expire(need.project, pace.memory, now=now))
            run(conn, upkeep.leftovers_drop(need.project, pace.memory, pace.kept, now=now))
            run(conn, upkeep.worker_expire(need.project, now=now))
            run(conn, upkeep.fold_stale(need.project, 3 * pace.memory, now=now))
            run(conn, upkeep.content_expire(need.project, now=now))
            run(conn, upkeep.holder_expire(need.project, now=now))
            run(conn, journals.journal_number(need.project, now=now))
            run(conn, journals.journal_expire(need.project, pace.kept, now=now))
            kept = max(pace.kept, DAY)
            sweep = upkeep.operation_expire(need.project, kept, kept, every=DAY / 2, now=now)
            while run(conn, sweep).looked:
                pass
    return dropped


def live_a_step(conn: Conn, project: str, n: int, now: datetime) -> None:
    offers = [
        Offer(
            source="s",
            channel="api",
            id=f"{n}-{k % 3}",
            agent="a",
            input=n,
            body=b"%d" % n * 500,
        )
        for k in range(4)
    ]
    run(conn, inbox.event_accept(project, offers, memory=timedelta(hours=2), now=now))
    unsigned = Offer(
        source="g", channel="gitea", id=f"g{n}", agent="a", input=n, content=f"c{n}"
    )
    run(conn, inbox.event_accept(project, [unsigned], memory=timedelta(hours=2), now=now))
    told = [alert(f"f{n // 2}", n // 2, over=n % 2 == 1)]
    if n % 5 == 0:
        told.append(alert(f"forgotten{n}", n, over=False))
    for each in told:
        body = each.fingerprint.encode() * 400
        call = inbox.alert_accept(
            project, "am", "a", {}, [each], body=body, headers={}, now=now
        )
        run(conn, call)
    if n % 3 == 0:
        run(conn, runs.run_start(project, "b", "x" * 3000, deadline=LEASE, now=now))
    work(conn, project, n, now)
    take_up(conn, project, n, now)


def work(conn: Conn, project: str, n: int, now: datetime) -> None:
    """One run is lost with its worker, one fails, one is cancelled, the rest are completed."""
    worker = f"w{n}"
    held = run(conn, claims.run_claim(project, "a", worker, limit=50, lease=LEASE, now=now))
    for claim in held[:-2]:
        mine = (claim.run_id, claim.fence)
        entries = [(*mine, Entry("s", "error")), (*mine, Entry("s", "result", content="1"))]
        record = steps.step_record(project, worker, entries, now=now)
        if claim is held[0]:
            run(conn, record)
        done = [(claim.run_id, claim.fence, "null")]
        run(conn, runs.run_complete(project, worker, done, now=now))
    for claim in held[-2:-1]:
        run(conn, runs.run_fail(claim, "E-RUN-006", "boom", retryable=n % 3 > 0, now=now))
    if n % 4 == 0 and held:
        run(conn, transitions.run_cancel(project, held[-1].run_id, now=now))
    elif n % 2:
        run(conn, workers.worker_stop(project, worker))


def take_up(conn: Conn, project: str, n: int, now: datetime) -> None:
    """Runs of lost workers are claimed alone; they end well."""
    worker = f"alone{n}"
    call = claims.run_claim(
        project, "a", worker, limit=1, lease=LEASE, lanes=tuple(range(100, 111)), now=now
    )
    while held := run(conn, call):
        done = [(claim.run_id, claim.fence, "null") for claim in held]
        run(conn, runs.run_complete(project, worker, done, now=now))


def alert(name: str, starts: int, *, over: bool) -> Alert:
    return Alert(
        fingerprint=name,
        status="resolved" if over else "firing",
        starts_ns=starts,
        ends_ns=starts + 1 if over else 0,
        alert={},
    )


def live_durably(conn: Conn, project: str, n: int, now: datetime) -> None:
    """A run that promises, hears and asks; is decided, or cancelled and undone."""
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
        decided = approvals.approval_decide(project, "approve", via="link", link=link, now=now)
        assert run(conn, decided).outcome == "won"
    [last] = run(conn, claims.run_claim(project, "d", "wd", limit=1, lease=LEASE, now=now))
    run(conn, runs.run_complete(project, "wd", [(last.run_id, last.fence, "1")], now=now))


def live_in_the_ledger(conn: Conn, project: str, n: int, now: datetime) -> None:
    """One operation is executed, and says so; one is left by its holder, and a person judges it."""
    reply = operations.Reply(status=200, headers=[], body=b"1")
    asked = identity(project, f"done{n}")
    with conn.transaction():
        begun = run(conn, operations.operation_begin(asked, now=now))
        own = (project, asked.request_id, begun.attempts or 0, begun.xid or "", reply)
        said: Any = [{"topic": "t", "payload": n}]
        run(conn, operations.operation_close(*own, journal=said, now=now))
    run(conn, consumers.journal_join(project, "c", now=now))
    left, holder = identity(project, f"left{n}"), uuid4()
    begin = operations.operation_begin(left, mode="recorded", holder=holder, now=now)
    attempt = run(conn, begin).attempts or 0
    gone = operations.operation_release(
        project, left.request_id, attempt, holder, "unknown", now=now
    )
    assert run(conn, gone) == "won"
    judge = reconcile.reconcile_resolve(
        project,
        left.request_id,
        attempts=attempt,
        updated_at=now,
        judgement="FAILED",
        by="ann",
        reason="nothing was done",
        now=now,
    )
    assert run(conn, judge)[0] == "won"


def live_in_batches(conn: Conn, project: str, n: int, now: datetime) -> None:
    """Two runs that were started together, one that others collapse into, one that calls a tool."""
    run(conn, batches.batch_open(project, f"b{n}", "e", now=now))
    run(conn, batches.batch_add(project, f"b{n}", "[1, 2]", now=now))
    run(conn, batches.batch_close(project, f"b{n}", b"d"))
    told: Any = {"key": f"d{n}", "quiet": timedelta(seconds=1), "now": now}
    run(conn, debounce.run_debounce(project, "e", n, **told))
    run(conn, runs.run_start(project, "e", n, now=now))
    conn.execute(
        "select semel.source_observe(%s, %s, %s, %s, %s)",
        (project, ["s"], ["new"], [1], now),
    )
    *rest, caller = run(
        conn, claims.run_claim(project, "e", "we", limit=50, lease=LEASE, now=now)
    )
    park = waits.run_park(project, "we", caller.run_id, caller.fence, [tooling.ask()], now=now)
    run(conn, park)
    [call] = run(
        conn, claims.run_claim(project, tooling.TOOL, "we", limit=1, lease=LEASE, now=now)
    )
    mine: Any = (project, "we", call.run_id, call.fence)
    link = Link.mint(project)
    run(conn, tools.tool_send(*mine, turn=0, repeatable=False, link=link, now=now))
    run(conn, runs.run_complete(project, "we", [(call.run_id, call.fence, "1")], now=now))
    rest += run(conn, claims.run_claim(project, "e", "we", limit=1, lease=LEASE, now=now))
    run(
        conn,
        runs.run_complete(project, "we", [(r.run_id, r.fence, "1") for r in rest], now=now),
    )


def identity(project: str, request_id: str) -> operations.Identity:
    envelope: dict[str, Any] = {"version": 2, "digest": f"sha256:{'0' * 64}"}
    return operations.Identity(
        project=project, request_id=request_id, event_type="p", actor=None, envelopes=[envelope]
    )


def count(conn: Conn) -> dict[str, int]:
    """The rows of every table there is, and the partitions."""
    found = conn.execute(
        "select relname from pg_class where relnamespace = 'semel'::regnamespace"
        " and relkind in ('r', 'p') and not relispartition"
    ).fetchall()
    sizes = {table: int(one(conn, f"select count(*) from semel.{table}")) for [table] in found}
    sizes["partitions"] = one(
        conn,
        "select count(*) from pg_inherits join pg_class on oid = inhrelid where relkind = 'r'",
    )
    sizes["rest"] = sum(
        int(one(conn, f"select count(*) from semel.{table}_rest"))
        for table in ("run_history", "attempt", "delivery")
    )
    return sizes
