"""Whatever a function is called with: an answer or a clean refusal, and a consistent database."""

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

import fuzzing
import semel.core
from consistency import faults
from fix_world import Conn
from fuzzing import TIMEOUT, fuzz
from modelling import Tally

pytestmark = pytest.mark.timeout(TIMEOUT)

CORE = Path(semel.core.__file__).parent
#: Their arguments are settings of ours, and they forget; or they tell of runs that are not ours.
OURS = {"partitions_make", "partitions_drop", "leftovers_drop", "event_import"}
#: What PostgreSQL may say of a value, or of one name twice (21000), and what we say. Anything else
#: is a fault of a function.
REFUSALS = re.compile("SM...|0A000|21000|22...|23...|54...|40001|40P01|55P03")
LOOK_EVERY = 200

EVENT: dict[str, Any] = {
    "source": "s", "channel": "api", "id": "1", "agent": "a", "input": {"a": 1}, "priority": 5,
    "compare": True, "body": 0, "headers": {}, "delay": "30 seconds", "deadline": "1 hour",
}  # fmt: skip
ALERT: dict[str, Any] = {
    "fingerprint": "f", "status": "firing", "starts_ns": 10**18, "ends_ns": 0, "alert": {"x": 1},
}  # fmt: skip
GOOD: dict[str, list[Any]] = {
    "p_events": [
        [EVENT],
        [EVENT, {**EVENT, "id": None}],
        [{**EVENT, "verdict": "quarantined"}],
        [{**EVENT, "correlation": "c"}, {**EVENT, "id": None, "correlation": "c"}],
    ],
    "p_event": [EVENT],
    "p_alerts": [
        [ALERT],
        [ALERT, {**ALERT, "fingerprint": "g", "status": "resolved", "ends_ns": 2}],
    ],
    "p_envelope": [{"version": "4"}, {"version": "4", "groupKey": "g"}],
    "p_headers": [{"user-agent": "x"}],
    "p_input": [{"a": 1}, None, "x"],
    "p_results": [1],
    "p_contents": [{"r": 1}],
    "p_identities": [
        {"version": 2, "digest": "sha256:" + "a" * 64},
        {"version": 1, "digest": "sha256:" + "b" * 64},
    ],
    "p_journal": [[{"topic": "t", "payload": {"a": 1}}]],
}
WORDS: dict[str, list[str]] = {
    "p_project": ["p"] * 8 + ["q"],
    "p_agent": ["a", "a", "b"],
    "p_request": ["k1", "k1", "k2"],
    "p_event_type": ["pay", "pay", "refund"],
    "p_actor": ["ann", "ann", "bob"],
    "p_mode": ["atomic", "recorded"],
    "p_xid": ["3", "1000", "99999999"],
    "p_agents": ["a", "b"],
    "p_worker": ["w1", "w1", "w2"],
    "p_source": ["s", "api"],
    "p_key": ["1", "2"],
    "p_unique": ["u"],
    "p_run_on": ["firing", "firing+resolved"],
    "p_unit": ["notification", "alert"],
    "p_role": ["admin", "viewer"],
    "p_entries": ["intent", "error", "result"],
    "p_keys": ["s1", "s2"],
    "p_code": ["E-RUN-006"],
    "p_version": ["", "1"],
    "p_versions": ["", "1", "2"],
    "p_begun": ["", "1"],
    "p_consumer": ["c", "c", "d"],
    "p_from": ["oldest", "newest"],
    "p_topics": ["t", "u"],
}
#: For an argument that is jsonb.
ENTRIES: list[Any] = [
    [{"topic": "t", "payload": {"a": 1}}],
    [{"topic": "t"}, {"topic": "u", "payload": [1]}],
    [],
]
MOMENTS = [
    *("2026-11-30 12:00+00", "2026-11-30 12:00:30+00", "2026-12-30 12:00+00", "now", "epoch"),
    *("infinity", "-infinity", "0001-01-01", "4713-01-01 BC", "294276-12-31", "today", "x"),
]
SPANS = [
    "0",
    "1 second",
    "30 seconds",
    "5 minutes",
    "7 days",
    "-1 day",
    "300000 years",
    "P1Y",
    "x",
]


def test_no_arguments_harm_us(conn: Conn, record_property: Tally) -> None:
    functions = called(conn)
    assert len(functions) >= 30
    conn.execute("set statement_timeout = '20s'")
    made: list[str] = ["00000000-0000-0000-0000-000000000001"]
    names = list(functions)
    #: Those that make something are called oftener, so that there is something.
    often = [
        n
        for n in names
        if n.startswith(("event_", "alert_", "notification_", "run_", "journal_"))
    ]
    done = 0

    def case(some: Random) -> None:
        nonlocal done
        name = some.choice(often if some.random() < 0.7 else names)
        told = {arg: value(some, arg, kind, made) for arg, kind in functions[name] if arg}
        # What has a default may be left out.
        told = {arg: v for arg, v in told.items() if v is not LEFT_OUT}
        wanted = dict(functions[name])
        places = ", ".join(f"{arg} => %s::{wanted[arg]}" for arg in told)
        try:
            with conn.transaction():
                conn.execute(f"select * from semel.{name}({places})", list(told.values()))
        except psycopg.Error as refused:
            state = refused.sqlstate or ""
            if state == "42883" and not set(REQUIRED[name]) <= set(told):
                return
            assert REFUSALS.fullmatch(state), (name, told, state, str(refused))
            if state.startswith("SM"):
                assert refused.diag.message_hint, (name, told, str(refused))
        done += 1
        if done % 20 == 0:
            found = conn.execute("select run_id::text from semel.runs limit 20").fetchall()
            made[:] = [r for [r] in found] or made
        if done % LOOK_EVERY == 0:
            assert not faults(conn)

    record_property("cases", fuzz(case))
    assert not faults(conn)


LEFT_OUT = object()
REQUIRED: dict[str, list[str]] = {}


def called(conn: Conn) -> dict[str, list[tuple[str, str]]]:
    """Every function that Python calls, with its arguments and their types."""
    text = "".join(file.read_text() for file in CORE.glob("*.py"))
    named = set(re.findall(r"semel\.([a-z_]+)\(", text)) - OURS
    found = conn.execute(
        "select proname, proargnames[:pronargs],"
        " array(select format_type(t, null) from unnest(proargtypes) with ordinality as x(t, n) order by n),"
        " pronargs - pronargdefaults"
        " from pg_proc where pronamespace = 'semel'::regnamespace and proname = any (%s)",
        (list(named),),
    ).fetchall()
    for name, arguments, _, required in found:
        REQUIRED[name] = arguments[:required]
    return {
        name: list(zip(arguments, kinds, strict=True)) for name, arguments, kinds, _ in found
    }


def value(some: Random, argument: str, kind: str, made: list[str]) -> Any:
    """Something for an argument: often what belongs there, else anything that fits its type."""
    if argument == "p_now" and some.random() < 0.8:
        return some.choice([LEFT_OUT, "2026-11-30 12:00+00", "2026-11-30 12:00:31+00"])
    if some.random() < 0.03:
        return None
    if some.random() < 0.2 and argument.startswith(
        ("p_limit", "p_memory", "p_max", "p_delay", "p_lanes", "p_marks")
    ):
        return LEFT_OUT
    if kind.endswith("[]"):
        return [
            value_of(some, argument, kind[:-2], made)
            for _ in range(some.choice([0, 1, 1, 1, 2, 2, 3]))
        ]
    return value_of(some, argument, kind, made)


def value_of(some: Random, argument: str, kind: str, made: list[str]) -> Any:
    good = some.random() < 0.8
    if kind == "jsonb":
        told = json.dumps(some.choice(ENTRIES)).encode()
        return plain((told if good else fuzzing.body(some, ENTRIES)).decode("utf-8", "replace"))
    if argument in GOOD:
        told = json.dumps(some.choice(GOOD[argument])).encode()
        return plain(
            (told if good else fuzzing.body(some, GOOD[argument])).decode("utf-8", "replace")
        )
    if argument == "p_now":
        return some.choice(MOMENTS[:5])  # a test's own clock: any moment, but one
    if good and argument in WORDS:
        return some.choice(WORDS[argument])
    whole = [0, 1, 1, 2, 3, 5, 9] if good else [-1, 100, 1000, 2**31 - 1, -(2**31)]
    fitting: dict[str, list[Any]] = {
        "text": [plain(fuzzing.text(some))],
        "uuid": made,
        "bytea": [some.randbytes(size) for size in (0, 1, 32, 2000)],
        "integer": whole,
        "bigint": whole,
        "interval": SPANS[1:5] if good else SPANS,
        "boolean": [True, False],
        "timestamp with time zone": MOMENTS[:4] if good else MOMENTS,
    }
    return some.choice(fitting[kind])


def plain(text: str) -> str:
    """*text* as a driver can send it."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
