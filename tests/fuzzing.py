"""Bad input by the thousand: what is good, spoilt at random, from a seed.

An ordinary run gives each input a hundred cases, the same each time. In a soak SEMEL_FUZZ_SECONDS
says for how long each input gets new ones, which follow from --randomly-seed. Each case has a
generator of its own: a failure says SEMEL_FUZZ_CASE, which brings that case alone.
"""

import itertools
import json
import os
import random
import time
from collections.abc import Callable
from random import Random
from typing import Any

#: For each input; 0 is an ordinary run.
SECONDS = float(os.environ.get("SEMEL_FUZZ_SECONDS") or 0)
#: Of an ordinary run.
CASES = 100
CASE = os.environ.get("SEMEL_FUZZ_CASE", "")
#: Seconds that the test of one input may take.
TIMEOUT = SECONDS + 240

#: What has broken programs before.
TEXTS = [
    "",
    " ",
    "\0",
    "a\0b",
    "\x7f\x1b[31m",
    "\r\nX: y",
    "\u202e\u0000\uffff",
    "\U0001f600" * 3,
    "é\u0301",
    "ß" * 200,
    "\ud800",
    "\udfff\ud800",
    "'; drop table semel.run; --",
    "%s%d%(x)s{}{0}",
    "../../etc/passwd",
    "null",
    "infinity",
    "-infinity",
    "NaN",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:60.999999999+23:59",
    "2026-02-30T00:00:00Z",
    "2026-11-30T10:44:45.413697Z",
    "294276-12-31",
    "firing",
    "resolved",
    "p",
    "default",
    "00000000-0000-0000-0000-000000000001",
    "{00000000-0000-0000-0000-000000000001}",
    "a" * 129,
    "a" * 256,
    "x" * 3000,
    "9" * 400,
    "1e400",
    "0x10",
    "1_000",
    "\uff11\uff12",
    "30s",
    "1d",
    "999999999d",
    '"quoted"',
    '"open',
    "\\",
]
NUMBERS: list[Any] = [
    *(0, 1, -1, 5, 9, 10, 2**31 - 1, 2**31, -(2**31) - 1, 2**53, 2**53 + 1, -(2**53) - 1),
    *(2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 10**400),
    *(0.5, -0.0, 1e-320, 1.7976931348623157e308, 12345678901234567.0),
]
TOKENS = [b"", b"\0", b"\xff", b"\xed\xa0\x80", b"\\u0000", b"\\ud800", b"NaN", b"1e999"]
TOKENS += [
    b'"',
    b"{",
    b"}",
    b"[",
    b"[" * 300,
    b'{"a":' * 300,
    b",",
    b":",
    b"\xef\xbb\xbf",
    b"9" * 5000,
]
DEEPEST = 260


def fuzz(case: Callable[[Random], object]) -> int:
    """Give *case* one generator after the other; answers how many."""
    if CASE:
        case(Random(CASE))
        return 1
    seed = random.getrandbits(32) if SECONDS else 0
    until = time.monotonic() + SECONDS
    for n in itertools.count():
        if time.monotonic() >= until if SECONDS else n >= CASES:
            return n
        try:
            case(Random(f"{seed}:{n}"))
        except BaseException as error:
            error.add_note(f"again with SEMEL_FUZZ_CASE={seed}:{n}")
            raise
    raise AssertionError("itertools.count never ends")


def text(some: Random) -> str:
    """A text that somebody may send."""
    match some.randrange(4):
        case 0:
            return some.choice(TEXTS)
        case 1:
            return some.choice(TEXTS) + some.choice(TEXTS)
        case 2:
            return "".join(chr(some.randrange(1, 256)) for _ in range(some.randrange(20)))
        case _:
            return "".join(some.choices("abcXYZ019_.-", k=some.randrange(1, 20)))


def typed(text: str) -> str:
    """*text* as a process can get it: bytes without a NUL."""
    raw = text.replace("\0", "").encode("utf-8", "surrogatepass")
    return raw.decode("utf-8", "surrogateescape")


def value(some: Random, depth: int = 0) -> Any:
    """A JSON value, or what Python takes for one."""
    kind = some.randrange(8 if depth < 3 else 6)
    if kind == 0:
        return some.choice([None, True, False])
    if kind in {1, 2}:
        return some.choice(NUMBERS)
    if kind in {3, 4, 5}:
        return text(some)
    count = some.randrange(4)
    if kind == 6:
        return [value(some, depth + 1) for _ in range(count)]
    return {text(some): value(some, depth + 1) for _ in range(count)}


def spoilt(some: Random, told: Any) -> Any:
    """*told* with one place of it changed: gone, doubled, of another kind, or deeper."""
    if isinstance(told, dict | list) and told and some.random() < 0.8:
        pairs = list(told.items() if isinstance(told, dict) else enumerate(told))
        place = some.randrange(len(pairs))
        name, there = pairs[place]
        match some.randrange(6):
            case 0:
                del pairs[place]
            case 1:
                pairs.append((text(some), some.choice([there, value(some)])))
            case _:
                pairs[place] = (name, spoilt(some, there))
        return dict(pairs) if isinstance(told, dict) else [each for _, each in pairs]
    return some.choice([[told], {"x": told}, *(value(some) for _ in range(4))])


def nested(some: Random) -> bytes:
    """Brackets inside brackets, about as many as may be, or far more."""
    depth = some.choice([100, 199, 200, 201, DEEPEST, 5000])
    return b"[" * depth + b"]" * depth


def torn(some: Random, told: bytes) -> bytes:
    """*told* with some bytes gone, doubled, changed or put in."""
    for _ in range(some.randrange(1, 4)):
        first, last = sorted(some.randrange(len(told) + 1) for _ in range(2))
        match some.randrange(5):
            case 0:
                told = told[:first] + told[last:]
            case 1:
                told = told[:last] + told[first:]
            case 2:
                told = told[:first] + some.choice(TOKENS) + told[first:]
            case 3:
                told = told[:first] + some.randbytes(some.randrange(6)) + told[first + 1 :]
            case _:
                told = told[:first]
    return told


def body(some: Random, good: list[Any]) -> bytes:
    """One of the *good* JSON values as bytes: as it is, spoilt as JSON, or torn as bytes."""
    told = some.choice(good)
    for _ in range(some.choice([0, 1, 1, 2, 5])):
        told = spoilt(some, told)
    raw = json.dumps(told, ensure_ascii=some.random() < 0.7).encode("utf-8", "surrogatepass")
    match some.randrange(8):
        case 0:
            return torn(some, raw)
        case 1:
            return torn(some, torn(some, raw))
        case 2:
            return nested(some) if some.random() < 0.2 else raw
        case _:
            return raw
