"""The poll of Alertmanager's API makes good what no notification told, and doubles none that did."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alertmanagers import alertmanager, needs_it, way_to
from fix_serving import Serve
from fix_world import Conn, one, until
from semel.config import ReconcileSettings, Source
from semel.core import alert_polls
from semel.core.alert_polls import Difference
from semel.db.execute import run
from semel.db.pool import pool
from semel.edges.acceptor import Acceptor
from semel.edges.alert_poll import differences
from semel.edges.alert_poll.poll import Poll

UPTIME = "2026-11-30T10:00:00.000Z"
Answer = tuple[int, Any]


class Api:
    """An Alertmanager's API that has what it is told."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.uptime = UPTIME
        self.instead: Answer | None = None
        self.headers: list[dict[str, str]] = []
        api = self

        class Door(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.headers.append(dict(self.headers.items()))
                code, told = api.instead or api.answer(self.path)
                said = told if isinstance(told, bytes) else json.dumps(told).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(said)))
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/am"
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, path: str) -> Answer:
        match path.partition("?")[0]:
            case "/am/api/v2/status":
                return 200, {"uptime": self.uptime, "cluster": {"status": "disabled"}}
            case "/am/api/v2/receivers":
                return 200, [{"name": "semel"}, {"name": "mail"}]
            case "/am/api/v2/alerts/groups":
                group = {"labels": {"scn": "x"}, "receiver": {"name": "semel"}}
                return 200, [{**group, "alerts": self.alerts}]
            case _:
                return 404, b"nothing here"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def alert(name: str, starts: str = "2026-11-30T10:44:45.413Z", **status: Any) -> dict[str, Any]:
    return {
        "annotations": {"summary": name},
        "endsAt": "2036-11-30T10:48:45.413Z",
        "fingerprint": name * 4,
        "receivers": [{"name": "semel"}],
        "startsAt": starts,
        "status": {"inhibitedBy": [], "silencedBy": [], "state": "active", **status},
        "updatedAt": starts,
        "generatorURL": "http://prometheus/graph",
        "labels": {"alertname": name, "scn": "x"},
    }


def notified(name: str, status: str = "firing") -> bytes:
    """The same alert as its notification has it: to the nanosecond."""
    told = {
        "status": status,
        "labels": {"alertname": name, "scn": "x"},
        "startsAt": "2026-11-30T10:44:45.413697123Z",
        "endsAt": differences.NEVER if status == "firing" else "2026-11-30T11:00:00Z",
        "fingerprint": name * 4,
    }
    return json.dumps({"version": "4", "status": status, "alerts": [told]}).encode()


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.close()


@pytest.fixture
def source(api: Api) -> Source:
    return of(api.url)


def of(url: str, **changes: Any) -> Source:
    told: dict[str, Any] = {
        "settle": timedelta(0),
        "gone_after": timedelta(0),
        "receiver": "semel",
        **changes,
    }
    return Source(
        name="am",
        channel="alertmanager",
        agent="triage",
        reconcile=ReconcileSettings(source="am", url=url, **told),
    )


Work = Callable[[Poll, Acceptor], Awaitable[Any]]


def with_poll(dsn: str, source: Source, work: Work) -> Any:
    async def go() -> Any:
        async with pool(dsn, size=4) as lent:
            acceptor = Acceptor(lent)
            return await work(Poll(source, lent, acceptor, lambda *_: None), acceptor)

    return asyncio.run(go())


def poll(dsn: str, source: Source) -> bool:
    """One poll of a server that leaves it to others afterwards."""

    async def work(own: Poll, _acceptor: Acceptor) -> bool:
        did = await own.once()
        await own.leave()
        return did

    return bool(with_poll(dsn, source, work))


def tell(dsn: str, source: Source, body: bytes) -> Any:
    notification = differences.read(source, body)
    assert notification is not None

    async def work(_poll: Poll, acceptor: Acceptor) -> Any:
        [accepted] = await acceptor.accept_alerts(source, notification, body=body, headers={})
        return accepted

    return with_poll(dsn, source, work)


def state(conn: Conn) -> alert_polls.Poll:
    [found] = run(conn, alert_polls.list_polls())
    return found


def counts(conn: Conn) -> tuple[int, int]:
    return one(conn, "select count(*) from semel.events"), one(
        conn, "select count(*) from semel.runs"
    )


@needs_it
@pytest.mark.timeout(120)
def test_what_no_notification_told_is_found_in_the_real_one_and_ended_when_it_is_over(
    tmp_path: Path, serving: Serve, conn: Conn
) -> None:
    with way_to("") as way:
        way.fates("/in/default/am", *[400] * 1000)  # whatever it sends is refused
        told = {
            "route": {
                "receiver": "semel",
                "group_by": ["scn"],
                "group_wait": "100ms",
                "group_interval": "500ms",
            },
            "receivers": [
                {"name": "semel", "webhook_configs": [{"url": f"{way.url}/in/default/am"}]}
            ],
        }
        with alertmanager(tmp_path, told) as members:
            server = serving(
                '[sources.am]\nchannel = "alertmanager"\nagent = "triage"\n'
                'authenticate = "none"\n'
                f'reconcile = {{ url = "{members.urls[0]}", receiver = "semel", every = "1s",'
                ' settle = "0s", gone_after = "1s" }\n'
            )
            members.fire(scn="a", alertname="A")
            until(lambda: counts(conn) == (1, 1))
            until(lambda: len(way.answers("/in/default/am")) > 1)
            way.target = server.url
            way.fates("/in/default/am")
            until(lambda: {200} & set(way.answers("/in/default/am")))  # and it is known already
            assert counts(conn) == (1, 1)
            way.fates("/in/default/am", *[400] * 1000)
            members.end(scn="a", alertname="A")
            until(lambda: counts(conn) == (2, 1))

            work = one(conn, "select input from semel.runs")
            assert work["receiver"] == "semel"
            assert work["alerts"][0]["labels"] == {"alertname": "A", "scn": "a"}
            assert "resolved" == one(
                conn, "select relation from semel.run_events where relation <> 'made'"
            )
            until(lambda: state(conn).firing == 0)
            assert (state(conn).fault, state(conn).found, state(conn).ended) == (None, 1, 1)
            shown = httpx.get(f"{server.url}/metrics").text
            assert 'semel_alert_poll_up{source="am"} 1.0' in shown


def test_what_the_poll_found_is_a_run_of_its_group_and_says_so(
    dsn: str, conn: Conn, api: Api, source: Source
) -> None:
    api.alerts = [alert("A"), alert("B")]

    assert poll(dsn, source)

    assert counts(conn) == (1, 1)
    work = one(conn, "select input from semel.runs")
    assert work["groupLabels"] == work["commonLabels"] | {} == {"scn": "x"}
    assert [each["endsAt"] for each in work["alerts"]] == [differences.NEVER] * 2
    assert "the reconcile poll saw it" in one(conn, "select reason from semel.deliveries")
    poll(dsn, source)
    assert counts(conn) == (1, 1)
    assert 1 == one(conn, "select count(*) from semel.deliveries")


@pytest.mark.parametrize("poll_first", [True, False])
def test_a_notification_and_the_poll_make_one_event_in_either_order(
    dsn: str, conn: Conn, api: Api, source: Source, *, poll_first: bool
) -> None:
    api.alerts = [alert("A")]
    steps = [lambda: poll(dsn, source), lambda: tell(dsn, source, notified("A"))]
    for step in steps if poll_first else reversed(steps):
        step()
    assert counts(conn) == (1, 1)
    api.alerts = []
    steps = [lambda: poll(dsn, source), lambda: tell(dsn, source, notified("A", "resolved"))]
    for step in steps if poll_first else reversed(steps):
        step()
    assert counts(conn) == (2, 1)


def test_a_poll_and_its_notifications_at_once_make_one_event(
    dsn: str, conn: Conn, api: Api, source: Source
) -> None:
    api.alerts = [alert(name) for name in "ABCDEFGH"]

    async def all_at_once(own: Poll, acceptor: Acceptor) -> None:
        told = []
        for name in "ABCDEFGH":
            read = differences.read(source, notified(name))
            assert read is not None
            told.append(acceptor.accept_alerts(source, read, body=b"", headers={}))
        await asyncio.gather(own.once(), *told)

    with_poll(dsn, source, all_at_once)

    said = conn.execute(
        "select fingerprint, count(*) from semel.alerts group by 1 having count(*) = 1"
    ).fetchall()
    assert len(said) == 8
    fired = one(conn, "select sum(jsonb_array_length(input -> 'alerts')) from semel.runs")
    assert fired == 8


def test_what_is_muted_is_neither_news_nor_over(
    dsn: str, conn: Conn, api: Api, source: Source
) -> None:
    api.alerts = [
        alert("A", state="suppressed", silencedBy=["s"]),
        alert("B", mutedBy=["night"]),
        alert("C", state="unprocessed"),
    ]
    tell(dsn, source, notified("A"))

    poll(dsn, source)
    poll(dsn, source)

    assert counts(conn) == (1, 1)
    assert state(conn).firing == 3


def test_an_alert_that_cannot_be_read_takes_none_of_the_others_with_it(
    dsn: str, conn: Conn, api: Api, source: Source
) -> None:
    api.alerts = [alert("A", starts="soon"), alert("B"), {"fingerprint": 7}]

    poll(dsn, source)

    assert counts(conn) == (1, 1)
    assert ["BBBB"] == [
        name for (name,) in conn.execute("select fingerprint from semel.alerts")
    ]


def test_two_servers_poll_a_source_once(dsn: str, conn: Conn, api: Api, source: Source) -> None:
    async def two(own: Poll, acceptor: Acceptor) -> list[bool]:
        other = Poll(source, own._pool, acceptor, lambda *_: None)
        first = [await own.once(), await other.once()]
        await own.leave()
        return [*first, await other.once(), await own.once()]

    assert [True, False, True, False] == with_poll(dsn, source, two)


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ((500, b""), "answers 500 to /api/v2/status"),
        ((302, b""), "answers 302"),
        ((401, b""), "answers 401"),
        ((200, b"<html>"), "with no JSON"),
        ((200, b'{"a":' + b"[" * 100_000), "with no JSON"),
        ((200, {"up": 1}), "it is no Alertmanager"),
        ((200, [1]), "it is no Alertmanager"),
    ],
)
def test_an_api_that_is_none_is_a_fault_and_changes_nothing(
    dsn: str, conn: Conn, api: Api, source: Source, *, instead: Answer, said: str
) -> None:
    tell(dsn, source, notified("A"))
    api.instead = instead

    poll(dsn, source)

    assert said in (state(conn).fault or "")
    assert counts(conn) == (1, 1)
    api.instead = None
    api.alerts = [alert("A")]
    poll(dsn, source)
    assert state(conn).fault is None


def test_a_receiver_that_is_not_there_is_a_fault_and_ends_nothing(
    dsn: str, conn: Conn, api: Api
) -> None:
    wrong = of(api.url, receiver="smel")
    tell(dsn, wrong, notified("A"))

    poll(dsn, wrong)

    assert "has no receiver 'smel'; there are semel, mail" in (state(conn).fault or "")
    assert counts(conn) == (1, 1)


def test_an_api_out_of_reach_is_a_fault(dsn: str, conn: Conn) -> None:
    poll(dsn, of("http://127.0.0.1:1"))

    assert "cannot be reached: ConnectionRefusedError" in (state(conn).fault or "")


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
_ANY = (
    _SCALARS | st.lists(_SCALARS, max_size=3) | st.dictionaries(st.text(), _SCALARS, max_size=3)
)
_KEYS = ("fingerprint", "status", "startsAt", "labels", "annotations", "generatorURL")


@settings(max_examples=30, deadline=None)
@given(
    group=st.fixed_dictionaries(
        {
            "alerts": st.lists(_ANY | st.dictionaries(st.sampled_from(_KEYS), _ANY)),
            "labels": _ANY,
            "receiver": _ANY,
        }
    )
)
def test_no_answer_of_an_api_makes_the_poll_fail(group: dict[str, Any]) -> None:
    told = differences.standings(of("http://am:9093"), [group, {"alerts": [alert("A")]}])

    news = [
        Difference(what="found", fingerprint=one.fingerprint, starts_ns=one.starts_ns)
        for one in told
    ]
    assert "AAAA" in {one.fingerprint for one in told}
    assert differences.found(of("http://am:9093"), [group, {"alerts": [alert("A")]}], news)


def test_it_shows_the_authorization_that_it_was_told(dsn: str, api: Api) -> None:
    poll(dsn, of(api.url, authorization="env:X", header="Bearer s3cret"))

    assert {"Bearer s3cret"} == {told.get("Authorization") for told in api.headers}
