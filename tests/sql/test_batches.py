"""A batch is counted by an index, complete when its last run has ended, and told of once."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

import semel
from fix_world import LEASE, Conn, one, row, start_run, status
from semel.core import batches, bulk, claims, runs, transitions, upkeep
from semel.db.execute import run
from semel.errors import BadRequest

DAY = timedelta(days=1)


def begin(conn: Conn, *values: Any, batch: str = "b", **more: Any) -> list[Any]:
    """Start a batch; answers its runs, in the order of their inputs."""
    semel.start_many(conn, project="p", agent="a", batch=batch, inputs=values, **more)
    found = conn.execute(
        "select run_id from semel.runs where batch = %s order by run_id", (batch,)
    )
    return [run_id for [run_id] in found]


def counted(conn: Conn, batch: str = "b") -> tuple[int, ...]:
    """Total, pending, running, waiting, done, failed, cancelled."""
    found: Any = run(conn, batches.show_batch("p", batch))
    names = ("total", "pending", "running", "waiting", "done", "failed", "cancelled")
    return tuple(found[name] for name in names)


def settled(conn: Conn) -> list[batches.Settled]:
    return run(conn, batches.batch_settle("p"))


def is_due(conn: Conn) -> bool:
    return any(need.due for need in run(conn, upkeep.due_projects()))


def end(conn: Conn, limit: int = 9) -> None:
    taken = run(conn, claims.run_claim("p", "a", "w", limit=limit, lease=LEASE))
    run(conn, runs.run_complete("p", "w", [(c.run_id, c.fence, "1") for c in taken]))


def test_progress_is_counted_while_its_runs_live(conn: Conn) -> None:
    begin(conn, 1, 2, 3, 4)
    begin(conn, 9, batch="another")
    assert (4, 4, 0, 0, 0, 0, 0) == counted(conn)

    held = run(conn, claims.run_claim("p", "a", "w", limit=3, lease=LEASE))
    assert ["1", "2", "3"] == [claim.text for claim in held]
    run(conn, runs.run_complete("p", "w", [(held[0].run_id, 1, "1")]))
    run(conn, runs.run_fail(held[1], "E-RUN-006", "boom", retryable=False))
    run(conn, transitions.run_cancel("p", held[2].run_id))

    assert (4, 1, 0, 0, 1, 1, 1) == counted(conn)
    assert not is_due(conn)
    assert [] == settled(conn)


def test_the_last_end_completes_it_and_its_callback_is_one_run(conn: Conn) -> None:
    ids = begin(conn, 1, 2, 3, on_complete="told")
    run(conn, transitions.run_cancel("p", ids[1]))
    [failing] = run(conn, claims.run_claim("p", "a", "w", limit=1, lease=LEASE))
    run(conn, runs.run_fail(failing, "E-RUN-006", "boom", retryable=False))
    end(conn)
    assert is_due(conn)

    [told] = settled(conn)

    assert ("b", 1, 1, 1, "told") == (
        told.batch,
        told.done,
        told.failed,
        told.cancelled,
        told.on_complete,
    )
    callback = row(conn, told.callback)
    assert ("told", "PENDING", None) == (
        callback["agent"],
        callback["status"],
        callback["batch"],
    )
    said = callback["input"]
    assert {"batch": "b", "total": 3, "done": 1, "failed": 1, "cancelled": 1} == {
        name: said[name] for name in ("batch", "total", "done", "failed", "cancelled")
    }
    assert not is_due(conn)
    assert [] == settled(conn)
    assert (3, 0, 0, 0, 1, 1, 1) == counted(conn)


def test_a_retry_opens_it_again_and_nobody_is_told_twice(conn: Conn) -> None:
    ids = begin(conn, 1, 2, on_complete="told")
    run(conn, transitions.run_cancel("p", ids[0]))
    end(conn)
    [first] = settled(conn)

    run(conn, transitions.run_retry("p", ids[0]))
    assert (2, 1, 0, 0, 1, 0, 0) == counted(conn)
    assert "b" == row(conn, ids[0])["batch"]
    end(conn)
    [second] = settled(conn)

    assert (2, None) == (second.done, second.callback)
    assert first.callback == one(conn, "select callback_id from semel.batches")
    assert 1 == one(conn, "select count(*) from semel.runs where agent = 'told'")


def test_a_batch_of_nothing_is_complete_at_once(conn: Conn) -> None:
    begin(conn, on_complete="told")
    assert [("b", 0)] == [(each.batch, each.done) for each in settled(conn)]


def test_one_that_is_still_filled_is_not_complete(conn: Conn) -> None:
    run(conn, batches.batch_open("p", "b", "a"))
    assert "won" == run(conn, batches.batch_add("p", "b", "[1]")).outcome
    end(conn)
    assert not is_due(conn)
    assert [] == settled(conn)

    assert "open" == run(conn, batches.batch_open("p", "b", "a")).outcome
    assert ("won", 1, 0) == run(conn, batches.batch_close("p", "b", b"x"))
    assert ("already", 1, 0) == run(conn, batches.batch_close("p", "b", b"y"))
    assert "refused" == run(conn, batches.batch_add("p", "b", "[2]")).outcome
    assert "unknown" == run(conn, batches.batch_close("p", "c", b"x"))[0]
    found = run(conn, batches.batch_open("p", "b", "a"))
    assert ("exists", b"x", 1) == (found.outcome, found.digest, found.total)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select semel.batch_open('p', '', 'a')", "a batch without a name"),
        ("select semel.batch_open('p', 'b', 'a b')", "no agent"),
        ("select semel.batch_open('p', 'b', 'a', 'a b')", "no agent"),
        ("select semel.batch_open('p', 'b', 'a', 'semel.tool')", "begins with semel."),
        ("select semel.batch_add('p', 'b', '[1]', p_priority => 10)", "a priority"),
        ("select semel.batch_add('p', 'b', '[1]', array['x', 'y'])", "number of keys"),
        ("select semel.batch_close('p', 'b', null)", "without a digest"),
    ],
)
def test_what_is_no_batch_is_refused(conn: Conn, sql: Any, said: str) -> None:
    with pytest.raises(psycopg.Error, match=said):
        conn.execute(sql)


def test_delays_deadlines_and_attempts_are_those_of_start(conn: Conn) -> None:
    [run_id] = begin(conn, 1, delay=DAY, deadline=2 * DAY, max_attempts=7)
    found = row(conn, run_id)
    assert (None, 7) == (found["ready_at"], found["max_attempts"])
    assert (DAY, 2 * DAY) == (
        found["due_at"] - found["created_at"],
        found["deadline_at"] - found["created_at"],
    )


def test_a_key_whose_memory_has_ended_starts_anew_and_belongs_to_the_batch(conn: Conn) -> None:
    semel.start(conn, project="p", agent="a", input=1, key="k")
    conn.execute("update semel.dedupe set last_seen_at = now() - interval '8 days'")

    [run_id] = begin(conn, 1, keys=["k"])

    assert "b" == row(conn, run_id)["batch"]
    assert (1, 0) == tuple(
        conn.execute("select total, duplicates from semel.batches").fetchall()[0]
    )


def test_it_is_forgotten_with_its_runs_and_its_name_is_free(conn: Conn) -> None:
    begin(conn, 1)
    begin(conn, 2, batch="alive")
    run(conn, transitions.run_cancel("p", begin(conn, 3, batch="young")[0]))
    end(conn, limit=1)
    settled(conn)
    conn.execute(
        "update semel.batch set created_at = now() - interval '9 days' where batch <> 'young'"
    )
    conn.execute(
        "update semel.batch set completed_at = now() - interval '8 days' where batch = 'b'"
    )

    assert 0 == run(conn, batches.batch_expire("p", 9 * DAY))
    assert 1 == run(conn, batches.batch_expire("p", 7 * DAY))
    assert {"alive", "young"} == {
        name for [name] in conn.execute("select batch from semel.batches").fetchall()
    }


def test_batches_are_listed_newest_first_a_page_at_a_time(conn: Conn) -> None:
    for name in "abc":
        begin(conn, 1, batch=name)
    listed = run(conn, batches.list_batches("p", limit=2))
    assert ["c", "b"] == [each["batch"] for each in listed]
    after = run(conn, batches.list_batches("p", before="b"))
    assert ["a"] == [each["batch"] for each in after]


def test_those_that_live_do_not_keep_the_others_from_their_turn(conn: Conn) -> None:
    begin(conn, 1, batch="a")
    run(conn, transitions.run_cancel("p", begin(conn, 2, batch="z")[0]))
    assert "z" == one(conn, "select batch from semel.batch_settle('p', 1)")


# -- many at once ----------------------------------------------------------------------------


def test_a_page_of_runs_is_cancelled_and_retried_each_as_it_would_be_alone(conn: Conn) -> None:
    ids = begin(conn, 1, 2, 3)
    end(conn, limit=1)
    strange = start_run(conn, project="q")

    moved = run(conn, bulk.run_cancel_page("p", [*ids, strange, ids[1]], reason="why"))

    assert ["refused", "won", "won", "unknown"] == [
        each.outcome for each in sorted(moved, key=lambda m: [*ids, strange].index(m.run_id))
    ]
    assert "why" == row(conn, ids[1])["failure_reason"]
    again = run(conn, bulk.run_retry_page("p", ids))
    assert ["refused", "won", "won"] == [each.outcome for each in again]
    assert ["COMPLETED", "PENDING", "PENDING"] == [status(conn, each) for each in ids]


def test_a_filter_that_says_nothing_is_refused() -> None:
    with pytest.raises(BadRequest, match="which runs"):
        bulk.Filter(statuses=bulk.LIVE)


# -- the priority of one that waits ----------------------------------------------------------


def test_a_run_that_waits_gets_another_priority_and_is_found_from_any_mark(conn: Conn) -> None:
    first, second = start_run(conn, priority=9), start_run(conn, priority=1)
    [held] = run(conn, claims.run_claim("p", "a", "w", limit=1, lease=LEASE))
    assert first == held.run_id
    conn.execute(
        "update semel.run set ready_at = now() - interval '1 hour' where run_id = %s", (second,)
    )

    assert ("won", "PENDING") == run(conn, transitions.run_prioritise("p", second, priority=9))
    assert ("already", "PENDING") == run(
        conn, transitions.run_prioritise("p", second, priority=9)
    )

    assert 9 == row(conn, second)["priority"]
    mark = one(conn, "select clock_timestamp()") + timedelta(milliseconds=50)
    [found] = run(
        conn,
        claims.run_claim("p", "a", "w", limit=1, lease=LEASE, lanes=[1], marks=[mark]),
    )
    assert second == found.run_id
    assert ("refused", "RUNNING") == run(
        conn, transitions.run_prioritise("p", second, priority=0)
    )
    run(conn, transitions.run_cancel("p", second))
    assert ("refused", "CANCELLED") == run(
        conn, transitions.run_prioritise("p", second, priority=0)
    )
    assert ("unknown", None) == run(conn, transitions.run_prioritise("q", second, priority=0))


def test_a_delayed_run_stays_delayed_and_a_suspect_stays_apart(conn: Conn) -> None:
    delayed, suspect = start_run(conn, delay=DAY), start_run(conn)
    conn.execute("update semel.run set lane = 105 where run_id = %s", (suspect,))
    for each in (delayed, suspect):
        run(conn, transitions.run_prioritise("p", each, priority=8))
    assert [(2, None), (102, 1)] == conn.execute(
        "select lane, case when ready_at is not null then 1 end from semel.run order by lane"
    ).fetchall()
    with pytest.raises(BadRequest):
        run(conn, transitions.run_prioritise("p", delayed, priority=10))
