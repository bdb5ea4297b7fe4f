"""Rows that another session keeps locked hold up no sweep: they are left for the next one."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fix_world import DEAD, LEASE, Conn, one, start_run
from semel.core import claims, inbox, recovery, transitions, upkeep, workers
from semel.core.call import Call
from semel.db.execute import run
from semel.model import Alert, Offer

DAY = timedelta(days=1)


#: What runs that are gone have left behind.
ORPHANS = (
    "insert into semel.run_input values ('p', semel.uuid_at(%s), to_jsonb(%s::timestamptz))",
    "insert into semel.step values ('p', semel.uuid_at(%s), 's', 'intent', 1, 1, 'w', 'null', %s, 1)",
    "insert into semel.event_link values ('p', semel.uuid_at(%s), gen_random_uuid(), 'resolved', 'null', %s)",
)


def a_world(conn: Conn) -> None:
    """Two of everything that a sweep looks at, long past its time."""
    statuses: list[Any] = ["firing", "resolved"]
    long_ago = one(conn, "select clock_timestamp()") - 40 * DAY
    for n in "12":
        offer = Offer(source="s", channel="api", id=n, agent="a", body=n.encode() * 2000)
        run(conn, inbox.event_accept("p", [offer], now=long_ago))
        for status in statuses[: int(n)]:
            alert = Alert(
                fingerprint=n, status=status, starts_ns=1, ends_ns=int(n) - 1, alert={}
            )
            made = inbox.alert_accept(
                "p", "am", "a", {}, [alert], body=status.encode(), headers={}, now=long_ago
            )
            run(conn, made)
        start_run(conn, "delayed", delay=timedelta(seconds=1), deadline=timedelta(seconds=1))
        claim = claims.run_claim("p", "a", f"w{n}", limit=1, lease=LEASE, now=long_ago)
        assert 1 == len(run(conn, claim))
        run(conn, workers.worker_register("p", f"idle{n}", host="h", pid=1, slots=1, agents=[]))
    conn.execute("update semel.worker set beat_at = %s", (long_ago,))
    for statement in ORPHANS:
        conn.execute(statement, (long_ago, long_ago))


SWEEPS: dict[str, Callable[[Any], Call[Any]]] = {
    "run_due": lambda now: claims.run_due("p", now=now),
    "run_overdue": lambda now: transitions.run_overdue("p", now=now),
    "run_reap": lambda now: recovery.run_reap("p", dead_after=DEAD, trust=True, now=now),
    "run_reap, blind": lambda now: recovery.run_reap("p", dead_after=DEAD, now=now - 80 * DAY),
    "dedupe_expire": lambda now: upkeep.dedupe_expire("p", 7 * DAY, now=now),
    "fold_stale": lambda now: upkeep.fold_stale("p", 30 * DAY, now=now),
    "leftovers_drop": lambda now: upkeep.leftovers_drop("p", 7 * DAY, 30 * DAY, now=now),
    "worker_expire": lambda now: upkeep.worker_expire("p", now=now),
    "purge_take": lambda now: upkeep.purge_take("p", now=now),
}


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize(
    "table",
    [
        *("run", "worker", "dedupe", "fold", "body", "project"),
        *("run_input", "step", "event_link"),
    ],
)
def test_locked_rows_hold_up_no_sweep(conn: Conn, other: Conn, name: str, table: str) -> None:
    a_world(conn)
    later = one(conn, "select clock_timestamp()") + DAY
    conn.execute("set lock_timeout = '300ms'")

    with other.transaction():
        other.execute(f"select from semel.{table} for update")
        run(conn, SWEEPS[name](later))
    run(conn, SWEEPS[name](later))
    run(conn, SWEEPS[name](later))

    left = {
        "run_due": "select count(*) from semel.run where due_at is not null",
        "run_overdue": "select count(*) from semel.run where deadline_at is not null",
        "run_reap": "select count(*) from semel.worker where stopped_at is null",
        "run_reap, blind": "select 0",
        "dedupe_expire": "select count(*) from semel.dedupe where channel_type = 'api'",
        "fold_stale": "select count(*) from semel.fold where status = 'firing'",
        "leftovers_drop": "select (select count(*) from semel.body) + (select count(*) from semel.step)"
        " + (select count(*) from semel.run_input where run_id < semel.uuid_floor(now() - interval '9 days'))",
        "worker_expire": "select count(*) from semel.worker where worker_id ~ 'idle'",
        "purge_take": "select count(*) from semel.project where purged_at is null",
    }
    assert 0 == one(conn, left[name]), "what was locked is swept the next time"
