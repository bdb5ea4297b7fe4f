"""A bad alert takes none of the good ones with it, and one that has two states keeps both."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fix_world import until
from semel.config import Settings, Source
from semel.core.deliveries import delivery_read
from semel.db.execute import run
from semel.db.pool import connect
from semel.edges.replay import replay
from semel.errors import Quarantined
from web import BASE, Web, count, settings, verdict, web

Conn = psycopg.Connection[Any]
PATH = "/in/default/alerts"
FAR = ("1677-09-21T00:12:43Z", "2262-04-11T23:47:16Z", "9999-12-31T23:59:59Z")


def alert(name: str, status: str = "firing", **changes: Any) -> dict[str, Any]:
    firing = status == "firing"
    return {
        "status": status,
        "labels": {"alertname": name},
        "startsAt": "2026-11-30T10:44:45Z",
        "endsAt": "0001-01-01T00:00:00Z" if firing else "2026-11-30T10:50:00Z",
        "fingerprint": name,
        **changes,
    }


def at(seconds: float) -> dict[str, str]:
    return {"X-Semel-Test-Clock": f"{BASE + seconds}"}


@pytest.fixture
def told(dsn: str) -> Settings:
    return settings(dsn, Source(name="alerts", channel="alertmanager", agent="triage"))


@pytest.fixture
def client(told: Settings) -> Iterator[Web]:
    with web(told) as client:
        yield client


BAD: list[Any] = [
    "text",
    alert("b", fingerprint=""),
    alert("b", status="pending"),
    alert("b", startsAt="yesterday"),
    alert("b", startsAt="2026-11-30T10:44:45+99:99"),
    alert("b", note="\0"),
    alert("b", note="\ud800"),
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_the_good_alerts_are_accepted_and_the_bad_one_is_kept_with_the_reason(
    client: Web, conn: Conn, bad: Any
) -> None:
    body = json.dumps({"version": "4", "alerts": [alert("a"), bad, alert("c")]}).encode()

    first, again = client.post(PATH, body), client.post(PATH, body)

    assert (first.status_code, verdict(first)) == (201, "new, quarantined")
    made, kept = first.json()["events"]
    assert (kept["code"], kept["run_id"]) == ("E-SOURCE-003", None)
    assert kept["reason"].startswith("alerts[1]")
    assert kept["reason"].endswith("(1 of 3 alerts)")
    assert (again.status_code, verdict(again)) == (200, "duplicate, quarantined")
    assert again.json()["events"][0]["run_id"] == made["run_id"]
    [[work]] = conn.execute("select input from semel.runs").fetchall()
    assert [each["fingerprint"] for each in work["alerts"]] == ["a", "c"]
    assert count(conn, "deliveries", "verdict = 'quarantined'") == 2
    names = conn.execute("select delivery_id from semel.deliveries").fetchall()
    stored = [run(conn, delivery_read("default", name)) for (name,) in names]
    assert [body] * 4 == [kept and kept.body for kept in stored]


def test_a_number_that_cannot_be_kept_is_one_alerts_fault(client: Web, conn: Conn) -> None:
    whole = json.dumps({"alerts": [alert("a"), alert("b", value=7)]})
    for n, number in enumerate(("1e999", "9" * 5000)):
        answer = client.post(PATH, whole.replace("7}", number + "}").encode(), at(n * 1000))
        assert "quarantined" in verdict(answer), number
    assert count(conn, "runs") == 1


def test_a_notification_without_a_usable_alert_is_quarantined_whole(client: Web) -> None:
    answer = client.post(PATH, {"alerts": ["x", 5, None, {}, []]})

    assert (answer.status_code, verdict(answer)) == (200, "quarantined")
    assert answer.json()["reason"].endswith("; and 2 more (5 of 5 alerts)")


def test_the_good_and_the_bad_are_kept_together_or_not_at_all(client: Web, conn: Conn) -> None:
    conn.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin"
        " if new.verdict = 'quarantined' then raise 'no' using errcode = '53100'; end if;"
        " return new; end $$"
    )
    conn.execute(
        "create trigger t before insert on semel.delivery for each row execute function refuse()"
    )

    answer = client.post(PATH, {"alerts": [alert("a"), "x"]})

    assert answer.status_code == 503
    assert count(conn, "runs") == count(conn, "deliveries") == 0


@pytest.mark.parametrize("order", [1, -1])
def test_an_alert_that_fired_and_was_resolved_in_one_notification_is_both(
    client: Web, conn: Conn, order: int
) -> None:
    pair = [alert("a"), alert("a", "resolved")][::order]
    body = json.dumps({"alerts": [*pair, alert("b")]}).encode()

    first = client.post(PATH, body, at(0))

    assert verdict(first) == "new, new"
    fired, resolved = first.json()["events"]
    assert fired["run_id"] == resolved["run_id"]
    assert count(conn, "runs") == 1
    for seconds in (30, 90, 3600):  # within the grace, and long after it
        again = client.post(PATH, body, at(seconds))
        assert (again.status_code, verdict(again).startswith("new")) == (200, False)
    assert count(conn, "runs") == 1
    assert count(conn, "events") == 2


def test_an_alert_that_fires_anew_after_its_end_is_resolved_first(
    client: Web, conn: Conn
) -> None:
    old = client.post(PATH, {"alerts": [alert("a")]}, at(0)).json()
    anew = alert("a", startsAt="2026-11-30T11:30:00Z")

    answer = client.post(PATH, {"alerts": [anew, alert("a", "resolved")]}, at(600))

    assert verdict(answer) == "new, new"
    resolved, fired = answer.json()["events"]
    assert resolved["run_id"] == old["run_id"] != fired["run_id"]
    assert count(conn, "runs") == 2


def test_of_a_hundred_copies_of_one_alert_the_latest_counts(client: Web, conn: Conn) -> None:
    copies = [alert("a", startsAt=f"2026-11-30T10:44:{n % 60:02}Z") for n in range(100)]

    assert verdict(client.post(PATH, {"alerts": copies})) == "new"

    [[work]] = conn.execute("select input from semel.runs").fetchall()
    assert [each["startsAt"] for each in work["alerts"]] == ["2026-11-30T10:44:59Z"]


def test_times_far_away_are_folded_in_any_order(client: Web, conn: Conn) -> None:
    for n, starts in enumerate(FAR):
        for m, other in enumerate(FAR):
            for status in ("firing", "resolved"):
                one = alert(f"{n}{m}", status, startsAt=starts, endsAt=other)
                two = alert(f"{n}{m}", status, startsAt=other, endsAt=starts)
                for told in (one, two):
                    answer = client.post(PATH, {"alerts": [told]}, at(0))
                    assert "quarantined" not in verdict(answer), (status, starts, other)
    assert count(conn, "deliveries", "verdict = 'quarantined'") == 0


def test_a_part_that_is_still_unusable_is_refused_when_replayed(
    client: Web, conn: Conn, told: Settings
) -> None:
    client.post(PATH, {"alerts": [alert("a"), "x"]})
    [[bad]] = conn.execute(
        "select delivery_id from semel.deliveries where verdict = 'quarantined'"
    ).fetchall()

    for dry_run in (True, False):
        with pytest.raises(Quarantined, match=r"alerts\[1\] is no object"):
            replay(conn, told, "default", bad, dry_run=dry_run)

    assert count(conn, "runs") == 1
    assert count(conn, "deliveries") == 2


def test_ten_that_wait_for_one_alert_hold_up_nobody_else(
    dsn: str, conn: Conn, told: Settings
) -> None:
    bot = Source(name="bot", channel="telegram", agent="chat")
    told = settings(dsn, *told.sources.values(), bot)
    with web(told) as client, connect(dsn) as other:
        client.post(PATH, {"alerts": [alert("a")]})
        with other.transaction():
            other.execute("select from semel.fold for update")

            async def timed(path: str, content: Any) -> tuple[int, float]:
                loop = asyncio.get_running_loop()
                began = loop.time()
                answer = await client.sending("POST", path, content)
                return answer.status_code, loop.time() - began

            async def all_at_once() -> tuple[Any, Any]:
                held = [
                    asyncio.create_task(timed(PATH, {"alerts": [alert("a", n=n)]}))
                    for n in range(10)
                ]
                await asyncio.sleep(0)
                free = [await timed("/in/default/bot", {"update_id": n}) for n in range(3)]
                return free, [await task for task in held]

            free, held = client.run(all_at_once())
        assert [code for code, _ in free] == [201] * 3
        assert [code for code, _ in held] == [503] * 10
        assert max(seconds for _, seconds in free) < 0.5
        assert max(seconds for _, seconds in held) < 5
        until(lambda: client.post(PATH, {"alerts": [alert("a")]}).status_code == 200)
