"""A bot is polled by one, and what came is committed with how far it has come."""

import threading
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from fix_world import NOW, Conn, one, second, until_blocked
from semel.core import polls
from semel.core.inbox import event_accept
from semel.core.polls import Committed, Kept, Queue, Taken
from semel.db.execute import run
from semel.db.pool import connect
from semel.errors import BadRequest
from semel.model import Offer

BOT = "1@https://api.telegram.org"
DAY = 86_400.0


def queue(holder: UUID | None = None, **more: Any) -> Queue:
    told = {"project": "p", "bot": BOT, "source": "bot", "place": "here", **more}
    return Queue(holder=holder or uuid4(), **told)


def take(conn: Conn, mine: Queue, at: float = 0) -> Taken:
    taken = run(conn, polls.poll_take(mine, now=second(at)))
    assert taken is not None
    return taken


def keep(conn: Conn, mine: Queue, fence: int, at: float = 0, **more: Any) -> Kept | None:
    return run(conn, polls.poll_keep(mine, fence, now=second(at), **more))


def offer(name: int) -> Offer:
    return Offer(
        source="bot", channel="telegram-poll", id=str(name), agent="a", input={"n": name}
    )


def commit(
    conn: Conn, mine: Queue, fence: int, *ids: int, seen: int | None, at: float = 0, **more: Any
) -> Committed:
    told: dict[str, Any] = {"ids": ids, "next_id": max(ids) + 1, "seen": seen, **more}
    return run(
        conn,
        polls.poll_commit(mine, fence, [offer(n) for n in told["ids"]], now=second(at), **told),
    )


def row(conn: Conn, column: str) -> Any:
    return conn.execute(f"select {column} from semel.polls").fetchall()[0][0]


# -- the lease ------------------------------------------------------------------------------


def test_of_two_processes_one_takes_the_bot(conn: Conn) -> None:
    mine, yours = queue(), queue(place="there", source="other")
    assert take(conn, mine).outcome == "taken"
    held = take(conn, yours, 10)
    assert (held.outcome, held.source, held.place) == ("held", "bot", "here")
    assert held.remaining == timedelta(seconds=20)


def test_a_lease_that_has_ended_is_anybodys_and_its_fence_is_larger(conn: Conn) -> None:
    mine, yours = queue(), queue(source="other")
    first = take(conn, mine)
    then = take(conn, yours, 30)
    assert (then.outcome, then.fence) == ("taken", first.fence + 1)
    assert keep(conn, mine, first.fence, 31) is None
    assert commit(conn, mine, first.fence, 5, seen=None, at=31).outcome == "lost"
    assert run(conn, polls.poll_leave(mine, first.fence, "stopped", now=second(31))) is False
    assert take(conn, mine, 59).outcome == "held"
    assert one(conn, "select count(*) from semel.events") == 0
    assert row(conn, "source") == "other"


def test_whoever_has_it_takes_it_again_under_another_fence(conn: Conn) -> None:
    mine = queue()
    first = take(conn, mine)
    again = take(conn, mine, 1)
    assert (again.outcome, again.fence) == ("taken", first.fence + 1)
    assert keep(conn, mine, first.fence, 2) is None
    assert commit(conn, mine, first.fence, 5, seen=None, at=2).outcome == "lost"
    assert run(conn, polls.poll_leave(mine, first.fence, "stopped", now=second(2))) is False
    assert keep(conn, mine, again.fence, 2) is not None


def test_another_holder_with_the_right_fence_writes_nothing(conn: Conn) -> None:
    mine, yours = queue(), queue()
    fence = take(conn, mine).fence
    assert keep(conn, yours, fence) is None
    assert commit(conn, yours, fence, 5, seen=None).outcome == "lost"
    assert run(conn, polls.poll_leave(yours, fence, "stopped", now=NOW)) is False


def test_a_lease_is_kept_and_given_back(conn: Conn) -> None:
    mine, yours = queue(), queue()
    fence = take(conn, mine).fence
    assert keep(conn, mine, fence, 20)
    assert take(conn, yours, 49).outcome == "held"
    assert run(conn, polls.poll_leave(mine, fence, "stopped", now=second(49)))
    assert (row(conn, "state"), row(conn, "live")) == ("stopped", False)
    assert take(conn, yours, 49).outcome == "taken"


def test_a_commit_keeps_the_lease(conn: Conn) -> None:
    mine, yours = queue(), queue()
    fence = take(conn, mine).fence
    commit(conn, mine, fence, 5, seen=None, at=29)
    assert take(conn, yours, 58).outcome == "held"
    assert take(conn, yours, 59).outcome == "taken"


def test_whoever_writes_is_not_waited_for(conn: Conn, dsn: str) -> None:
    mine, yours = queue(), queue()
    take(conn, mine)
    with connect(dsn) as other, other.transaction():
        other.execute("select from semel.poll for update")
        held = take(conn, yours, 60)
        assert (held.outcome, held.remaining) == ("held", timedelta(seconds=1))


def test_bots_and_projects_have_leases_of_their_own(conn: Conn) -> None:
    assert take(conn, queue()).outcome == "taken"
    assert take(conn, queue(bot="2@https://api.telegram.org")).outcome == "taken"
    assert take(conn, queue(project="q")).outcome == "taken"
    found = run(conn, polls.polls_of(BOT))
    assert [(poll.project, poll.source) for poll in found] == [("p", "bot"), ("q", "bot")]


def test_a_refusal_of_the_server_keeps_everybody_away_for_as_long_as_it_said(
    conn: Conn,
) -> None:
    mine, yours = queue(), queue()
    fence = take(conn, mine).fence
    assert keep(conn, mine, fence, answered=True)
    for failures in (1, 2):
        at = 40 * failures
        wait = timedelta(seconds=40)
        leave = polls.poll_leave(mine, fence, "throttled", said="no", wait=wait, now=second(at))
        assert run(conn, leave)
        assert row(conn, "since") == second(40)
        for who in (mine, yours):
            waits = take(conn, who, at + 39)
            assert (waits.outcome, waits.remaining) == ("waits", timedelta(seconds=1))
            assert (waits.state, waits.said, waits.failures) == ("throttled", "no", failures)
        taken = take(conn, mine, at + 40)
        assert (taken.outcome, taken.failures) == ("taken", failures)
        assert (row(conn, "state"), row(conn, "since")) == ("throttled", second(40))
        fence = taken.fence
    assert keep(conn, mine, fence, 121, answered=True)
    state = (row(conn, "state"), row(conn, "said"), row(conn, "failures"), row(conn, "since"))
    assert state == ("polling", "", 0, second(121))


def test_a_stop_is_no_failure(conn: Conn) -> None:
    mine = queue()
    fence = take(conn, mine).fence
    run(conn, polls.poll_leave(mine, fence, "failing", said="x", now=NOW))
    fence = take(conn, mine).fence
    run(conn, polls.poll_leave(mine, fence, "stopped", now=NOW))
    assert row(conn, "failures") == 1


# -- batches --------------------------------------------------------------------------------


def test_events_and_the_next_id_are_committed_together(conn: Conn) -> None:
    mine = queue()
    fence = take(conn, mine).fence
    done = commit(conn, mine, fence, 5, 6, seen=None)
    assert done.outcome == "committed"
    assert [each.verdict for each in done.accepted] == ["new", "new"]
    assert one(conn, "select count(*) from semel.runs") == 2
    assert (row(conn, "next_id"), row(conn, "updates"), row(conn, "state")) == (7, 2, "polling")
    again = take(conn, mine, 1)
    assert (again.next_id, again.ask_id) == (7, 7)
    assert keep(conn, mine, again.fence, 1) == Kept(next_id=7, ask_id=7)


def test_what_cannot_be_kept_moves_nothing(conn: Conn) -> None:
    mine = queue()
    fence = take(conn, mine).fence
    with pytest.raises(BadRequest):
        run(
            conn,
            polls.poll_commit(
                mine,
                fence,
                [Offer(source="bot", channel="telegram-poll", id="5", agent="a", priority=77)],
                ids=[5],
                next_id=6,
                seen=None,
            ),
        )
    assert row(conn, "next_id") is None


def test_a_commit_that_was_not_answered_is_found_out(conn: Conn) -> None:
    mine = queue()
    fence = take(conn, mine).fence
    commit(conn, mine, fence, 5, seen=None)
    assert commit(conn, mine, fence, 5, 6, seen=None).outcome == "stale"
    assert (row(conn, "next_id"), row(conn, "updates")) == (6, 1)
    assert one(conn, "select sum(hits) from semel.events") == 1
    assert commit(conn, mine, fence, 6, seen=6).outcome == "committed"


def test_a_batch_that_came_again_is_known_by_its_ids(conn: Conn) -> None:
    mine = queue()
    fence = take(conn, mine).fence
    commit(conn, mine, fence, 5, 6, seen=None)
    again = commit(conn, mine, fence, 5, 6, 7, seen=7)
    assert [each.verdict for each in again.accepted] == ["duplicate", "duplicate", "new"]


def test_what_a_webhook_took_before_is_a_duplicate(conn: Conn) -> None:
    posted = Offer(source="bot", channel="telegram", id="5", agent="a", input={"n": 5})
    [first] = run(conn, event_accept("p", [posted]))
    mine = queue()
    fence = take(conn, mine).fence
    [again] = commit(conn, mine, fence, 5, seen=None).accepted
    assert (again.verdict, again.run_id) == ("duplicate", first.run_id)


def test_a_batch_waits_for_no_one_but_its_twin(conn: Conn, other: Conn) -> None:
    """Two with one fence, as no two should: one after the other."""
    mine = queue()
    fence = take(conn, mine).fence
    pid = other.info.backend_pid
    with conn.transaction():
        commit(conn, mine, fence, 5, seen=None)
        found: list[Committed] = []
        thread = threading.Thread(
            target=lambda: found.append(commit(other, mine, fence, 5, seen=None))
        )
        thread.start()
        with connect(conn.info.dsn) as watching:
            until_blocked(watching, pid)
    thread.join()
    assert found[0].outcome == "stale"


@pytest.mark.parametrize(
    ("ids", "next_id"),
    [
        ([], 6),
        ([5], 5),
        ([5, 9], 9),
        ([-1], 6),
        ([5, None], 6),
        ([5], None),
        (list(range(257)), 300),
    ],
)
def test_a_next_id_that_is_not_above_those_that_came_is_refused(
    conn: Conn, ids: list[Any], next_id: Any
) -> None:
    mine = queue()
    fence = take(conn, mine).fence
    with pytest.raises(BadRequest):
        run(conn, polls.poll_commit(mine, fence, [], ids=ids, next_id=next_id, seen=None))


def test_256_are_committed_at_once(conn: Conn) -> None:
    mine = queue()
    fence = take(conn, mine).fence
    done = commit(conn, mine, fence, *range(256), seen=None)
    assert len(done.accepted) == 256
    assert row(conn, "next_id") == 256


# -- gaps -----------------------------------------------------------------------------------


def gaps(conn: Conn) -> tuple[Any, ...]:
    found: tuple[Any, ...] = conn.execute(
        "select missing, missing_from, missing_upto, restarts from semel.polls"
    ).fetchall()[0]
    return found


def test_ids_that_never_came_are_counted(conn: Conn) -> None:
    mine = queue()
    fence = take(conn, mine).fence
    commit(conn, mine, fence, 5, 6, seen=None)
    assert gaps(conn) == (0, None, None, 0)
    done = commit(conn, mine, fence, 9, 11, seen=7, at=5)
    assert (done.missing, done.restarts) == (3, 0)
    assert gaps(conn) == (3, 7, 10, 0)
    assert row(conn, "missing_at") == second(5)
    commit(conn, mine, fence, 12, seen=12, at=6)
    assert gaps(conn) == (3, 7, 10, 0)
    assert row(conn, "missing_at") == second(5)
    assert take(conn, mine, 7).missing == 3


def test_a_hole_in_the_first_batch_is_one(conn: Conn) -> None:
    mine = queue()
    fence = take(conn, mine).fence
    assert commit(conn, mine, fence, 5, 7, seen=None).missing == 1


def test_an_id_that_came_in_another_way_is_not_missing(conn: Conn) -> None:
    mine = queue()
    fence = take(conn, mine).fence
    commit(conn, mine, fence, 5, seen=None)
    run(conn, event_accept("p", [offer(6)]))
    assert commit(conn, mine, fence, 8, seen=6).missing == 1
    assert gaps(conn) == (1, 7, 7, 0)


@pytest.mark.parametrize(("low", "missing", "anew"), [(100_006, 100_000, 0), (100_007, 0, 1)])
def test_more_than_a_server_keeps_is_no_gap(
    conn: Conn, low: int, missing: int, anew: int
) -> None:
    mine = queue()
    fence = take(conn, mine).fence
    commit(conn, mine, fence, 5, seen=None)
    done = commit(conn, mine, fence, low, seen=6)
    assert (done.missing, done.restarts) == (missing, anew)


def test_ids_that_go_down_are_taken_and_asked_for_next(conn: Conn) -> None:
    mine = queue()
    fence = take(conn, mine).fence
    commit(conn, mine, fence, 500, seen=None)
    done = commit(conn, mine, fence, 40, 42, seen=501)
    assert (done.outcome, done.missing, done.restarts) == ("committed", 0, 1)
    assert row(conn, "next_id") == 43


def test_after_six_quiet_days_it_begins_with_the_oldest(conn: Conn) -> None:
    mine = queue()
    fence = take(conn, mine).fence
    commit(conn, mine, fence, 5, seen=None)
    assert keep(conn, mine, fence, 6 * DAY - 1) == Kept(next_id=6, ask_id=6)
    assert keep(conn, mine, fence, 6 * DAY) == Kept(next_id=6, ask_id=None)
    taken = take(conn, mine, 6 * DAY)
    assert (taken.next_id, taken.ask_id) == (6, None)
    done = commit(conn, mine, taken.fence, 900, seen=6, at=6 * DAY)
    assert (done.missing, done.restarts) == (0, 1)
    assert take(conn, mine, 6 * DAY + 1).restarts == 1


def test_six_quiet_days_and_the_next_id_are_no_new_beginning(conn: Conn) -> None:
    mine = queue()
    fence = take(conn, mine).fence
    commit(conn, mine, fence, 5, seen=None)
    fence = take(conn, mine, 7 * DAY).fence
    assert commit(conn, mine, fence, 6, seen=6, at=7 * DAY).restarts == 0
