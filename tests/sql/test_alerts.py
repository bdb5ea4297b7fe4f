"""The fold's grace: what it suppresses is kept, peers never double, stale episodes end."""

from datetime import datetime, timedelta
from typing import Any, Literal

import pytest

from fix_world import NOW, Conn, one, second
from semel.core import inbox, upkeep
from semel.db.execute import run
from semel.model import Accepted, Alert

GRACE = timedelta(seconds=120)
SECOND_NS = 1_000_000_000
START = 1_000_000 * SECOND_NS
END = START + 600 * SECOND_NS
NEVER: int = 0


def tell(
    conn: Conn,
    status: Literal["firing", "resolved"],
    at: datetime,
    *,
    starts: int = START,
    ends: int = END,
    run_on: str = "firing",
    body: str | None = None,
) -> Accepted:
    alert = Alert(
        fingerprint="f",
        status=status,
        starts_ns=starts,
        ends_ns=NEVER if status == "firing" else ends,
        alert={"status": status},
    )
    call = inbox.alert_accept(
        "p",
        "am",
        "triage",
        {"receiver": "r"},
        [alert],
        body=(body or f"{status} {at}").encode(),
        headers={},
        grace=GRACE,
        run_on=run_on,
        now=at,
    )
    [accepted] = run(conn, call)
    return accepted


def runs(conn: Conn) -> int:
    return int(one(conn, "select count(*) from semel.runs"))


def events(conn: Conn) -> int:
    return int(one(conn, "select count(*) from semel.events"))


@pytest.fixture
def ended(conn: Conn) -> Accepted:
    """One episode, resolved at NOW; answers what made its run."""
    fired = tell(conn, "firing", second(-600))
    resolved = tell(conn, "resolved", NOW)
    assert ("new", "new") == (fired.verdict, resolved.verdict)
    assert (resolved.run_id, runs(conn), events(conn)) == (fired.run_id, 1, 2)
    return fired


def test_a_firing_within_the_grace_is_late_and_makes_nothing(
    conn: Conn, ended: Accepted
) -> None:
    late = tell(conn, "firing", second(10))

    assert (late.verdict, late.run_id) == ("late", ended.run_id)
    assert (runs(conn), events(conn)) == (1, 2)
    assert "late" == one(
        conn, "select verdict from semel.deliveries order by received_at desc limit 1"
    )


def test_a_late_firing_seen_again_after_the_grace_is_an_episode_with_its_own_event_and_run(
    conn: Conn, ended: Accepted
) -> None:
    tell(conn, "firing", second(10))
    again = tell(conn, "firing", second(119))
    seen = tell(conn, "firing", second(121))

    assert ("late", "new") == (again.verdict, seen.verdict)
    assert seen.run_id not in {None, ended.run_id}
    assert (runs(conn), events(conn)) == (2, 3)
    resolved = tell(conn, "resolved", second(300), ends=END + 300 * SECOND_NS)
    assert ("new", seen.run_id) == (resolved.verdict, resolved.run_id)


def test_a_late_firing_that_is_resolved_with_another_end_was_an_episode_and_makes_a_run(
    conn: Conn, ended: Accepted
) -> None:
    tell(conn, "firing", second(10))
    resolved = tell(conn, "resolved", second(60), ends=END + 30 * SECOND_NS)

    assert "new" == resolved.verdict
    assert "fired within the grace and is resolved" in resolved.reason
    assert resolved.run_id not in {None, ended.run_id}
    assert (runs(conn), events(conn)) == (2, 3)
    assert "duplicate" == tell(conn, "resolved", second(61), ends=END + 30 * SECOND_NS).verdict
    assert runs(conn) == 2


def test_a_firing_that_is_brought_again_from_before_the_end_is_no_other_episode(
    conn: Conn,
) -> None:
    """As a replay does, or a spool that is drained after its neighbour."""
    tell(conn, "firing", second(0))
    tell(conn, "resolved", second(60))

    again = tell(conn, "firing", second(0), body="replayed")
    moved = tell(conn, "resolved", second(80), ends=END + SECOND_NS)

    assert ("late", "duplicate", 1) == (again.verdict, moved.verdict, runs(conn))


@pytest.mark.parametrize("run_on", ["firing", "firing+resolved"])
@pytest.mark.parametrize("apart", [0, 2, -2], ids=lambda s: f"peers_{s}_s_apart")
def test_a_peers_late_copies_of_an_episode_never_double_it(
    conn: Conn, apart: int, run_on: str
) -> None:
    """Peer B is a round behind peer A, and stamps the episode a little apart."""
    other = START + apart * SECOND_NS
    tell(conn, "firing", second(-600), run_on=run_on)
    tell(conn, "firing", second(-590), starts=other, run_on=run_on)
    tell(conn, "resolved", NOW, run_on=run_on)
    before = (runs(conn), events(conn))

    told = [
        tell(conn, "firing", second(5), starts=other, run_on=run_on),
        tell(conn, "firing", second(30), starts=other, run_on=run_on),
        tell(conn, "resolved", second(35), starts=other, run_on=run_on),
        tell(conn, "resolved", second(40), run_on=run_on),
    ]

    assert ["late", "late", "duplicate", "duplicate"] == [one.verdict for one in told]
    assert (runs(conn), events(conn)) == before


def test_a_peer_that_saw_an_earlier_end_confirms_no_episode(
    conn: Conn, ended: Accepted
) -> None:
    tell(conn, "firing", second(5))

    assert "duplicate" == tell(conn, "resolved", second(6), ends=END - SECOND_NS).verdict
    assert runs(conn) == 1


def test_what_starts_after_the_stored_end_is_new_even_within_the_grace(
    conn: Conn, ended: Accepted
) -> None:
    fired = tell(conn, "firing", second(5), starts=END + SECOND_NS)

    assert "new" == fired.verdict
    assert runs(conn) == 2


def test_a_short_episode_right_after_a_short_one_is_new(conn: Conn) -> None:
    """Both begin within the minute in which peers may stamp one episode."""
    end = START + 10 * SECOND_NS
    tell(conn, "firing", second(-10))
    tell(conn, "resolved", NOW, ends=end)

    assert "new" == tell(conn, "firing", second(20), starts=end + SECOND_NS).verdict


def test_a_resolution_repeated_with_another_end_is_a_duplicate_unless_something_fired_late(
    conn: Conn, ended: Accepted
) -> None:
    repeated = tell(conn, "resolved", second(60), ends=END + 30 * SECOND_NS)

    assert "duplicate" == repeated.verdict
    assert runs(conn) == 1


def test_what_was_late_is_new_once_and_then_a_reminder(conn: Conn, ended: Accepted) -> None:
    told = [tell(conn, "firing", second(s)).verdict for s in (10, 121, 122, 4 * 3600)]

    assert ["late", "new", "reminder", "reminder"] == told


def test_a_stale_episode_is_closed_and_the_next_firing_is_new_at_once(conn: Conn) -> None:
    fired = tell(conn, "firing", NOW)
    later = NOW + timedelta(days=31)
    assert 1 == run(conn, upkeep.fold_stale("p", timedelta(days=30), now=later))
    assert 0 == run(conn, upkeep.fold_stale("p", timedelta(days=30), now=later))

    again = tell(conn, "firing", later + timedelta(seconds=1))

    assert "new" == again.verdict
    assert again.run_id != fired.run_id


def test_a_resolution_after_its_episode_went_stale_is_not_lost(conn: Conn) -> None:
    tell(conn, "firing", NOW)
    later = NOW + timedelta(days=31)
    run(conn, upkeep.fold_stale("p", timedelta(days=30), now=later))

    resolved = tell(conn, "resolved", later)

    assert "new" == resolved.verdict
    assert "duplicate" == tell(conn, "resolved", later, body="again").verdict


def test_grace_is_measured_from_the_resolution_not_from_the_late_firing(
    conn: Conn, ended: Accepted
) -> None:
    verdicts: list[Any] = [
        tell(conn, "firing", second(s)).verdict for s in (40, 80, 120, 120.001)
    ]

    assert ["late", "late", "late", "new"] == verdicts
