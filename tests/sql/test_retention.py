"""Growth is bounded: what is past its time goes, in batches, and nothing else does."""

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import durable
from fix_world import LEASE, Conn, one, start_run
from semel.core import claims, inbox, runs, steps, upkeep, workers
from semel.core.deliveries import delivery_read
from semel.db.execute import run
from semel.model import Alert, Offer

DAY = timedelta(days=1)


def clock(conn: Conn) -> datetime:
    return one(conn, "select clock_timestamp()")  # type: ignore[no-any-return]


def accept(conn: Conn, name: str, now: datetime | None = None) -> Any:
    offer = Offer(source="s", channel="api", id=name, agent="a", body=name.encode())
    return run(conn, inbox.event_accept("p", [offer], now=now))[0]


def finish(conn: Conn, *run_ids: Any) -> None:
    held = run(conn, claims.run_claim("p", "a", "w", limit=100, lease=LEASE))
    run(
        conn,
        runs.run_complete(
            "p", "w", [(c.run_id, c.fence, "1") for c in held if c.run_id in run_ids]
        ),
    )


def test_an_id_is_forgotten_seven_days_after_its_last_sighting(conn: Conn) -> None:
    start = clock(conn)
    accept(conn, "e", start)
    assert "duplicate" == accept(conn, "e", start + 5 * DAY).verdict

    assert 0 == run(conn, upkeep.dedupe_expire("p", 7 * DAY, now=start + 11 * DAY))
    assert "duplicate" == accept(conn, "e", start + 11 * DAY).verdict
    assert 1 == run(conn, upkeep.dedupe_expire("p", 7 * DAY, now=start + 18 * DAY))
    assert "new" == accept(conn, "e", start + 18 * DAY).verdict


def test_an_id_past_its_memory_counts_as_absent_though_its_row_is_there(conn: Conn) -> None:
    start = clock(conn)
    first = accept(conn, "e", start)
    again = accept(conn, "e", start + 7 * DAY)

    assert ("new", True) == (again.verdict, again.run_id != first.run_id)
    assert 2 == one(conn, "select count(*) from semel.runs")
    assert 1 == one(conn, "select count(*) from semel.events")


def alert(conn: Conn, status: str, ends: int, now: datetime) -> Any:
    one_alert = Alert(fingerprint="f", status=status, starts_ns=1, ends_ns=ends, alert={})  # type: ignore[arg-type]
    call = inbox.alert_accept(
        "p", "am", "a", {}, [one_alert], body=f"{status}{now}".encode(), headers={}, now=now
    )
    return run(conn, call)[0]


def test_c6_a_long_alert_outlives_the_memory_of_its_id(conn: Conn) -> None:
    """Eight days, a reminder every four hours, seven days of memory: one run; then one event."""
    start = clock(conn)
    first = alert(conn, "firing", 0, start)
    for hours in range(4, 8 * 24, 4):
        at = start + timedelta(hours=hours)
        assert "reminder" == alert(conn, "firing", 0, at).verdict
        run(conn, upkeep.dedupe_expire("p", 7 * DAY, now=at))
    resolved = alert(conn, "resolved", 9, start + 8 * DAY)

    assert ("new", first.run_id) == (resolved.verdict, resolved.run_id)
    assert 1 == one(conn, "select count(*) from semel.runs")
    assert 2 == one(conn, "select count(*) from semel.events")


def test_a_silent_open_episode_is_not_forgotten_but_closed_after_a_month(conn: Conn) -> None:
    start = clock(conn)
    alert(conn, "firing", 0, start)

    assert 0 == run(conn, upkeep.dedupe_expire("p", 7 * DAY, now=start + 20 * DAY))
    assert "reminder" == alert(conn, "firing", 0, start + 20 * DAY).verdict
    assert 0 == run(conn, upkeep.fold_stale("p", 30 * DAY, now=start + 49 * DAY))
    assert 1 == run(conn, upkeep.fold_stale("p", 30 * DAY, now=start + 50 * DAY))
    assert 1 == run(conn, upkeep.dedupe_expire("p", 7 * DAY, now=start + 50 * DAY))
    assert "new" == alert(conn, "firing", 0, start + 51 * DAY).verdict


def test_expiry_works_in_batches_and_leaves_the_young(conn: Conn) -> None:
    start = clock(conn)
    for n in range(5):
        accept(conn, f"old{n}", start - 10 * DAY)
    accept(conn, "young", start)

    counts = [
        one(conn, "select semel.dedupe_expire('p', '7 days', 2, %s)", start) for _ in range(4)
    ]

    assert [2, 2, 1, 0] == counts
    assert ["young"] == [
        i for [i] in conn.execute("select provider_event_id from semel.events")
    ]


def test_history_is_dropped_by_partition_but_never_before_its_id(conn: Conn) -> None:
    start = clock(conn)
    forgotten, remembered = accept(conn, "x", start), accept(conn, "y", start)
    plain = start_run(conn)
    finish(conn, forgotten.run_id, remembered.run_id, plain)
    later = start + 32 * DAY
    accept(conn, "y", start + 6 * DAY)
    accept(conn, "y", start + 12 * DAY)
    run(conn, upkeep.dedupe_expire("p", 7 * DAY, now=start + 18 * DAY))

    assert 0 == run(conn, upkeep.partitions_drop(30 * DAY, 365 * DAY, now=start + 29 * DAY))
    assert 3 == one(conn, "select count(*) from semel.runs")
    assert run(conn, upkeep.partitions_drop(30 * DAY, 365 * DAY, now=later)) >= 1
    assert [remembered.run_id] == [r for [r] in conn.execute("select run_id from semel.runs")]
    assert "duplicate" == accept(conn, "y", start + 18 * DAY).verdict
    run(conn, upkeep.dedupe_expire("p", 7 * DAY, now=later))
    run(conn, upkeep.partitions_drop(30 * DAY, 365 * DAY, now=later))
    assert 0 == one(conn, "select count(*) from semel.runs")


def test_rows_that_came_before_their_partition_move_into_it(conn: Conn) -> None:
    """Upkeep was away for weeks: what came meanwhile is in the rest partitions, of no day."""
    start = clock(conn)
    run(conn, upkeep.partitions_drop(DAY, DAY, now=start + 30 * DAY))
    first = accept(conn, "e", start)
    finish(conn, first.run_id)
    tables = ("run_history", "delivery")
    assert [1, 1] == [one(conn, f"select count(*) from semel.{t}_rest") for t in tables]

    assert run(conn, upkeep.partitions_make(now=start)) > 0

    assert [0, 0] == [one(conn, f"select count(*) from semel.{t}_rest") for t in tables]
    assert [first.run_id] == [r for [r] in conn.execute("select run_id from semel.runs")]
    assert "duplicate" == accept(conn, "e", start).verdict
    assert 0 == run(conn, upkeep.partitions_make(now=start))
    assert run(conn, upkeep.partitions_drop(DAY, DAY, now=start + 30 * DAY)) > 0


def test_a_day_whose_rows_outlive_it_is_not_made_again(conn: Conn) -> None:
    """Its run is still remembered, so it moved to the rest; partitions are made on all the same."""
    start = clock(conn)
    first = accept(conn, "e", start)
    finish(conn, first.run_id)
    next_day = start + DAY
    assert run(conn, upkeep.partitions_drop(timedelta(0), DAY, now=next_day)) > 0

    assert 3 <= run(conn, upkeep.partitions_make(now=next_day))
    last = f"run_history_{next_day.astimezone(UTC) + 7 * DAY:%Y%m%d}"
    assert one(conn, "select to_regclass(%s) is not null", f"semel.{last}")
    assert [first.run_id] == [
        r for [r] in conn.execute("select run_id from semel.run_history_rest")
    ]


def test_deliveries_and_their_bodies_go_with_time(conn: Conn) -> None:
    start = clock(conn)
    accept(conn, "e" * 2000, start)
    assert 1 == one(conn, "select count(*) from semel.body")

    run(conn, upkeep.partitions_drop(30 * DAY, 7 * DAY, now=start + 9 * DAY))
    run(conn, upkeep.leftovers_drop("p", 7 * DAY, 30 * DAY, now=start + 9 * DAY))

    assert 0 == one(conn, "select count(*) from semel.deliveries")
    assert 0 == one(conn, "select count(*) from semel.body")
    assert 1 == one(conn, "select count(*) from semel.events")


def test_a_large_body_is_kept_once_for_its_content_and_a_small_one_by_its_delivery(
    conn: Conn,
) -> None:
    small, large = b"s" * 1024, b"l" * 1025
    for body in (small, small, large, large, b""):
        run(conn, inbox.event_accept("p", [Offer(source="s", channel="api", body=body)]))

    assert [(large,)] == conn.execute("select content from semel.body").fetchall()
    told = conn.execute("select delivery_id, body_digest, body_bytes from semel.deliveries")
    kept = {
        (run(conn, delivery_read("p", name)).body, digest, size)  # type: ignore[union-attr]
        for name, digest, size in told
    }
    assert {(body, sha256(body).hexdigest(), len(body)) for body in (small, large, b"")} == kept


def test_large_inputs_go_with_their_run_and_not_before(conn: Conn) -> None:
    gone, live = start_run(conn, value="x" * 5000), start_run(conn, value="y" * 5000)
    finish(conn, gone)
    later = clock(conn) + 40 * DAY

    assert 0 == run(conn, upkeep.leftovers_drop("p", 7 * DAY, 30 * DAY, now=later))
    run(conn, upkeep.partitions_drop(30 * DAY, 7 * DAY, now=later))
    assert 1 == run(conn, upkeep.leftovers_drop("p", 7 * DAY, 30 * DAY, now=later))
    assert [live] == [r for [r] in conn.execute("select run_id from semel.run_input")]


def test_steps_and_links_go_with_their_run_and_not_before(conn: Conn) -> None:
    gone, live = start_run(conn), start_run(conn)
    for run_id in (gone, live):
        [held] = run(conn, claims.run_claim("p", "a", "w", limit=1, lease=LEASE))
        assert run_id == held.run_id
        entries = [steps.Entry("s", "error"), steps.Entry("s", "result")]
        rows = [(run_id, held.fence, entry) for entry in entries]
        run(conn, steps.step_record("p", "w", rows))
        conn.execute(
            "insert into semel.event_link (project_id, run_id, event_id, relation, content,"
            " linked_at) values ('p', %s, gen_random_uuid(), 'resolved', '[]', now())",
            (run_id,),
        )
        if run_id == gone:
            run(conn, runs.run_complete("p", "w", [(run_id, held.fence, "1")]))
    later = clock(conn) + 40 * DAY

    assert 0 == run(conn, upkeep.leftovers_drop("p", 7 * DAY, 30 * DAY, now=later))
    run(conn, upkeep.partitions_drop(30 * DAY, 7 * DAY, now=later))
    assert 3 == run(conn, upkeep.leftovers_drop("p", 7 * DAY, 30 * DAY, now=later))
    for table in ("step", "event_link"):
        left = conn.execute(f"select distinct run_id from semel.{table}").fetchall()
        assert [(live,)] == left


KEPT = ("step", "wait", "signal", "approval", "approval_token", "approval_vote")


def kept(conn: Conn) -> dict[str, int]:
    return {table: int(one(conn, f"select count(*) from semel.{table}")) for table in KEPT}


def test_what_a_run_waited_for_goes_with_it_and_not_before(conn: Conn) -> None:
    def a_life() -> Any:
        held = durable.begin(conn)
        durable.record(conn, held, durable.result("s"))
        durable.say(conn, held.run_id, "unheard")
        question = durable.asking(need=2)
        durable.park(conn, held, question)
        link = durable.mint(conn, durable.asked(question))
        assert "voted" == durable.decide(conn, link).outcome
        return held

    gone, live = a_life(), a_life()
    durable.cancel(conn, gone.run_id)
    later = clock(conn) + 40 * DAY
    conn.execute(  # what only a fault would leave behind
        "insert into semel.wait (project_id, run_id, step_key, kind, due_at, created_at)"
        " values ('p', %s, 's', 'sleep', now(), now())",
        (gone.run_id,),
    )
    assert dict.fromkeys(KEPT, 2) == kept(conn)

    assert 0 == run(conn, upkeep.leftovers_drop("p", 7 * DAY, 30 * DAY, now=later))
    conn.execute("delete from semel.run_history")
    assert 0 == run(conn, upkeep.leftovers_drop("q", 7 * DAY, 30 * DAY, now=later))
    assert 0 == run(conn, upkeep.leftovers_drop("p", 7 * DAY, 41 * DAY, now=later))
    assert len(KEPT) == run(conn, upkeep.leftovers_drop("p", 7 * DAY, 30 * DAY, now=later))
    assert dict.fromkeys(KEPT, 1) == kept(conn)
    assert [(live.run_id,)] == conn.execute("select run_id from semel.approval").fetchall()


def test_the_journal_of_a_run_stays_as_long_as_its_compensation_needs_it(conn: Conn) -> None:
    held = durable.begin(conn)
    durable.record(conn, held, durable.intent("s"))
    durable.fail(conn, held)
    conn.execute("delete from semel.run_history where run_id = %s", (held.run_id,))
    later = clock(conn) + 40 * DAY

    assert 0 == run(conn, upkeep.leftovers_drop("p", 7 * DAY, 30 * DAY, now=later))
    durable.fail(conn, durable.claim(conn))
    assert 0 == run(conn, upkeep.leftovers_drop("p", 7 * DAY, 30 * DAY, now=later))
    conn.execute("delete from semel.run_history")
    assert 1 == run(conn, upkeep.leftovers_drop("p", 7 * DAY, 30 * DAY, now=later))


def test_leftovers_go_in_batches(conn: Conn) -> None:
    for _ in range(3):
        held = durable.begin(conn)
        durable.park(conn, held, durable.asking())
        durable.cancel(conn, held.run_id)
    conn.execute("delete from semel.run_history")
    later = clock(conn) + 40 * DAY

    dropped = [
        one(conn, "select semel.leftovers_drop('p', '7 days', '30 days', 2, %s)", later)
        for _ in range(3)
    ]
    assert [2, 1, 0] == dropped


def test_workers_are_forgotten_a_day_after_their_last_beat_unless_they_hold_runs(
    conn: Conn,
) -> None:
    start_run(conn)
    run(conn, claims.run_claim("p", "a", "holder", limit=1, lease=LEASE))
    run(conn, workers.worker_register("p", "idle", host="h", pid=1, slots=1, agents=[]))
    later = clock(conn) + 2 * DAY

    assert 1 == run(conn, upkeep.worker_expire("p", now=later))
    assert ["holder"] == [w for [w] in conn.execute("select worker_id from semel.workers")]


def test_upkeep_asks_only_for_what_a_project_needs(conn: Conn) -> None:
    now = clock(conn)
    assert [] == run(conn, upkeep.due_projects(now=now))
    start_run(conn, project="idle", key="k")
    start_run(conn, project="late", delay=timedelta(minutes=1))
    start_run(conn, project="over", deadline=timedelta(minutes=1))
    start_run(conn, project="busy")
    run(conn, claims.run_claim("busy", "a", "w", limit=1, lease=LEASE))

    def needs(after: float) -> dict[str, tuple[bool, bool, bool]]:
        found = run(conn, upkeep.due_projects(now=now + timedelta(seconds=after)))
        return {n.project: (n.held, n.due, n.purge) for n in found}

    assert {"idle": (False, False, True), "busy": (True, False, False)} == needs(1)
    assert {"late", "over", "idle", "busy"} == set(needs(90))
    assert [True, False] == [run(conn, upkeep.purge_take("idle", now=now)) for _ in range(2)]
    assert "idle" not in needs(1)
    assert run(conn, upkeep.purge_take("idle", now=now + timedelta(seconds=601)))
