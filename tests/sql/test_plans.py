"""The plan of every hot statement at 50,000 rows, and what it reads while a snapshot is pinned."""

from datetime import datetime, timedelta
from typing import Any

import psycopg

from fix_explained import FILL, Explained, held, whole_tables
from fix_world import DEAD, LEASE, Conn, one
from semel.core import (
    claims,
    inbox,
    recovery,
    runs,
    transitions,
    workers,
)
from semel.core.call import Call
from semel.db.execute import run
from semel.model import Alert, Notice, Offer

ROWS = 50_000
BATCH = 100
PASSING = 20_000
TURNS = PASSING // BATCH
TENTH = TURNS // 10

_AGENT = ("a", 3, None, "async")
_DEAD = """
update semel.worker set stopped_at = null, beat_at = now() - interval '1 hour'
where worker_id = 'dead'
"""


def now(conn: Conn) -> datetime:
    found: datetime = one(conn, "select clock_timestamp()")
    return found


def hot_calls(conn: Conn, turn: int) -> dict[str, Call[Any]]:
    """What a busy project sends all day, each time with other runs."""
    taken = held(conn, f"w{turn}", 40)
    pairs = [(claim.run_id, claim.fence) for claim in taken]
    mark = taken[0].ready_at
    offers = [
        Offer(source="s", channel="api", id=f"{turn}.{n}", agent="a", body=b"x", compare=True)
        for n in range(20)
    ]
    notices = [
        Notice(
            source="am",
            agent="a",
            envelope={},
            alerts=[
                Alert(fingerprint=name, status="firing", starts_ns=1, ends_ns=0, alert={})
                for name in (f"{turn}.{n}", str(n + 1))
            ],
            body=b"x",
            headers={},
            grace=timedelta(seconds=120),
        )
        for n in range(20)
    ]
    return {
        "claim": claims.run_claim(
            "p", "a", f"w{turn}", limit=20, lease=LEASE, lanes=[5], marks=[mark]
        ),
        "claim from the start": claims.run_claim("p", "a", f"w{turn}", limit=20, lease=LEASE),
        "claim of the oldest": claims.run_claim(
            "p", "a", f"w{turn}", limit=20, lease=LEASE, oldest=True
        ),
        "hint": claims.run_hint(["a"], marks={("p", "a", "", 5): mark}),
        "hint from the start": claims.run_hint(["a"]),
        "beat": workers.run_beat("p", f"w{turn}", pairs, lease=LEASE),
        "renewal": workers.run_beat(
            "p", f"w{turn}", pairs, lease=LEASE, now=now(conn) + LEASE * 0.6
        ),
        "complete": runs.run_complete("p", f"w{turn}", [(*p, "1") for p in pairs[:10]]),
        "complete again": runs.run_complete("p", f"w{turn}", [(*p, "1") for p in pairs[:10]]),
        "fail": runs.run_fail(taken[11], "E-RUN-006", "boom"),
        "fail again": runs.run_fail(taken[11], "E-RUN-006", "boom"),
        "release": runs.run_release("p", f"w{turn}", pairs[12:14]),
        "cancel": transitions.run_cancel("p", taken[14].run_id),
        "retry": transitions.run_retry("p", taken[14].run_id),
        "sweep": recovery.run_reap("p", dead_after=DEAD),
        "sweep of leases": recovery.run_reap("p", dead_after=DEAD, trust=True),
        "due": claims.run_due("p"),
        "due of an agent": claims.run_due("p", "a"),
        "overdue": transitions.run_overdue("p"),
        "accept": inbox.event_accept("p", offers),
        "accept again": inbox.event_accept("p", offers),
        "notify": inbox.notification_fold("p", notices),
        "notify again": inbox.notification_fold("p", notices),
        "start": runs.run_start("p", "a", None, key=f"k{turn}", unique=f"u{turn}"),
        "start again": runs.run_start("p", "a", None, key=f"k{turn}"),
    }


def test_no_hot_statement_reads_a_whole_table(conn: Conn, explained: Explained) -> None:
    conn.execute(FILL)
    assert {} == whole_tables(conn, explained, hot_calls)


def test_a_pinned_snapshot_does_not_slow_claims_hints_and_sweeps(
    conn: Conn, other: Conn, explained: Explained
) -> None:
    """No dead entry can be removed while 20,000 runs pass; the scans do not walk them."""
    conn.execute(
        "insert into semel.run (project_id, run_id, agent, status, lane, priority, ready_at, input,"
        " created_at) select 'p', semel.uuid_at(clock_timestamp()), 'a', 'PENDING', 5, 5,"
        " clock_timestamp() - interval '1 hour' + n * interval '1 ms', '{}', clock_timestamp()"
        " from generate_series(1, %s) as n",
        (PASSING,),
    )
    conn.execute("vacuum analyze semel.run")
    # A sweep that judges, and always finds a dead worker whose runs it must look for.
    conn.execute(
        "insert into semel.project (project_id, created_at, swept_at, leases_at, blind_until)"
        " values ('p', now(), now(), now(), now() - interval '1 hour')"
    )
    run(conn, workers.worker_register("p", "dead", host="h", pid=1, slots=1, agents=[_AGENT]))
    read: dict[str, list[int]] = {"claim": [], "hint": [], "sweep": []}
    other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

    with other.transaction():
        one(other, "select count(*) from semel.run")
        mark: datetime | None = None
        for turn in range(TURNS):
            claim = claims.run_claim(
                "p", "a", "w", limit=BATCH, lease=LEASE, lanes=[5], marks=[mark]
            )
            taken = explained.ask(claim)
            assert len(taken) == BATCH
            mark = taken[-1].ready_at
            read["claim"].append(explained.buffers)
            ended = [(held.run_id, held.fence, "null") for held in taken]
            run(conn, runs.run_complete("p", "w", ended))
            explained.ask(claims.run_hint(["a"], marks={("p", "a", "", 5): mark}))
            read["hint"].append(explained.buffers)
            if (
                not TENTH <= turn < TURNS - TENTH
            ):  # else its own updates would be what is measured
                conn.execute(_DEAD)
                # Leases are looked at once a minute at most: not now, however slow the machine is.
                conn.execute("update semel.project set leases_at = clock_timestamp()")
                assert [] == explained.ask(recovery.run_reap("p", dead_after=DEAD))
                read["sweep"].append(explained.buffers)

    for name, buffers in read.items():
        first, last = sum(buffers[:TENTH]) / TENTH, sum(buffers[-TENTH:]) / TENTH
        assert last <= 2 * first, f"{name}: {first} buffers at first, {last} at last"
