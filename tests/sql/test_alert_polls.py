"""What Alertmanager's API has against what is known: only what differs for long enough is told."""

from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID, uuid4

from fix_world import NOW, Conn, one, second
from semel.core import alert_polls, inbox
from semel.core.alert_polls import Difference, Standing
from semel.db.execute import run
from semel.model import Alert

NS = 1_000_000_000
START = int(NOW.timestamp()) * NS
GONE = timedelta(seconds=60)


def tell(
    conn: Conn,
    at: float,
    status: Literal["firing", "resolved"] = "firing",
    starts: int = START,
    source: str = "am",
) -> None:
    alert = Alert(
        fingerprint="f",
        status=status,
        starts_ns=starts,
        ends_ns=0 if status == "firing" else starts + NS,
        alert={},
    )
    run(
        conn,
        inbox.alert_accept(
            "p", source, "a", {}, [alert], body=b"x", headers={}, now=second(at)
        ),
    )


def compare(
    conn: Conn,
    at: float,
    *there: str,
    asked: float | None = None,
    starts: int = START,
    news: bool = True,
    settle: float = 0,
    began: str = "monday",
    source: str = "am",
) -> list[Difference]:
    standings = [Standing(fingerprint=name, starts_ns=starts, news=news) for name in there]
    return run(
        conn,
        alert_polls.alert_poll_compare(
            "p",
            source,
            standings,
            asked=second(at if asked is None else asked),
            settle=timedelta(seconds=settle),
            gone_after=GONE,
            began=began,
            now=second(at),
        ),
    )


def take(conn: Conn, holder: UUID, seconds: float = 60) -> datetime | None:
    return run(conn, alert_polls.alert_poll_take("p", "am", holder, timedelta(seconds=seconds)))


def whats(found: list[Difference]) -> list[tuple[str, str]]:
    return [(one.what, one.fingerprint) for one in found]


def test_what_fires_there_and_is_unknown_here_is_found(conn: Conn) -> None:
    assert [("found", "f"), ("found", "g")] == whats(compare(conn, 10, "f", "g"))
    tell(conn, 11)
    assert [("found", "g")] == whats(compare(conn, 12, "f", "g"))


def test_what_alertmanager_would_not_notify_of_is_not_found(conn: Conn) -> None:
    assert [] == compare(conn, 10, "f", news=False)


def test_what_began_just_now_is_left_to_its_notification(conn: Conn) -> None:
    assert [] == compare(conn, 9, "f", settle=10)
    assert [("found", "f")] == whats(compare(conn, 10, "f", settle=10))


def test_a_new_episode_of_a_known_alert_is_found(conn: Conn) -> None:
    tell(conn, 1)
    assert [] == compare(conn, 200, "f", starts=START + 60 * NS)
    assert [("found", "f")] == whats(compare(conn, 200, "f", starts=START + 60 * NS + 1))
    tell(conn, 201, "resolved")
    assert [("found", "f")] == whats(compare(conn, 500, "f"))
    assert [] == compare(conn, 500, "f", starts=START - 61 * NS)


def test_what_was_told_of_after_the_api_was_asked_is_left_to_the_next_poll(conn: Conn) -> None:
    tell(conn, 1)
    tell(conn, 300, "resolved")

    assert [] == compare(conn, 301, "f", asked=299)
    assert [("found", "f")] == whats(compare(conn, 302, "f", asked=301))


def test_what_is_open_here_and_absent_there_for_long_is_gone(conn: Conn) -> None:
    tell(conn, 1)
    assert [] == compare(conn, 10)
    assert [] == compare(conn, 69)
    [gone] = compare(conn, 70)

    assert ("gone", "f", START) == (gone.what, gone.fingerprint, gone.starts_ns)
    assert gone.run_id == one(conn, "select run_id from semel.runs")
    assert gone.seen_ns == START + NS


def test_an_absence_ends_when_the_alert_is_there_or_is_told_of(conn: Conn) -> None:
    take(conn, uuid4())
    tell(conn, 1)
    compare(conn, 10)
    compare(conn, 60, "f")
    assert one(conn, "select missed_at from semel.alerts") is None
    assert [] == compare(conn, 71)
    tell(conn, 120)
    assert [] == compare(conn, 135)
    assert [] == compare(conn, 194)
    assert [("gone", "f")] == whats(compare(conn, 195))


def test_what_another_transaction_speaks_of_is_left_to_the_next_poll(
    conn: Conn, other: Conn
) -> None:
    tell(conn, 1)
    compare(conn, 10)
    tell(conn, 60)
    with other.transaction():
        other.execute("select from semel.fold for update")
        assert [] == compare(conn, 100)
    assert [] == compare(conn, 101)
    assert [("gone", "f")] == whats(compare(conn, 161))


def test_another_source_s_absences_are_its_own(conn: Conn) -> None:
    tell(conn, 1)
    tell(conn, 1, source="other")
    compare(conn, 10, source="other")
    compare(conn, 100)

    assert [] == compare(conn, 101)
    assert [("gone", "f")] == whats(compare(conn, 101, source="other"))


def test_what_is_silenced_there_is_not_gone(conn: Conn) -> None:
    tell(conn, 1)
    for at in (10, 100, 1000):
        assert [] == compare(conn, at, "f", news=False)


def test_after_a_restart_of_alertmanager_absence_is_counted_anew(conn: Conn) -> None:
    take(conn, uuid4())
    tell(conn, 1)
    compare(conn, 10)
    assert [] == compare(conn, 70, began="tuesday")
    assert [] == compare(conn, 129, began="tuesday")
    assert [("gone", "f")] == whats(compare(conn, 130, began="tuesday"))


def test_what_is_there_does_not_go_stale(conn: Conn) -> None:
    tell(conn, 1)
    compare(conn, 3000, "f")
    assert second(1) == one(conn, "select seen_at from semel.alerts")
    compare(conn, 3601, "f")
    assert second(3601) == one(conn, "select seen_at from semel.alerts")


def test_one_process_polls_a_source_until_its_lease_ends_or_it_leaves(conn: Conn) -> None:
    first, other = uuid4(), uuid4()

    assert take(conn, first) is not None
    assert take(conn, other) is None
    assert take(conn, first) is not None
    run(conn, alert_polls.alert_poll_leave("p", "am", other))
    assert take(conn, other) is None
    run(conn, alert_polls.alert_poll_leave("p", "am", first))
    assert take(conn, other, seconds=-1) is not None
    assert take(conn, first) is not None


def test_a_poll_says_what_it_came_to_while_it_is_its_holders(conn: Conn) -> None:
    first, other = uuid4(), uuid4()
    take(conn, first)

    def report(holder: UUID, fault: str | None, **more: Any) -> alert_polls.Poll:
        run(conn, alert_polls.alert_poll_report("p", "am", holder, fault, **more))
        [poll] = run(conn, alert_polls.list_polls())
        return poll

    assert report(first, "no route").fault == "no route"
    assert report(other, None, firing=9).silent is None
    poll = report(first, None, firing=3, found=2, ended=1)
    assert (poll.fault, poll.firing, poll.found, poll.ended) == (None, 3, 2, 1)
    assert poll.silent is not None
    poll = report(first, "gone away", found=1)
    assert (poll.fault, poll.firing, poll.found) == ("gone away", 3, 3)
