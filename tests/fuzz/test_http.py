"""Whatever is posted: an answer with a code, no fault of ours, and no event lost or doubled."""

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote, unquote
from uuid import UUID

import pytest

import fuzzing
from consistency import faults
from fix_world import Conn
from fuzzing import TIMEOUT, fuzz
from modelling import Tally
from semel.config import Server, Source
from semel.core import tokens
from semel.db.execute import run
from web import CORPUS, Web, count, secret, settings, web

pytestmark = pytest.mark.timeout(TIMEOUT)

RUNS = "/v1/default/runs"
#: The limit of a body here, so that it is met.
BODY_BYTES_MAX = 20_000
LOOK_EVERY = 100

ALERTS = [
    json.loads(entry["body"])
    for entry in CORPUS["captured_alertmanager"]
    if entry["method"] == "POST"
]
UPDATES = [
    json.loads(entry["body"])
    for entry in CORPUS["constructed"]
    if entry["channel"] == "telegram" and entry["verdict"] != "reject"
]
STARTS: list[Any] = [
    {"agent": "job", "input": {"a": 1, "b": [1, 2]}, "priority": 7},
    {"agent": "job", "input": None, "delay": "30s", "deadline": "1h"},
    {"agent": "job"},
]


class Said(NamedTuple):
    """An answer, as a client gets it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def verdicts(self) -> list[str]:
        return [word for word in self.headers.get("semel-verdict", "").split(", ") if word]

    @property
    def events(self) -> list[dict[str, Any]]:
        told = json.loads(self.body)
        return list(told.get("events", [told]))


class Door:
    """The application, asked without a client that would refuse to send something."""

    def __init__(self, client: Web, conn: Conn, token: str) -> None:
        self.client = client
        self.conn = conn
        self.token = token
        self.known: dict[UUID, UUID | None] = {}
        self.arrivals = 0
        self.asked = 0

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Any = (), query: bytes = b""
    ) -> Said:
        """One request and its answer, judged: never a fault of ours, always a code."""
        said = self.client.run(
            _asked(
                self.client._app,
                method,
                path,
                body,
                headers=[*headers, ("host", "semel")],
                query=query,
            )
        )
        told: dict[str, Any] = json.loads(said.body) if said.body else {}
        assert said.status < 500, (said, body[:500])
        assert said.status // 100 != 3, said
        if said.status >= 400:
            assert said.headers["content-type"] == "application/problem+json", said
            assert {"type", "title", "status", "detail", "code", "retryable"} <= set(told), said
            assert told["code"].startswith("E-"), said
            assert told["status"] == said.status, said
        if said.verdicts and said.verdicts != ["refused"] and said.status < 400:
            self.note(said)
        elif said.verdicts == ["conflict"]:
            self.arrivals += 1
        return said

    def note(self, said: Said) -> None:
        """What was answered is what is there: no id twice, no id changed."""
        events = said.events
        assert len(said.verdicts) == len(events), said
        self.arrivals += len(events)
        for verdict, event in zip(said.verdicts, events, strict=True):
            if verdict == "new":
                name = UUID(event["event_id"])
                assert name not in self.known, f"the id {name} was given twice"
                self.known[name] = event["run_id"] and UUID(event["run_id"])
            elif verdict in {"duplicate", "conflict"} and event["event_id"]:
                assert UUID(event["event_id"]) in self.known, said
        self.asked += 1
        if self.asked % LOOK_EVERY == 0:
            self.look()

    def look(self) -> None:
        """Nothing lost, nothing doubled, nothing that nobody was told of."""
        assert not faults(self.conn, arrivals=True)
        there = dict(self.conn.execute("select event_id, run_id from semel.events").fetchall())
        assert self.known == there
        assert count(self.conn, "deliveries") == self.arrivals
        runs = {run_id for run_id in self.known.values() if run_id}
        assert count(self.conn, "runs") == len(runs)


async def _asked(
    app: Any,
    method: str,
    path: str,
    body: bytes,
    *,
    headers: list[tuple[str, str]],
    query: bytes,
) -> Said:
    sent: list[Any] = []
    raw = [
        (name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in headers
    ]
    target = quote(path, errors="surrogatepass")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(target),  # as a server reads it: no byte that is no UTF-8 is left
        "raw_path": target.encode(),
        "query_string": query,
        "root_path": "",
        "headers": raw,
        "client": ("127.0.0.1", 123),
        "server": ("semel", 80),
    }
    parts = [body[: len(body) // 2], body[len(body) // 2 :]]

    async def receive() -> Any:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    told = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in sent[0]["headers"]
    }
    return Said(sent[0]["status"], told, b"".join(part.get("body", b"") for part in sent[1:]))


@pytest.fixture
def door(dsn: str, conn: Conn) -> Iterator[Door]:
    sources = [
        Source(name="alerts", channel="alertmanager", agent="triage"),
        Source(name="each", channel="alertmanager", agent="triage", unit="alert"),
        Source(name="both", channel="alertmanager", agent="triage", run_on="firing+resolved"),
        Source(name="closed", channel="alertmanager", agent="a", secrets=(secret("s3cret"),)),
        Source(name="bot", channel="telegram", agent="chat"),
        Source(name="shut", channel="telegram", agent="a", secrets=(secret("s3cret"),)),
        Source(name="jobs", channel="api", agent="job"),
    ]
    token = tokens.mint()
    run(conn, tokens.token_create("default", token, "operator"))
    limits = Server(pool=4, body_bytes_max=BODY_BYTES_MAX)
    with web(settings(dsn, *sources, server=limits)) as client:
        yield Door(client, conn, token)


def line(some: Random) -> tuple[str, str]:
    """A header that may matter."""
    names = [
        *("authorization", "idempotency-key", "idempotency_key", "content-type", "user-agent"),
        *(
            "x-telegram-bot-api-secret-token",
            "x-semel-test-clock",
            "content-length",
            "forwarded",
        ),
        *("x-forwarded-for", "transfer-encoding", "expect", "x-request-id", "webhook-id"),
    ]
    values = [
        "Bearer s3cret",
        "Basic dTpzM2NyZXQ=",
        "Basic =",
        "s3cret",
        '"k"',
        "k",
        "Bearer",
        "",
    ]
    return some.choice(names), some.choice([*values, fuzzing.text(some), fuzzing.text(some)])


def lines(some: Random) -> list[tuple[str, str]]:
    told = [line(some) for _ in range(some.choice([0, 0, 0, 1, 2, 5]))]
    # A test's clock makes time itself part of the input; the model of the inbox walks that.
    return [(name, value) for name, value in told if name != "x-semel-test-clock"]


def key(some: Random) -> list[tuple[str, str]]:
    keys = [*'abc"', "a-long-one", '"quoted"', '"a\\"b"', "ä", "k" * 255, "k" * 256]
    names = ["Idempotency-Key", "idempotency_key", "idempotency-key"]
    told = fuzzing.text(some) if some.random() < 0.5 else some.choice(keys)
    return [(some.choice(names), told)] * some.choice([0, 1, 1, 1, 1, 2])


Case = Callable[[Door, Random], None]


def alertmanager(door: Door, some: Random) -> None:
    """The same bytes again, at once, are news in no case."""
    source = some.choice(["alerts", "alerts", "each", "both", "closed"])
    body, headers = fuzzing.body(some, ALERTS), lines(some)
    first = door.ask("POST", f"/in/default/{source}", body, headers)
    again = door.ask("POST", f"/in/default/{source}", body, headers)
    assert (again.status < 400) == (first.status < 400)
    assert "new" not in again.verdicts, (first, again)


def telegram(door: Door, some: Random) -> None:
    source = some.choice(["bot", "bot", "bot", "shut"])
    body, headers = fuzzing.body(some, UPDATES), lines(some)
    path = f"/in/default/{source}"
    first, again = (door.ask("POST", path, body, headers) for _ in range(2))
    repeats(first, again, {"new": "duplicate"})


def api(door: Door, some: Random) -> None:
    body, headers = (
        fuzzing.body(some, [*STARTS, *UPDATES, 1, "x", None]),
        key(some) + lines(some),
    )
    first, again = (door.ask("POST", "/in/default/jobs", body, headers) for _ in range(2))
    keyed = any(name.lower().startswith("idem") for name, _ in headers)
    repeats(first, again, {"new": "duplicate"} if keyed else {})


def starts(door: Door, some: Random) -> None:
    headers = [("Authorization", f"Bearer {door.token}"), *key(some)]
    body = fuzzing.body(some, STARTS)
    first, again = (door.ask("POST", RUNS, body, headers) for _ in range(2))
    repeats(first, again, {"new": "duplicate"} if len(headers) > 1 else {})


def repeats(first: Said, again: Said, changes: dict[str, str]) -> None:
    """The same again is answered the same, but for what was new, and for the same run."""
    assert (first.status >= 400) == (again.status >= 400), (first, again)
    assert [changes.get(verdict, verdict) for verdict in first.verdicts] == again.verdicts
    if first.status < 400 and first.verdicts == ["new"] and again.verdicts == ["duplicate"]:
        [one], [other] = first.events, again.events
        assert (one["run_id"], one["event_id"]) == (other["run_id"], other["event_id"])


def operates(door: Door, some: Random) -> None:
    """Cancel, retry and show of what is there and of what is not."""
    if not door.known or some.random() < 0.2:
        door.ask("POST", RUNS, b'{"agent":"job"}', [("Authorization", f"Bearer {door.token}")])
    known = [str(run_id) for run_id in list(door.known.values())[-5:]]
    name = fuzzing.text(some) if some.random() < 0.3 else some.choice(known)
    method, verb = some.choice([("POST", "/cancel"), ("POST", "/retry"), ("GET", "")])
    body = fuzzing.body(some, [{"reason": "so"}, {}]) if some.random() < 0.7 else b""
    headers = [("Authorization", f"Bearer {door.token}")]
    door.ask(method, f"{RUNS}/{name}{verb}", body, headers)


def reads(door: Door, some: Random) -> None:
    """Every page, with any query."""
    page = some.choice(["runs", "events", "agents", "workers", "runs/" + fuzzing.text(some)])
    names = ["status", "agent", "cursor", "limit", "source", "verdict", fuzzing.text(some)]
    good = ["PENDING", "job", "new", "1", "200", "2000", "00000000-0000-0000-0000-000000000001"]
    pairs = [
        (some.choice(names), some.choice([*good, fuzzing.text(some)]))
        for _ in range(some.randrange(4))
    ]
    told = "&".join(
        f"{quote(name, errors='surrogatepass')}={quote(said, errors='surrogatepass')}"
        for name, said in pairs
    ).encode()
    query = fuzzing.torn(some, told) if some.random() < 0.3 else told
    token = door.token if some.random() < 0.9 else fuzzing.text(some)
    door.ask("GET", f"/v1/default/{page}", b"", [("Authorization", f"Bearer {token}")], query)


def paths(door: Door, some: Random) -> None:
    """Any method on any path, with a good token, a bad one or none."""
    words = [
        *(
            "in",
            "v1",
            "default",
            "runs",
            "events",
            "bot",
            "alerts",
            "healthz",
            "readyz",
            "cancel",
        ),
        *("", ".", "..", "%2f", "no-project", "é", "openapi.json", "console"),
    ]
    some_words = [
        some.choice(words) if some.random() < 0.8 else fuzzing.text(some)
        for _ in range(some.randrange(6))
    ]
    methods = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "x"]
    token = some.choice([f"Bearer {door.token}", "Bearer", "", fuzzing.text(some)])
    headers = [("Authorization", token), *lines(some)]
    door.ask(
        some.choice(methods), "/" + "/".join(some_words), fuzzing.body(some, STARTS), headers
    )


@pytest.mark.parametrize(
    "case",
    [alertmanager, telegram, api, starts, operates, reads, paths],
    ids=lambda case: case.__name__,
)
def test_no_request_harms_us(door: Door, case: Case, record_property: Tally) -> None:
    record_property("cases", fuzz(lambda some: case(door, some)))
    door.look()
