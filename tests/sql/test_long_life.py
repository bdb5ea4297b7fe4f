"""Twenty hours, and then twenty days, of operation on a clock of our own: every table stays bounded."""

from datetime import timedelta
from typing import Any

import pytest

from fix_world import NOW, Conn, one
from semel.core import claims, inbox, runs, upkeep
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
    }
    peak = {table: max(size[table] for size in sizes) for table in sizes[0]}
    for table, span in window.items():
        allowed = 12 * (span / step + 3)
        assert peak[table] <= allowed, (table, peak[table], allowed)
    assert peak["run"] <= 2
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


def count(conn: Conn) -> dict[str, int]:
    tables = ("dedupe", "fold", "delivery", "body", "run", "run_history", "attempt", "worker")
    sizes = {t: int(one(conn, f"select count(*) from semel.{t}")) for t in tables}
    sizes["partitions"] = one(
        conn,
        "select count(*) from pg_inherits join pg_class on oid = inhrelid where relkind = 'r'",
    )
    return sizes
