"""Notifications that arrive together share a transaction, and none pays for another."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fix_world import Conn, one
from semel.config import Source
from semel.db.pool import pool
from semel.edges.acceptor import Acceptor
from semel.edges.channel import Notification
from semel.errors import DatabaseUnreachable
from semel.model import Accepted, Alert

ALERTS = Source(name="alerts", channel="alertmanager", agent="triage")
OTHERS = Source(name="others", channel="alertmanager", agent="triage")
Tell = Callable[..., Coroutine[Any, Any, list[Accepted]]]


def told(
    acceptor: Acceptor, *names: str, source: Source = ALERTS, status: Any = "firing"
) -> Coroutine[Any, Any, list[Accepted]]:
    """A notification of alerts of these *names*."""
    alerts = [
        Alert(
            fingerprint=name,
            status=status,
            starts_ns=1,
            ends_ns=0 if status == "firing" else 2,
            alert={"name": name},
        )
        for name in names
    ]
    body = f"{status} {names}".encode()
    notification = Notification(envelope={"version": "4"}, alerts=alerts)
    return acceptor.accept_alerts(source, notification, body=body, headers={})


def together(dsn: str, tell: Callable[[Acceptor], list[Any]]) -> list[Any]:
    """What became of all that *tell* tells at once."""

    async def go() -> list[Any]:
        async with pool(dsn, size=4) as lent:
            answers: list[Any] = await asyncio.gather(
                *tell(Acceptor(lent)), return_exceptions=True
            )
            return answers

    return asyncio.run(go())


def verdicts(answers: list[Any]) -> list[str]:
    return [",".join(each.verdict for each in answer) for answer in answers]


def test_notifications_of_other_alerts_share_two_transactions(dsn: str, conn: Conn) -> None:
    answers = together(dsn, lambda a: [told(a, f"f{n}", f"g{n}") for n in range(9)])

    assert verdicts(answers) == ["new"] * 9
    assert one(conn, "select count(*) from semel.runs") == 9
    assert one(conn, "select count(distinct xmin::text) from semel.delivery") == 2


def test_one_alert_told_twice_at_once_is_judged_in_successive_rounds(
    dsn: str, conn: Conn
) -> None:
    answers = together(
        dsn,
        lambda a: [
            told(a, "f"),
            told(a, "f", "g"),
            told(a, "f", "g", status="resolved"),
            told(a, "h"),
            told(a, "f", source=OTHERS),  # another source's alert of that name
        ],
    )

    assert verdicts(answers) == ["new", "new", "new", "new", "new"]
    (first,), (grown,), (ended,), *_ = answers
    assert len({first.run_id, grown.run_id, ended.run_id}) == 2
    assert "alert g fires" in grown.reason
    assert ended.reason == "alert f is resolved, alert g is resolved"
    assert one(conn, "select count(*) from semel.runs") == 4
    assert one(conn, "select count(distinct xmin::text) from semel.delivery") == 3


def test_the_same_notification_at_once_from_all_peers_is_new_once(dsn: str, conn: Conn) -> None:
    answers = together(dsn, lambda a: [told(a, "f") for _ in range(5)])

    assert verdicts(answers) == ["new", *["duplicate"] * 4]
    assert len({answer[0].run_id for answer in answers}) == 1


def test_one_that_cannot_be_kept_fails_none_of_its_neighbours(dsn: str, conn: Conn) -> None:
    conn.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin"
        " if new.fingerprint = 'bad' then raise 'no' using errcode = '53100'; end if;"
        " return new; end $$"
    )
    conn.execute(
        "create trigger t before insert on semel.fold for each row execute function refuse()"
    )

    answers = together(dsn, lambda a: [told(a, name) for name in ("f", "bad", "g")])

    assert isinstance(answers[1], DatabaseUnreachable)
    assert verdicts([answers[0], answers[2]]) == ["new", "new"]
    assert one(conn, "select count(*) from semel.runs") == 2


def test_one_whose_alert_another_holds_fails_none_of_its_neighbours(
    dsn: str, conn: Conn, other: Conn
) -> None:
    together(dsn, lambda a: [told(a, "held")])
    with other.transaction():
        other.execute("select from semel.fold for update")
        answers = together(dsn, lambda a: [told(a, name) for name in ("f", "held", "g")])

    assert isinstance(answers[1], DatabaseUnreachable)
    assert verdicts([answers[0], answers[2]]) == ["new", "new"]
    assert verdicts(together(dsn, lambda a: [told(a, "held")])) == ["duplicate"]


@pytest.mark.parametrize("count", [1, 300])
def test_many_at_once_are_each_answered_with_their_own(
    dsn: str, conn: Conn, count: int
) -> None:
    answers = together(dsn, lambda a: [told(a, f"f{n}") for n in range(count)])

    for n, [accepted] in enumerate(answers):
        assert accepted.reason == f"alert f{n} fires"
        name = one(
            conn,
            "select input -> 'alerts' -> 0 ->> 'name' from semel.runs where run_id = %s",
            accepted.run_id,
        )
        assert name == f"f{n}"
