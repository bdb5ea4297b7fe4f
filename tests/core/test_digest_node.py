"""Digests by two hands: whatever bytes come, node and we take the same and say the same of it."""

import base64
import json
import random
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fuzzing import torn
from semel import BadInput, input_digest
from semel.core.canonical import canonical
from semel.core.digest import value_digest
from semel.core.ecmascript import UNDEFINED, BigInt
from semel.core.spelling import MANY, read, spelled

Ask = Callable[[dict[str, str]], Any]
WAYS: list[tuple[Any, Any]] = [(1, "js"), (1, "strict"), (2, "js"), (2, "strict")]


@pytest.fixture(scope="module")
def ask(node: str) -> Iterator[Ask]:
    script = Path(__file__).parent / "canonical.mjs"
    with subprocess.Popen(
        [node, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as judge:
        stdin, stdout = judge.stdin, judge.stdout
        assert stdin
        assert stdout

        def asked(question: dict[str, str]) -> Any:
            stdin.write(json.dumps(question) + "\n")
            stdin.flush()
            return json.loads(stdout.readline())

        yield asked
        stdin.close()


def ours(raw: bytes) -> list[str | None]:
    found: list[str | None] = []
    for version, decode in WAYS:
        try:
            found.append(input_digest(raw, version=version, decode=decode))
        except BadInput as refused:
            assert len(str(refused)) < 300
            found.append(None)
    return found


def agree(ask: Ask, raw: bytes) -> None:
    assert ours(raw) == ask({"raw": base64.b64encode(raw).decode()})
    for version, decode in WAYS:
        try:
            told = spelled(raw, version, decode) if raw else b""
        except BadInput:
            continue
        if told:
            assert canonical(read(raw, decode), version) == told


# -- texts ----------------------------------------------------------------------------------

NUMBERS = [
    *(
        "0",
        "-0",
        "-0.0",
        "1",
        "1.0",
        "1e0",
        "100",
        "1E2",
        "1E+2",
        "0.1",
        "1e21",
        "1e20",
        "123e18",
    ),
    *(
        "999999999999999868928",
        "1e-6",
        "1e-7",
        "0.00001",
        "1.5e-5",
        "-1.5e-7",
        "0.0001",
        "5e-324",
    ),
    *("1e-400", "1e400", "-1e400", "1.7976931348623157e308", "1.7976931348623159e308", "1e308"),
    *("9007199254740991", "-9007199254740991", "9007199254740992", "9007199254740993"),
    *("9007199254740991.0", "9007199254740993.0", "9007199254740994e0", "12345678901234567890"),
    *("333333333.33333329", "4.50", "2e-3", "0.000000000000000000000000001", "1e16", "1e-5"),
    *("999999999999999900000.5", "123456789012345678", "1" + "0" * 308, "1" + "0" * 309),
    *("9" * 5000, "0." + "1" * 5000, "1" * 15, "1" * 16, "0.1e-999999999999", "0e999999999999"),
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "01",
        "+1",
        "1.",
        ".5",
        "1e",
        "-",
        "0x1",
        "1_0",
        "\uff11",
    ),
]
NAMES = [
    *(
        "",
        "a",
        "b",
        "A",
        "0",
        "1",
        "9",
        "10",
        "01",
        "00",
        "-1",
        "-0",
        "1.5",
        "1e3",
        "4294967294",
    ),
    *(
        "4294967295",
        "4294967296",
        "99999999999",
        " ",
        "!",
        "/",
        ":",
        "9a",
        "a:b",
        "\u0663",
        "1\u0663",
    ),
    *(
        "__proto__",
        "constructor",
        "toJSON",
        "length",
        "\ufb33",
        "\U0001f600",
        "\uffff",
        "\ue000",
    ),
    *("\ud800", "\udc00x", "\u20ac", "\r", "\0", "\u007f", "\u0080", "é", "e\u0301", '"', "\\"),
]
SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n"}


def quoted(some: Random, text: str) -> str:
    """*text* as one of the ways to write it."""

    def one(char: str) -> str:
        units = char.encode("utf-16-be", "surrogatepass")
        long = "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
        if some.random() < 0.2:
            return (
                long
                if some.random() < 0.5
                else long.replace("\\u", "\\U").upper().replace("\\U", "\\u")
            )
        if char in SHORT and (char in '"\\' or some.random() < 0.5):
            return SHORT[char]
        return long if char < " " or "\ud800" <= char <= "\udfff" else char

    return f'"{"".join(map(one, text))}"'


def written(some: Random, depth: int = 0, width: int = 5) -> str:
    """A JSON text, mostly: spelt as nobody would."""
    space = some.choice(["", "", "", " ", "\n\t", "\r"])
    kind = some.randrange(10 if depth < 4 else 6)
    if kind < 2:
        return space + some.choice(["null", "true", "false"]) + space
    if kind < 4:
        odd = some.random()
        good = NUMBERS[: -13 if odd < 0.95 else None]
        return (
            some.choice(good)
            if odd < 0.7
            else repr(some.uniform(-1, 1) * 10 ** some.randint(-30, 30))
        )
    if kind < 6:
        return quoted(some, some.choice(NAMES) + some.choice(NAMES))
    inside = [written(some, depth + 1) for _ in range(some.randrange(width))]
    if kind < 8:
        return f"[{space}{','.join(inside)}]"
    members = [f"{quoted(some, name(some, width))}{space}:{each}" for each in inside]
    return f"{{{space}{f'{space},'.join(members)}}}"


def name(some: Random, width: int) -> str:
    if width <= 5:
        return some.choice(NAMES)
    number = some.randrange(10 ** some.randrange(1, 11))
    return some.choice(
        [f"{number}", f"k{number}", f"{number}", some.choice(NAMES) + str(number)]
    )


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
@example(seed=0)
def test_any_text_is_digested_or_refused_as_node_does(ask: Ask, seed: int) -> None:
    some = random.Random(seed)
    raw = written(some).encode("utf-8", "surrogatepass")
    if some.random() < 0.05:
        raw = b"\xef\xbb\xbf" + raw
    agree(ask, torn(some, raw) if some.random() < 0.2 else raw)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
def test_a_large_object_is_digested_as_node_does(ask: Ask, seed: int) -> None:
    some = random.Random(seed)
    plain = some.random() < 0.5
    members = []
    for _ in range(some.choice([MANY - 1, MANY, 3 * MANY])):
        value = (
            some.choice(["1", '"x"', "-7", '"a:b"', "[{}]", "0.5"])
            if plain
            else written(some, 3)
        )
        members.append(f"{quoted(some, name(some, 9))}:{value}")
    if some.random() < 0.3:
        members.append(some.choice(members))
    some.shuffle(members)
    raw = f"[{{{','.join(members)}}}]".encode("utf-8", "surrogatepass")
    agree(ask, raw)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
def test_a_long_text_of_few_values_is_digested_as_node_does(ask: Ask, seed: int) -> None:
    some = random.Random(seed)
    long = "A" * 20_000
    text = written(some, 2)
    agree(
        ask,
        f'{{"url":"data:,{long}","b":{text},"a":1,{quoted(some, "1")}:2}}'.encode(
            "utf-8", "surrogatepass"
        ),
    )


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(raw=st.binary(max_size=40))
@example(raw=b"")
@example(raw=b"\xef\xbb\xbf")
@example(raw=b"\xef\xbb\xbf\xef\xbb\xbf1")
@example(raw="1".encode("utf-16"))
def test_any_bytes_are_digested_or_refused_as_node_does(ask: Ask, raw: bytes) -> None:
    agree(ask, raw)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_any_double_is_written_as_node_does(ask: Ask, number: float) -> None:
    agree(ask, f"[{number!r}]".encode())


@pytest.mark.parametrize("depth", [199, 200, 201, 5000])
@pytest.mark.parametrize(
    ("opened", "closed"), [("[", "]"), ('{"a":[', "]}"), ("[0,[[],", "]]")]
)
def test_depth_is_counted_as_node_counts_it(
    ask: Ask, depth: int, opened: str, closed: str
) -> None:
    levels = opened.count("[") + opened.count("{") - opened.count("[]")
    times, rest = divmod(depth, levels)
    agree(ask, (opened * times + "[" * rest + "]" * rest + closed * times).encode())


# -- values ---------------------------------------------------------------------------------

EAST = timezone(timedelta(hours=8))
VALUES: list[tuple[Any, str]] = [
    (UNDEFINED, "undefined"),
    (None, "null"),
    ({"a": UNDEFINED, "b": [UNDEFINED, 1]}, "{a: undefined, b: [undefined, 1]}"),
    (
        {"at": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)},
        '{at: new Date("2026-01-02T03:04:05.678Z")}',
    ),
    (datetime(1970, 1, 1, 8, tzinfo=EAST), "new Date(0)"),
    (datetime(1, 1, 1, tzinfo=UTC), 'new Date("0001-01-01")'),
    ({"n": BigInt(10), "m": BigInt(2**70)}, "{n: 10n, m: 2n ** 70n}"),
    ([float("nan"), float("inf"), -float("inf"), 10**400], "[NaN, Infinity, -Infinity, 1e400]"),
    ([-0.0, 1.0, 2**53 + 1, 10**21], "[-0, 1, 2 ** 53 + 1, 1e21]"),
    ([set(), {1}, frozenset()], "[new Set(), new Set([1]), new Set()]"),
    ({"bytes": b"\x01\xff"}, "{bytes: new Uint8Array([1, 255])}"),
    ({"10": 1, "9": BigInt(2), "b": (True,)}, "{b: [true], 9: 2n, 10: 1}"),
    ("\ud800", '"\\ud800"'),
    (["\ud83d\ude00", "\U0001f600"], '["\\ud83d\\ude00", "\\u{1f600}"]'),
]


@pytest.mark.parametrize(("value", "expression"), VALUES)
def test_a_value_is_digested_as_json_stringify_writes_it(
    ask: Ask, value: Any, expression: str
) -> None:
    assert value_digest(value, version=1) == ask({"value": expression})
